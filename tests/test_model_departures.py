"""Settings that imported weights ask for: pre-norm, biases and swish."""

import dataclasses
import math

import numpy as np
import paper
import pytest
from small_models import (
    KINDS,
    SOURCE,
    TARGET,
    TARGET_IN,
    close,
    make_model,
    model_of,
    paper_weights,
    sentence,
)

from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer


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
def test_logits_and_attention_are_those_of_pre_norm(row):
    model = model_of("pre-norm")
    length = len(sentence(SOURCE[row])) - 1
    logits = model((SOURCE, TARGET_IN))[row]
    weights = model.attention_weights(SOURCE, TARGET_IN)["cross"]
    expected, crosses = pre_norm_logits(model, row)
    close(logits[: len(expected)], expected, atol=2e-4)
    for of_layer, cross in zip(weights, crosses, strict=True):
        of_row = of_layer[row, :, : len(expected)].numpy()
        close(of_row[..., :length], cross)
        assert not of_row[..., length:].any()


@pytest.mark.stands_for("models that depart from the paper")
def test_every_one_of_them_changes_the_logits():
    model = model_of("with biases")
    logits = model((SOURCE, TARGET_IN)).numpy()
    defaults = ("relu", 1e-6, False, False)
    plain = dict(zip(KINDS["with biases"], defaults, strict=True))
    for name, value in plain.items():
        settings = {**dataclasses.asdict(model.model_config), name: value}
        other = Transformer(**settings)
        for weight in other.weights:
            (same,) = (w for w in model.weights if tail(w) == tail(weight))
            weight.assign(same)
        difference = np.abs(other((SOURCE, TARGET_IN)).numpy() - logits)
        assert difference.max() > 1e-3, name


def tail(weight):
    return weight.path.partition("/")[2]


def test_the_loss_of_a_training_step_sees_the_bias_of_the_logits():
    model = make_model(**KINDS["with biases"])
    model.compile("sgd", SmoothedCrossEntropy(0.1))
    before = np.array(model.embedding.bias)
    data = (SOURCE, TARGET_IN), TARGET
    evaluated = model.evaluate(*data, verbose=0, return_dict=True)
    logs = model.fit(*data, verbose=0).history
    assert logs["loss"] == pytest.approx([evaluated["loss"]], rel=1e-5)
    assert np.abs(model.embedding.bias - before).max() > 1e-4
