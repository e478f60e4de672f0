"""Estimates parameters, arithmetic and memory of a training step from shapes.

It is pure Python: you need no GPU for an estimate for eight.

A multiply-add is two floating-point operations (FLOPs). Only matrix products
count, those of padding too; a look-up costs nothing.

Axes: B batch, S source length, T target length.
"""

from collections.abc import Iterator
from typing import NamedTuple

from keras_transformer.config import ModelConfig


def parameters(model: ModelConfig) -> int:
    """Count the trainable numbers of a model (section 3).

    The matrix is tied. The attention's projections and the logits have a bias,
    and the stacks a last norm, only if the model asks for them. The
    feed-forward network has biases, and every norm gain and bias.
    """
    norm = 2 * model.d_model
    attention = sum(_projections(model))
    if model.attention_bias:
        attention += model.num_heads * model.key_dim + model.d_model
    feed_forward = _feed_forward(model) + model.ffn_dim + model.d_model
    # Learned positions have a table for each side.
    learned = 2 * model.max_positions if model.positions == "learned" else 0
    matrices = 1 if model.tied_embeddings else 3
    return (
        (matrices * model.vocab_size + learned) * model.d_model
        + model.vocab_size * model.logits_bias
        + 2 * norm * model.norm_first
        + model.layers_of("encoder") * (attention + feed_forward + 2 * norm)
        + model.layers_of("decoder") * (2 * attention + feed_forward + 3 * norm)
    )


def step_flops(
    model: ModelConfig, batch: int, source_length: int, target_length: int
) -> int:
    """Count the FLOPs of a training step on ids `(B, S)` and `(B, T)`.

    The backward pass has two products for each of the forward pass, one for the
    gradient of either factor. The rule of thumb, 6 FLOPs for each parameter and
    target token, comes within 1 % of it for `base` at S = T = 32.
    """
    return 3 * forward_flops(model, batch, source_length, target_length)


def forward_flops(
    model: ModelConfig, batch: int, source_length: int, target_length: int
) -> int:
    """Count the FLOPs of one call on ids `(B, S)` and `(B, T)`."""
    query, keys_values, output = _projections(model)
    products = target_length * model.d_model * model.vocab_size  # The logits.
    for layers, queries, keys, pairs, _ in _attentions(
        model, source_length, target_length
    ):
        products += layers * (
            queries * (query + output)
            + keys * keys_values
            # Each pair has a score, then a share of a value.
            + pairs * model.num_heads * (model.key_dim + model.value_dim)
        )
    positions = _positions(model, source_length, target_length)
    return 2 * batch * (products + positions * _feed_forward(model))


class Memory(NamedTuple):
    """Bytes that a training step keeps on one device, by their use.

    Attributes:
        weights: The float32 weights, and their copies in half precision.
        gradients: One for each weight; two if they accumulate.
        moments: Adam's two moments.
        activations: Tensors kept from the forward for the backward pass.
        logits: Two float32 tensors (B, T, V), such as logits and softmax, and
            one in half precision if the products are.
    """

    weights: int
    gradients: int
    moments: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(self)


def memory(
    model: ModelConfig,
    batch: int,
    source_length: int,
    target_length: int,
    precision: str = "float32",
    accumulate: int = 1,
) -> Memory:
    """Estimate the peak memory of a training step on one replica.

    `batch` counts the replica's rows, which `accumulate` micro-batches share.
    `precision` is a Keras dtype policy.

    The memory of the runtime and its allocator comes on top. On the CPU, in
    float32, the estimate came within a seventh of what processes took.
    """
    half = precision != "float32"
    width = 2 if half else 4  # Bytes of a number the layers pass on.
    count = parameters(model)
    rows = -(-batch // accumulate)
    keys_width = model.num_heads * model.key_dim
    values_width = model.num_heads * model.value_dim
    # Dropout keeps its mask, a byte each. The norm keeps its output and the
    # normed rows before gain and bias, which are float32 under every policy.
    residual = model.d_model * (1 + 4 + width)
    kept = (source_length + target_length) * model.d_model * (1 + width)
    for layers, queries, keys, pairs, looks in _attentions(
        model, source_length, target_length
    ):
        kept += layers * (
            queries * (width * (keys_width + values_width) + residual)
            # Keys count twice: split into heads, and transposed for the scores.
            + looks * keys * width * (2 * keys_width + values_width)
            # The weights are float32, and cast if the values are half.
            + pairs * model.num_heads * (6 if half else 4)
        )
    positions = _positions(model, source_length, target_length)
    kept += positions * (residual + model.ffn_dim * width)
    return Memory(
        weights=count * (4 + (2 if half else 0)),
        gradients=4 * count * (2 if accumulate > 1 else 1),
        moments=8 * count,
        activations=rows * kept,
        logits=rows * target_length * model.vocab_size * (10 if half else 8),
    )


class _Attentions(NamedTuple):
    """What the attentions of one kind weigh in a row of a batch."""

    layers: int
    queries: int
    keys: int
    pairs: int
    looks: int = 1  # Blocks that hold a key, with a restriction.


def _attentions(
    model: ModelConfig, source_length: int, target_length: int
) -> Iterator[_Attentions]:
    """Describe the self-attentions, then that to the encoder's output."""
    for stack, length, blocks in (
        ("encoder", source_length, 3),
        ("decoder", target_length, 2),
    ):
        layers, pairs, looks = model.layers_of(stack), length**2, 1
        if model.restriction:  # A block looks at itself and its neighbours.
            size = min(length, model.restriction)
            pairs, looks = -(-length // size) * blocks * size**2, blocks
        yield _Attentions(layers, length, length, pairs, looks)
    pairs = target_length * source_length
    yield _Attentions(layers, target_length, source_length, pairs)


def _positions(model: ModelConfig, source: int, target: int) -> int:
    """Count the positions of a row in all layers."""
    return (
        model.layers_of("encoder") * source
        + model.layers_of("decoder") * target
    )


def _projections(model: ModelConfig) -> tuple[int, int, int]:
    """Count the weights of the query's, keys' and values', and output's."""
    keys = model.d_model * model.num_heads * model.key_dim
    values = model.d_model * model.num_heads * model.value_dim
    return keys, keys + values, values


def _feed_forward(model: ModelConfig) -> int:
    """Count the weights of both matrices of equation 2."""
    return 2 * model.d_model * model.ffn_dim
