"""Settings that imported weights ask for, against NumPy."""

import math

import numpy as np
import paper
import pytest
from small_models import SOURCE, TARGET_IN, make_model, paper_weights, sentence

from keras_transformer.training import estimates

DEPARTURES = dict(
    norm_first=True,
    positions="tensor2tensor",
    first_position=1,
    tied_embeddings=False,
    source_end=False,
)
ROWS = range(3)


@pytest.fixture(scope="module")
def model():
    return make_model(**DEPARTURES)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-4)


def embed(ids, embedding):
    """Scaled rows and sinusoids in two halves, from position 1."""
    table = embedding.table.numpy().astype("float64")
    half = table.shape[1] // 2
    rates = 10_000.0 ** (-np.arange(half) / (half - 1))
    angles = np.arange(1, len(ids) + 1)[:, None] * rates
    positions = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return table[ids] * math.sqrt(table.shape[1]) + positions


def final_norm(x, stack):
    gain, bias = stack.norm.gamma.numpy(), stack.norm.beta.numpy()
    return paper.layer_norm(x, {"gain": gain, "bias": bias})


def pre_norm_logits(model, row):
    """Xiong et al., 2020, figure 1 (b), and the attention to the source."""
    w = paper_weights(model)
    norm, attention = paper.layer_norm, paper.multi_head_attention
    # Without the end token, which is not to be seen.
    memory = embed(sentence(SOURCE[row])[:-1], model.source_embedding)
    for layer in w["encoder"]:
        x = norm(memory, layer["norm1"])
        memory = memory + attention(x, x, layer["self"])[0]
        x = norm(memory, layer["norm2"])
        memory = memory + paper.feed_forward(x, layer["ffn"])
    memory = final_norm(memory, model.encoder)
    target_in = sentence(TARGET_IN[row])
    earlier = np.tri(len(target_in), dtype=bool)
    sums, crosses = embed(target_in, model.target_embedding), []
    for layer in w["decoder"]:
        x = norm(sums, layer["norm1"])
        sums = sums + attention(x, x, layer["self"], earlier)[0]
        update, cross = attention(
            norm(sums, layer["norm2"]), memory, layer["cross"]
        )
        crosses.append(cross)
        sums = sums + update
        x = norm(sums, layer["norm3"])
        sums = sums + paper.feed_forward(x, layer["ffn"])
    return final_norm(sums, model.decoder) @ w["embedding"].T, crosses


@pytest.mark.parametrize("row", [0, 1, 2])
def test_logits_and_attention_are_those_of_pre_norm(model, row):
    source = SOURCE.copy()
    length = len(sentence(source[row])) - 1
    logits = model((source, TARGET_IN))[row]
    weights = model.attention_weights(source, TARGET_IN)["cross"]
    expected, crosses = pre_norm_logits(model, row)
    close(logits[: len(expected)], expected)
    for of_layer, cross in zip(weights, crosses, strict=True):
        close(of_layer[row, :, : len(expected), :length], cross)
        np.testing.assert_array_equal(
            of_layer[row, :, : len(expected), length:], 0
        )


def test_training_without_dropout_gives_the_same_logits(model):
    close(model((SOURCE, TARGET_IN), training=True), model((SOURCE, TARGET_IN)))


def test_cached_steps_give_what_the_whole_target_gives(model):
    whole = model((SOURCE, TARGET_IN)).numpy()
    memory, source_mask = model.encode(SOURCE)
    cross, cache = model.cross_keys_values(memory), model.empty_cache(3)
    for t in range(TARGET_IN.shape[1]):
        logits, cache = model.decode_step(
            TARGET_IN[:, t : t + 1], t, cache, cross, source_mask
        )
        for row in ROWS:
            if TARGET_IN[row, t]:
                close(logits[row, 0], whole[row, t])


def test_weights_are_saved_and_counted(model, tmp_path):
    assert estimates.parameters(model.model_config) == model.count_params()
    model.save_weights(tmp_path / "model.weights.h5")
    again = make_model(**DEPARTURES)
    for weight in again.weights:
        weight.assign(weight * 0)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(
        again((SOURCE, TARGET_IN)), model((SOURCE, TARGET_IN))
    )
