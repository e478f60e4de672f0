import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from programs import run_program
from small_models import make_model

from keras_transformer.config import ModelConfig
from keras_transformer.model import Transformer
from keras_transformer.presets import PRESETS
from keras_transformer.training import estimates

# Every size another prime, but for d_model, which must be even.
PRIMES = ModelConfig(
    vocab_size=31,
    num_layers=2,
    d_model=14,
    num_heads=3,
    key_dim=5,
    value_dim=11,
    ffn_dim=13,
)
B, S, T = 17, 19, 23


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_parameters_are_as_many_as_keras_counts(positions):
    model = make_model(positions=positions)
    assert estimates.parameters(model.model_config) == model.count_params()


def product_flops(graph):
    """FLOPs of every matrix product in a graph of static shapes."""
    total = 0
    for operation in graph.get_operations():
        if operation.type in ("MatMul", "BatchMatMulV2"):
            left, output = operation.inputs[0], operation.outputs[0]
            # The sums over an axis in a norm's gradient are no products.
            if 1 in output.shape[-2:]:
                continue
            batched = operation.type == "BatchMatMulV2"
            turned = operation.get_attr("adj_x" if batched else "transpose_a")
            inner = left.shape[-2 if turned else -1]
            total += 2 * int(np.prod(output.shape)) * inner
    return total


def traced(model, with_gradient):
    @tf.function(
        input_signature=[
            tf.TensorSpec((B, S), tf.int32),
            tf.TensorSpec((B, T), tf.int32),
        ],
        autograph=False,
    )
    def function(source, target):
        with tf.GradientTape() as tape:
            logits = model((source, target), training=True)
        if with_gradient:
            return tape.gradient(logits, model.trainable_variables)
        return logits

    return function.get_concrete_function().graph


@pytest.mark.parametrize("restriction", [None, 5, 21])
def test_flops_are_those_of_the_products_in_the_graph(restriction):
    sizes = dataclasses.replace(PRIMES, restriction=restriction)
    model = Transformer(**dataclasses.asdict(sizes))
    forward = product_flops(traced(model, with_gradient=False))
    assert estimates.forward_flops(sizes, B, S, T) == forward
    step = product_flops(traced(model, with_gradient=True))
    assert estimates.step_flops(sizes, B, S, T) == step


def test_base_on_32_by_32_tokens_is_the_rule_of_thumb():
    # 6 FLOPs for each of 60,485,632 parameters and 1,024 target tokens are
    # 372 GFLOP; the products of attention make it 375.
    model = dataclasses.replace(PRESETS["base"].model, vocab_size=32_000)
    assert estimates.parameters(model) == 60_485_632
    assert round(6 * 60_485_632 * 1024 / 1e9) == 372
    assert round(estimates.step_flops(model, 32, 32, 32) / 1e9) == 375


def test_weights_gradients_and_moments_of_base_by_hand():
    base = PRESETS["base"].model
    memory = estimates.memory(base, 1, 1, 1)
    assert memory.weights == 4 * 63_045_632
    assert memory.gradients == 4 * 63_045_632
    assert memory.moments == 8 * 63_045_632
    assert memory.logits == 2 * 4 * 37_000
    assert memory.total == sum(memory)
    half = estimates.memory(base, 1, 1, 1, "mixed_bfloat16")
    assert half.weights == (4 + 2) * 63_045_632


def test_micro_batches_divide_what_depends_on_the_rows():
    whole = estimates.memory(PRIMES, 24, S, T)
    third = estimates.memory(PRIMES, 24, S, T, accumulate=3)
    assert 3 * third.activations == whole.activations
    assert 3 * third.logits == whole.logits
    assert third.gradients == 2 * whole.gradients
    # 25 rows in 3 are 9 each.
    rounded = estimates.memory(PRIMES, 25, S, T, accumulate=3)
    assert 24 * rounded.logits == 9 * whole.logits


@pytest.mark.slow
def test_the_estimate_is_near_the_measured_peak():
    # Peaks of two processes, so that what Python and TensorFlow take cancels.
    sizes = dict(
        vocab_size=5_003, num_layers=2, d_model=256, ffn_dim=1024, num_heads=4
    )
    peaks, estimated = [], []
    for rows in (8, 96):
        shape = (rows, 41, 37)
        given = map(json.dumps, (sizes, shape))
        output, _ = run_program("measure_memory.py", *given)
        peaks.append(int(output))
        model = ModelConfig(**sizes)
        estimated.append(estimates.memory(model, *shape).total)
    ratio = np.diff(estimated)[0] / np.diff(peaks)[0]
    assert 0.8 < ratio < 1.25
