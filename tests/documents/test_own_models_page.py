"""The programs of the page on models of one's own run as they are printed."""

import contextlib
import io
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.decoding.own_models import abilities_of

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "own_models.md"


@pytest.mark.example
def test_the_programs_run_one_after_the_other():
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    program = "\n".join(blocks)
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, PAGE.name, "exec"), names)
    written, shape, translation = printed.getvalue().splitlines()
    assert written == "the cat sat on the mat."
    assert shape == "(4, 10, 3)"
    assert translation == "['one lamp']"
    # The cached step scores as the one that reads everything does.
    whole, cached = tf.zeros([1, 3, 0], tf.int32), names["empty"]
    for position, ids in enumerate(([[1, 1, 1]], [[2, 5, 3]], [[4, 4, 6]])):
        ids = tf.constant(ids)
        expected, whole = names["step"](ids, position, whole)
        found, cached = names["cached_step"](ids, position, cached)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert len(names["polite"].translate(["a"], max_length=3)) == 1
    for model, inputs in (names["model"], 2), (names["labelled"], 3):
        ids = [np.array([[5, 7, 3]]), np.array([[2, 5, 9]]), np.array([1])]
        config = model.get_config() | {"dtype": "mixed_bfloat16"}
        half = type(model).from_config(config)
        half.set_weights(model.get_weights())
        found, expected = (each(ids[:inputs]) for each in (half, model))
        np.testing.assert_allclose(found, expected, atol=0.1)
    model = names["model"]
    assert model.trainable_weights and not model.encoder.trainable_weights
    # With a cached step of its own, the search finds the same.
    model.adapter.kernel.assign(3 * np.eye(16))
    fast = names["Fast"].from_config(model.get_config())
    fast.set_weights(model.get_weights())
    assert abilities_of(fast).steps is CachedSteps
    assert abilities_of(model).steps is not CachedSteps
    search = kt.Search(beam_size=3, max_length=5)
    source = tf.constant([[5, 7, 9, 3]])
    found = [IdModel(each).search_ids(source, search) for each in (model, fast)]
    np.testing.assert_array_equal(found[0].ids, found[1].ids)
