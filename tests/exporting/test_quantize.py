"""The SavedModels whose weights are bfloat16 or int8."""

import dataclasses
import shutil

import numpy as np
import pytest
import sample_runs
import tensorflow as tf
from sample_runs import GREEDY, quantized_export
from session_loader import Served, operators

from keras_transformer.config import UserError
from keras_transformer.decoding import frozen_weights
from keras_transformer.exporting import saved_model as serving
from keras_transformer.machine import devices
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.translator import Translator

# `make test` has int8, whose weights, sums and operators are all of its own.
HALF = pytest.param("bfloat16", marks=pytest.mark.slow)


def path_of(dtype):
    """The trained translator with weights of a type. Not to be changed."""
    return quantized_export(dtype) / "17"


@pytest.fixture(scope="module")
def trained():
    quantized_export("int8")  # Here, not in the time of the first test.
    return sample_runs.digit_translator()


def stored(saved_model):
    """Shape and dtype of each number in the file."""
    path = saved_model / "variables" / "variables"
    reader = tf.train.load_checkpoint(str(path))
    shapes = reader.get_variable_to_shape_map()
    return sorted(
        (tuple(shapes[name]), dtype.name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype != tf.string
    )


@pytest.mark.parametrize("dtype", ["float32", HALF])
def test_every_weight_is_stored_once_in_its_type(
    exported, small_translator, trained, dtype
):
    path, of = exported, small_translator
    if dtype != "float32":
        path, of = path_of(dtype), trained
    expected = [(tuple(w.shape), dtype) for w in of.model.weights]
    assert stored(path) == sorted(expected)


def test_a_matrix_is_stored_in_8_bits_and_a_scale_a_column(trained):
    expected = []
    for weight in trained.model.weights:
        if len(weight.shape) == 1:
            expected.append((tuple(weight.shape), "float32"))
            continue
        # The embedding matrix, whose rows become columns, has one for each row.
        axis = 0 if weight is trained.model.embedding.table else 1
        expected.append((tuple(weight.shape), "int8"))
        expected.append(((weight.shape[axis],), "float32"))
    assert stored(path_of("int8")) == sorted(expected)


ASKED = ["seven one four", "", "two"]
GIVEN = ["sieben eins vier", "drei", "neun neun"]


@pytest.mark.slow
def test_every_signature_computes_with_the_rounded_weights(trained):
    # Keras's mixed policy casts the same weights in every product.
    config = {**trained.model.get_config(), "dtype": "mixed_bfloat16"}
    model = trained.model.from_config(config)
    model.set_weights(
        [
            weight.astype("bfloat16").astype("float32")
            for weight in trained.model.get_weights()
        ]
    )
    rounded = Translator(model, trained.tokenizer)
    served = Served(path_of("bfloat16"))

    expected = rounded.translate(
        ASKED, beam_size=1, length_penalty=0.0, n_best=1
    )
    for name in ("serving_default", "n_best"):
        found = served(name, text=ASKED)
        text = found.get("translation", found.get("translations")).ravel()
        assert [t.decode() for t in text] == [e[0].text for e in expected]
    scores = served("score", source=ASKED, target=GIVEN)["score"]
    np.testing.assert_allclose(
        scores, rounded.score(ASKED, GIVEN, length_penalty=0.0), rtol=1e-3
    )


@pytest.mark.stands_for("quantised exports")
def test_a_trained_model_in_8_bits_translates_and_scores_nearly_as_before(
    trained,
):
    texts, right = sample_runs.digit_corpus()["test"]
    greedy = dict(beam_size=1, length_penalty=0.0, n_best=1)
    expected = [x for (x,) in trained.translate(texts, **greedy)]
    before = [text for text, _ in expected]
    # Otherwise both might agree on nonsense.
    assert sum(map(str.__eq__, before, right)) > 100

    found = Served(path_of("int8"))("serving_default", text=texts)

    agree = np.array([x.decode() for x in found["translation"]]) == before
    assert sum(agree) >= 120
    # Not all: processors round differently, and train another model. A sum is
    # as uncertain as it is large.
    scores = np.array([score for _, score in expected])
    close = np.isclose(found["score"][agree], scores[agree], 0.2, 0.2)
    assert np.mean(close) > 0.95


def test_weights_that_are_rounded_already_are_not_stored_as_if_not(
    small_translator, tmp_path
):
    rounded = small_translator.freeze("bfloat16")
    with pytest.raises(UserError, match="float32"):
        serving.export(rounded, tmp_path, precision="float32")
    assert not list(tmp_path.iterdir())


def private(path):
    """Name the operators that TensorFlow keeps for itself."""
    return {name for name in operators(path) if name[0] == "_"}


@pytest.mark.parametrize("dtype", ["float32", HALF, "int8"])
def test_the_card_names_the_operators_that_not_every_tensorflow_has(
    exported, dtype
):
    path = exported if dtype == "float32" else path_of(dtype)
    card = ModelCard.load(path)
    assert set(card.operators) == private(path)
    assert card.operators or dtype == "bfloat16" and not devices.has("AVX-512")
    assert card.precision == dtype


def test_a_tensorflow_without_them_says_so_at_once(exported, tmp_path):
    path = tmp_path / "1"
    shutil.copytree(exported, path)
    card = ModelCard.load(path)
    dataclasses.replace(card, operators=("_Elsewhere",)).save(path)
    with pytest.raises(UserError, match="with _Elsewhere for .* --portable"):
        Served(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype, needs", [("bfloat16", "AVX-512"), ("int8", "VNNI")]
)
def test_an_old_processor_refuses_what_would_crash_or_overflow(
    small_translator, tmp_path, monkeypatch, caplog, one_signature, dtype, needs
):
    # What a newer one writes, which this one may only write.
    monkeypatch.setattr(devices, "has", lambda instructions: True)
    with caplog.at_level("INFO"):
        path = serving.export(
            *(small_translator, tmp_path, 2, GREEDY),
            precision=dtype,
            card=sample_runs.CARD,
        )
    assert f"Serve it on a processor with {needs}" in caplog.text
    assert private(path)
    assert ModelCard.load(path).instructions == (needs,)

    monkeypatch.setattr(devices, "has", lambda instructions: False)
    with pytest.raises(UserError, match=f"with {needs} for .* like this one"):
        Served(path)


@pytest.mark.slow
def test_where_there_are_no_such_operators_the_portable_form_is_written(
    small_translator, tmp_path, monkeypatch, one_signature
):
    monkeypatch.setattr(frozen_weights, "missing_operators", list)
    path = serving.export(small_translator, tmp_path, search=GREEDY)
    assert not private(path)
    with pytest.raises(UserError, match="int8 needs its operators"):
        serving.export(small_translator, tmp_path, version=2, precision="int8")
