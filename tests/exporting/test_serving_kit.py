"""The files for TensorFlow Serving, read as TensorFlow Serving reads them."""

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformer.config import Search, UserError
from keras_transformer.exporting import saved_model as serving
from keras_transformer.exporting.serving_kit import (
    BATCHING_TEXT,
    Export,
    read_batching,
)
from keras_transformer.serving.limits import Batching

BATCHING = "batching_parameters.txt"


def read_warmup(version):
    """The requests: `(model, signature, inputs)`, the inputs as arrays."""
    path = version / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        inputs = {x: tf.make_ndarray(y) for x, y in request.inputs.items()}
        yield request.model_spec.name, request.model_spec.signature_name, inputs


def test_the_batching_file_is_what_the_server_expects(exported):
    text = (exported.parent / BATCHING).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    # The text form of BatchingParameters in session_bundle_config.proto, whose
    # numbers are messages themselves.
    assert lines == [
        "max_batch_size { value: 32 }",
        # Less than a translation takes, and enough for another to arrive.
        "batch_timeout_micros { value: 5000 }",
        "num_batch_threads { value: 2 }",
        "max_enqueued_batches { value: 16 }",
    ]


@pytest.mark.stands_for("requests of the warm-up")
def test_the_warm_up_plays_in_the_loader_of_the_server(exported, served):
    seen = {}
    for model, signature, inputs in read_warmup(exported):
        assert model == exported.parent.name
        (size,) = {len(values) for values in inputs.values()}
        answer = served(signature, **inputs)
        assert {len(values) for values in answer.values()} == {size}
        texts = {text for values in inputs.values() for text in values}
        seen.setdefault(signature, []).append((size, texts))

    assert set(seen) == set(served.signatures)
    for requests in seen.values():
        # One text, for which weights are packed otherwise, and more.
        assert {1, 2} == {size for size, _ in requests}
        # Short and long text, alone and together.
        lengths = [sorted(map(len, texts)) for _, texts in requests]
        short, long = lengths[-1][0], lengths[-1][-1]
        assert long > 8 * short
        assert [short] in lengths and [long] in lengths
    # The server refuses a file with more.
    assert sum(map(len, seen.values())) <= 1_000


@pytest.mark.slow
def test_a_later_version_keeps_the_file_that_is_there(
    small_translator, tmp_path, one_signature
):
    options = Search(beam_size=1, max_source_length=7)
    tuned = "max_batch_size { value: 5 }  # Tuned."
    (tmp_path / BATCHING).write_text(tuned)
    serving.export(small_translator, tmp_path, 2, options)
    assert (tmp_path / BATCHING).read_text() == tuned


def test_a_file_in_the_place_of_the_folder_is_refused_before_any_work(tmp_path):
    (tmp_path / "export").touch()
    with pytest.raises(UserError, match="`output`"):
        Export().path(tmp_path / "export")


ODD = (
    "# max_batch_size { value: 2 }\n"
    "max_batch_size:{value:11}batch_timeout_micros { value : 0 }\n"
    "allowed_batch_sizes: 11\nnum_batch_threads { value: 3 } # Three.\n"
)


@pytest.mark.parametrize(
    "text, expected",
    # That of an export says what the server does without one.
    [(BATCHING_TEXT, Batching()), (ODD, Batching(11, 0, 3, 16))],
)
def test_a_file_of_any_spelling_is_read(tmp_path, text, expected):
    path = tmp_path / "batching.txt"
    path.write_text(text)
    assert Batching(**read_batching(path)) == expected


@pytest.mark.parametrize(
    "text, named",
    [
        ("num_batch_threads { value: 0 }", "num_batch_threads"),
        ("max_batch_siz { value: 4 }", "batching.txt"),
        ("max_batch_size { value: four }", "four"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_sentence(tmp_path, text, named):
    path = tmp_path / "batching.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=named):
        read_batching(path)
