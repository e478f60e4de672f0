"""The files for TensorFlow Serving, read as TensorFlow Serving reads them."""

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from keras_transformer.config import Search, UserError
from keras_transformer.exporting import saved_model as serving
from keras_transformer.exporting.batching_file import (
    batching_text,
    read_batching,
)
from keras_transformer.exporting.serving_kit import Export
from keras_transformer.serving.limits import Batching

BATCHING = "batching_parameters.txt"


def read_models(text):
    config = model_server_config_pb2.ModelServerConfig()
    return text_format.Parse(text, config).model_config_list.config


def read_warmup(version):
    """The requests: `(model, signature, inputs)`, the inputs as arrays."""
    path = version / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        spec = log.predict_log.request.model_spec
        inputs = log.predict_log.request.inputs
        yield (
            spec.name,
            spec.signature_name,
            {name: tf.make_ndarray(inputs[name]) for name in inputs},
        )


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


def test_the_models_file_serves_the_folder_under_its_name(exported):
    (model,) = read_models((exported.parent / "models.config").read_text())
    name = exported.parent.name
    assert model.name == name
    assert model.base_path == f"/models/{name}"
    assert model.model_platform == "tensorflow"
    # No policy: the server takes the highest version.
    assert not model.HasField("model_version_policy")


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
    limit = read_batching(exported.parent / BATCHING)["max_batch_size"]
    for requests in seen.values():
        assert {1, limit} == {size for size, _ in requests}
        # Short and long text, alone and together.
        lengths = [sorted(map(len, texts)) for _, texts in requests]
        short, long = lengths[-1][0], lengths[-1][-1]
        assert long > 8 * short
        assert [short] in lengths and [long] in lengths
    # The server refuses a file with more.
    assert sum(map(len, seen.values())) <= 1_000


@pytest.mark.slow
def test_a_later_version_adapts_to_the_files_that_are_there(
    small_translator, tmp_path, one_signature
):
    options = Search(beam_size=1, max_source_length=7)
    serving.export(
        *(small_translator, tmp_path, 1, options), name="ende", max_batch_size=3
    )
    batching = tmp_path / BATCHING
    models = tmp_path / "models.config"
    # An operator tunes both.
    batching.write_text("max_batch_size {\n  value: 5 # was 3\n}\n")
    models.write_text(models.read_text() + "# pinned\n")

    second = serving.export(small_translator, tmp_path, 2, options)

    assert batching.read_text() == "max_batch_size {\n  value: 5 # was 3\n}\n"
    assert models.read_text().endswith("# pinned\n")
    sizes = {
        len(values)
        for _, _, inputs in read_warmup(second)
        for values in inputs.values()
    }
    assert sizes == {1, 5}


def test_the_batch_size_of_a_file_that_is_there_counts(tmp_path):
    # The server would not load a version whose warm-up is larger.
    (tmp_path / BATCHING).write_text(batching_text(8))
    assert Export().planned(tmp_path).max_batch_size == 8
    assert Export(max_batch_size=9).planned(tmp_path).max_batch_size == 8


def test_a_file_in_the_place_of_the_folder_is_refused_before_any_work(tmp_path):
    (tmp_path / "export").touch()
    with pytest.raises(UserError, match="`output`"):
        Export().planned(tmp_path / "export")


def test_the_file_of_an_export_says_what_the_server_does_without_one(tmp_path):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(batching_text())
    assert Batching(**read_batching(path)) == Batching()


def test_a_file_of_another_spelling_is_read(tmp_path):
    path = tmp_path / "batching.txt"
    path.write_text(
        "# max_batch_size { value: 2 }\n"
        "max_batch_size:{value:11}batch_timeout_micros { value : 0 }\n"
        "allowed_batch_sizes: 11\nnum_batch_threads { value: 3 } # Three.\n"
    )
    assert Batching(**read_batching(path)) == Batching(11, 0, 3, 16)


@pytest.mark.parametrize(
    "text, said",
    [
        (b"num_batch_threads { value: 0 }", "num_batch_threads { value: 0 }"),
        (b"max_batch_siz { value: 4 }", "found none"),
        (b"max_batch_size { value: four }", "max_batch_size { value: four }"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_sentence(tmp_path, text, said):
    path = tmp_path / "batching.txt"
    path.write_bytes(text)
    with pytest.raises(UserError, match=said):
        read_batching(path)
