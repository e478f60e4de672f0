"""The SavedModels whose weights are float16, bfloat16 or int8."""

import dataclasses
import math
import shutil

import keras
import ml_dtypes
import numpy as np
import pytest
import sample_runs
import tensorflow as tf
from session_loader import Served
from small_models import of_rounded_weights
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.__main__ import main
from keras_transformer.config import Search, UserError
from keras_transformer.exporting import saved_model as serving
from keras_transformer.machine import devices
from keras_transformer.run import Run
from keras_transformer.translation import loading
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.translator import Translator

pytestmark = pytest.mark.slow

GREEDY = Search(beam_size=1, n_best=1, length_penalty=0.0, max_source_length=31)

FLOATS = ("float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "int8")
TEXTS = ["the dog", "die Wiese und"]


def stored_weights(saved_model):
    """Shape and dtype of each float in the file, and the bytes of the file."""
    path = saved_model / "variables" / "variables"
    reader = tf.train.load_checkpoint(str(path))
    dtypes = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    weights = [
        (tuple(shapes[name]), dtype.name)
        for name, dtype in dtypes.items()
        if dtype.is_floating
    ]
    data = path.with_name("variables.data-00000-of-00001")
    return sorted(weights), data.stat().st_size


@pytest.fixture(scope="module")
def exports(small_run, tmp_path_factory):
    """The small run with weights of each kind. Not to be changed."""
    return {
        dtype: Run(small_run).export(
            tmp_path_factory.mktemp(dtype), options=GREEDY, quantization=dtype
        )
        for dtype in DTYPES
    }


@pytest.fixture(scope="module")
def served(exports):
    """Each of them as it is served."""
    return {dtype: Served(path) for dtype, path in exports.items()}


@pytest.fixture(scope="module")
def answers_in_float32(served):
    """Answers of every signature of the float32 model."""
    whole = served["float32"]
    return {name: whole.everywhere(name, TEXTS) for name in whole.signatures}


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_weight_is_stored_once_in_its_dtype(
    exports, small_translator, dtype
):
    weights, _ = stored_weights(exports[dtype])
    model = small_translator.model
    assert weights == sorted((tuple(w.shape), dtype) for w in model.weights)


@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_every_weight_takes_two_bytes_less(exports, dtype):
    (weights, whole), (_, half) = (
        stored_weights(exports[kind]) for kind in ("float32", dtype)
    )
    # The rest of the file, the names of the weights, may be shorter.
    saved = whole - half - 2 * sum(math.prod(shape) for shape, _ in weights)
    assert 0 <= saved < 0.05 * whole


def test_a_matrix_is_stored_in_8_bits_with_a_number_for_each_column(
    exports, small_translator
):
    path = exports["int8"] / "variables" / "variables"
    reader = tf.train.load_checkpoint(str(path))
    shapes = reader.get_variable_to_shape_map()
    found = sorted(
        (tuple(shapes[name]), dtype.name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype != tf.string
    )

    model = small_translator.model
    expected = []
    for weight in model.weights:
        if len(weight.shape) == 1:
            expected.append((tuple(weight.shape), "float32"))
            continue
        # The embedding matrix, whose rows become columns, has one for each row.
        axis = 0 if weight is model.embedding.table else 1
        expected.append((tuple(weight.shape), "int8"))
        expected.append(((weight.shape[axis],), "float32"))
    assert found == sorted(expected)


def with_rounded_weights(of, dtype, policy):
    model = of_rounded_weights(of.model, dtype, policy)
    return Translator(model, of.tokenizer)


def test_every_signature_computes_in_float32_with_the_rounded_weights(
    served, small_translator
):
    rounded = with_rounded_weights(small_translator, "float16", "float32")
    texts = ["ein kleiner Hund", "", "the dog across the meadow"]
    served = served["float16"]

    expected = rounded.translate(
        texts, beam_size=1, length_penalty=0.0, n_best=1
    )
    for name in ("serving_default", "n_best"):
        found = served(name, text=texts)
        text = found.get("translation", found.get("translations")).ravel()
        assert [t.decode() for t in text] == [e[0].text for e in expected]
        np.testing.assert_allclose(
            found.get("score", found.get("scores")).ravel(),
            [e[0].score for e in expected],
            rtol=1e-5,
        )
    targets = ["die Wiese", "und", "laut"]
    np.testing.assert_allclose(
        served("score", source=texts, target=targets)["score"],
        rounded.score(texts, targets, length_penalty=0.0),
        rtol=1e-5,
    )


def test_every_signature_computes_in_bfloat16_with_the_rounded_weights(
    served, small_translator
):
    # Keras's mixed policy casts the same weights in every product.
    mixed, single = (
        with_rounded_weights(small_translator, ml_dtypes.bfloat16, policy)
        for policy in ("mixed_bfloat16", "float32")
    )
    texts = ["ein kleiner Hund", "", "the dog across the meadow"]
    targets = ["die Wiese", "und", "laut"]
    served = served["bfloat16"]

    expected = mixed.translate(texts, beam_size=1, length_penalty=0.0)
    for name in ("serving_default", "n_best"):
        found = served(name, text=texts)
        text = found.get("translation", found.get("translations")).ravel()
        assert [t.decode() for t in text] == expected
    scores = served("score", source=texts, target=targets)["score"]
    in_bfloat16, in_float32 = (
        translator.score(texts, targets, length_penalty=0.0)
        for translator in (mixed, single)
    )
    np.testing.assert_allclose(scores, in_bfloat16, rtol=1e-3)
    np.testing.assert_allclose(scores, in_float32, rtol=0.02)
    # Bfloat16 has 8 bits: what it does is seen.
    assert np.abs(scores - in_float32).max() > 1e-4


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_it_has_the_signatures_of_the_float32_model(
    served, answers_in_float32, dtype
):
    assert set(served[dtype].signatures) == set(answers_in_float32)
    for name, expected in answers_in_float32.items():
        found = served[dtype].everywhere(name, TEXTS)
        assert set(found) == set(expected)
        for output, array in expected.items():
            assert found[output].dtype == array.dtype
            assert found[output].shape[0] == array.shape[0] == 2


@pytest.mark.parametrize(
    # A sum of log-probabilities is as uncertain as it is large.
    "dtype, tolerance, alike",
    [
        ("float16", {"rtol": 0, "atol": 0.02}, 126),
        ("bfloat16", {"rtol": 0.1, "atol": 0.05}, 120),
        ("int8", {"rtol": 0.2, "atol": 0.2}, 120),
    ],
)
def test_a_trained_model_translates_and_scores_nearly_as_before(
    tmp_path, dtype, tolerance, alike
):
    trained = sample_runs.digit_translator()
    path = serving.export(trained, tmp_path, options=GREEDY, quantization=dtype)
    texts, right = sample_runs.digit_corpus()["test"]
    expected = trained.translate(
        texts, beam_size=1, length_penalty=0.0, n_best=1
    )
    # Otherwise both might agree on nonsense.
    before = [e[0].text for e in expected]
    assert sum(map(str.__eq__, before, right)) > 100

    found = Served(path)("serving_default", text=texts)

    agree = [
        after.decode() == text
        for after, text in zip(found["translation"], before, strict=True)
    ]
    assert sum(agree) >= alike
    # Not all: processors round differently, and train another model.
    close = np.isclose(
        found["score"][agree],
        [e[0].score for e, same in zip(expected, agree, strict=True) if same],
        **tolerance,
    )
    assert np.mean(close) > 0.95


def test_the_model_keeps_its_own_weights():
    dense = keras.layers.Dense(3)
    dense.build((2, 5))
    before = dense.get_weights()
    inputs = np.random.default_rng(0).normal(size=(2, 5)).astype("float32")

    with keras.StatelessScope(serving.half_weights(dense)):
        halved = dense.call(inputs)

    for weight, value in zip(dense.weights, before, strict=True):
        assert weight.dtype == "float32"
        np.testing.assert_array_equal(weight, value)
    kernel = before[0].astype("float16").astype("float32")
    np.testing.assert_allclose(halved, inputs @ kernel, rtol=1e-5)
    # Float16 has 11 bits: what it does changes something.
    assert np.any(np.asarray(halved) != np.asarray(dense(inputs)))


def test_the_command_stores_what_it_is_told(small_run, tmp_path, capsys):
    arguments = ["--run-dir", small_run, "--output", tmp_path]
    arguments = [*map(str, arguments), "--quantize", "bfloat16"]
    assert main(["export", *arguments]) == 0
    assert capsys.readouterr().out == f"{tmp_path / '1'}\n"
    weights, _ = stored_weights(tmp_path / "1")
    assert {kind for _, kind in weights} == {"bfloat16"}


def test_another_quantization_is_refused(small_translator, tmp_path):
    with pytest.raises(ValueError, match="received 'int4'"):
        serving.export(small_translator, tmp_path, quantization="int4")
    assert not list(tmp_path.iterdir())


def operators(path):
    """Names of all operators in the file, those of its functions included."""
    saved = saved_model_pb2.SavedModel.FromString(
        (path / "saved_model.pb").read_bytes()
    )
    (meta,) = saved.meta_graphs
    nodes = [*meta.graph_def.node]
    for function in meta.graph_def.library.function:
        nodes += function.node_def
    return {node.op for node in nodes}


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_portable_export_has_only_operators_with_a_name_in_tensorflow(
    small_translator, tmp_path, dtype
):
    path = serving.export(
        small_translator,
        tmp_path,
        options=GREEDY,
        quantization=dtype,
        portable=True,
    )
    # TensorFlow keeps for itself what begins so.
    assert not [name for name in operators(path) if name.startswith("_")]
    assert Served(path)("serving_default", text=["the dog"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_card_names_the_operators_that_not_every_tensorflow_has(
    exports, dtype
):
    card = ModelCard.load(exports[dtype])
    kept = {name for name in operators(exports[dtype]) if name[0] == "_"}
    assert set(card.operators) == kept
    assert kept or dtype == "bfloat16" and not devices.has("AVX-512")
    assert card.quantization == dtype


def test_a_tensorflow_without_them_says_so_before_anything_is_served(
    exports, tmp_path
):
    path = tmp_path / "1"
    shutil.copytree(exports["float32"], path)
    card = ModelCard.load(path)
    dataclasses.replace(card, operators=("_Elsewhere",)).save(path)
    with pytest.raises(UserError, match="with _Elsewhere for .* --portable"):
        Served(path)


@pytest.fixture
def old_processor(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nflags\t\t: fpu avx2 fma avx512f\n")
    monkeypatch.setattr(devices, "PROCESSORS", path)


def test_an_old_processor_writes_what_every_processor_can_read(
    small_translator, tmp_path, old_processor
):
    path = serving.export(
        *(small_translator, tmp_path, 2, GREEDY),
        quantization="bfloat16",
        card=sample_runs.CARD,
    )
    assert not [name for name in operators(path) if name.startswith("_")]
    assert ModelCard.load(path).instructions == ()
    assert Served(path)("serving_default", text=["the dog"])


@pytest.mark.parametrize(
    "dtype, needed", [("bfloat16", "AVX-512"), ("int8", "VNNI")]
)
def test_an_old_processor_refuses_what_would_crash_or_overflow(
    small_translator, tmp_path, monkeypatch, caplog, dtype, needed
):
    # What a newer one writes, which this one may only write.
    monkeypatch.setattr(devices, "has", lambda instructions: True)
    with caplog.at_level("INFO"):
        path = serving.export(
            *(small_translator, tmp_path, 2, GREEDY),
            quantization=dtype,
            card=sample_runs.CARD,
        )
    assert f"Serve it on a processor with {needed}" in caplog.text
    assert [name for name in operators(path) if name.startswith("_")]
    assert ModelCard.load(path).instructions == (needed,)

    monkeypatch.setattr(devices, "has", lambda instructions: False)
    with pytest.raises(UserError, match=f"with {needed} for .* like this one"):
        Served(path)


def test_where_there_are_no_such_operators_the_portable_form_is_written(
    small_translator, tmp_path, monkeypatch
):
    monkeypatch.setattr(loading, "can_pack", lambda: False)
    path = serving.export(small_translator, tmp_path, options=GREEDY)
    assert not [name for name in operators(path) if name.startswith("_")]
    with pytest.raises(UserError, match="int8 needs its operators"):
        serving.export(
            small_translator, tmp_path, version=2, quantization="int8"
        )
