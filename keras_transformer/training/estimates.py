"""Estimates parameters, arithmetic and memory of a training step from shapes.

It is pure Python: you need no GPU for an estimate for eight.

Conventions of the arithmetic: a multiply-add is two floating-point operations
(FLOPs). Only matrix products count, including those of attention and logits; a
look-up costs nothing. The backward pass has two products for each of the
forward pass, one for the gradient of either factor, so a step costs three times
its forward pass. Padding counts: a machine multiplies it too.

Axes: B batch, S source length, T target length.
"""

from typing import NamedTuple

from keras_transformer.config import ModelConfig


def parameters(model: ModelConfig) -> int:
    """Count the trainable numbers of a model (section 3).

    The matrix is tied. The attention's projections and the logits have a bias,
    and the stacks a last norm, only if the model asks for them. The
    feed-forward network has biases, and every norm gain and bias.
    """
    query, keys_values, output = _projections(model)
    attention = query + keys_values + output
    if model.attention_bias:
        attention += model.num_heads * model.key_dim + model.d_model
    feed_forward = _feed_forward(model) + model.ffn_dim + model.d_model
    norm = 2 * model.d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    # Learned positions have a table for each side.
    learned = 2 * model.max_positions if model.positions == "learned" else 0
    matrices = 1 if model.tied_embeddings else 3
    embedding = (matrices * model.vocab_size + learned) * model.d_model
    if model.logits_bias:
        embedding += model.vocab_size
    if model.norm_first:
        embedding += 2 * norm
    return embedding + _stacks(model, encoder_layer, decoder_layer)


def _stacks(model: ModelConfig, encoder_layer: int, decoder_layer: int) -> int:
    """Add up all layers, given the size of one in each stack."""
    return (
        model.layers_of("encoder") * encoder_layer
        + model.layers_of("decoder") * decoder_layer
    )


def forward_flops(
    model: ModelConfig, batch: int, source_length: int, target_length: int
) -> int:
    """Count the FLOPs of one call on ids `(B, S)` and `(B, T)`."""
    source, target = batch * source_length, batch * target_length
    query, keys_values, output = _projections(model)

    def attention(queries: int, keys: int, pairs: int) -> int:
        """Count multiply-adds, from B·T queries, B·S keys and their pairs."""
        # Each pair has a score, then a share of a value.
        return (
            queries * (query + output)
            + keys * keys_values
            + pairs * model.num_heads * (model.key_dim + model.value_dim)
        )

    lengths = (source_length, target_length)
    encoder_pairs, decoder_pairs = self_attention_pairs(model, *lengths)
    encoder_layer = attention(
        source, source, batch * encoder_pairs
    ) + source * _feed_forward(model)
    decoder_layer = (
        attention(target, target, batch * decoder_pairs)
        + attention(target, source, target * source_length)
        + target * _feed_forward(model)
    )
    logits = target * model.d_model * model.vocab_size
    layers = _stacks(model, encoder_layer, decoder_layer)
    return 2 * (layers + logits)


def step_flops(
    model: ModelConfig, batch: int, source_length: int, target_length: int
) -> int:
    """Count the FLOPs of a training step on ids `(B, S)` and `(B, T)`.

    It takes a forward and a backward pass, in the conventions of this module.
    The rule of thumb, 6 FLOPs for each parameter and target token, comes within
    1 % of it for `base` at S = T = 32.
    """
    return 3 * forward_flops(model, batch, source_length, target_length)


def self_attention_pairs(
    model: ModelConfig, source_length: int, target_length: int
) -> tuple[int, int]:
    """Count the pairs of query and key that a row's self-attention weighs.

    With a restriction, a block of positions looks at three blocks in the
    encoder and at two in the decoder.

    Returns:
        The pairs of an encoder layer and of a decoder layer.
    """
    if model.restriction is None:
        return source_length**2, target_length**2

    def pairs(length: int, looked_at: int) -> int:
        size = min(length, model.restriction or length)
        return -(-length // size) * looked_at * size**2

    return pairs(source_length, 3), pairs(target_length, 2)


def _projections(model: ModelConfig) -> tuple[int, int, int]:
    """Count the weights of the query's, keys' and values', and output's."""
    keys = model.d_model * model.num_heads * model.key_dim
    values = model.d_model * model.num_heads * model.value_dim
    return keys, keys + values, values


def _feed_forward(model: ModelConfig) -> int:
    """Count the weights of both matrices of equation 2."""
    return 2 * model.d_model * model.ffn_dim


class Memory(NamedTuple):
    """Bytes that a training step keeps on one device, by their use.

    Attributes:
        weights: The float32 weights, their copies in half precision, and
            their moving average.
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
    ema: bool = False,
) -> Memory:
    """Estimate the peak memory of a training step on one replica.

    `batch` counts the replica's rows, which `accumulate` micro-batches share.
    `precision` is a Keras dtype policy; `ema` says whether a moving average of
    the weights is kept.

    The memory of the runtime and its allocator comes on top. On the CPU, in
    float32, the estimate came within a seventh of what processes took.
    """
    half = precision != "float32"
    width = 2 if half else 4  # Bytes of a number the layers pass on.
    count = parameters(model)
    rows = -(-batch // accumulate)
    source, target = rows * source_length, rows * target_length
    d_model = model.d_model
    keys = model.num_heads * model.key_dim
    values = model.num_heads * model.value_dim
    # Dropout keeps its mask, a byte each. The norm keeps its output and the
    # normed rows before gain and bias, which are float32 under every policy.
    residual = d_model * (1 + 4 + width)
    feed_forward = residual + model.ffn_dim * width

    def attention(queries: int, memory: int, pairs: int) -> int:
        # Keys count twice: split into heads, and transposed for the scores.
        kept = queries * (keys + values) + memory * (2 * keys + values)
        # The weights are float32, and cast if the values are half.
        weights = pairs * model.num_heads * (4 + (width if half else 0))
        return width * kept + weights + queries * residual

    # With a restriction, three blocks look at each position, or two.
    looks = (1, 1) if model.restriction is None else (3, 2)
    lengths = (source_length, target_length)
    encoder_pairs, decoder_pairs = self_attention_pairs(model, *lengths)
    encoder_layer = (
        attention(source, looks[0] * source, rows * encoder_pairs)
        + source * feed_forward
    )
    decoder_layer = (
        attention(target, looks[1] * target, rows * decoder_pairs)
        + attention(target, source, target * source_length)
        + target * feed_forward
    )
    embedded = (source + target) * d_model * (1 + width)
    logits = target * model.vocab_size
    return Memory(
        weights=count * (4 + (2 if half else 0) + (4 if ema else 0)),
        gradients=4 * count * (2 if accumulate > 1 else 1),
        moments=8 * count,
        activations=_stacks(model, encoder_layer, decoder_layer) + embedded,
        logits=logits * (8 + (2 if half else 0)),
    )
