"""A `Transformer` of restricted self-attention, and what it costs."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import make_model

from keras_transformer.decoding.id_model import IdModel


def graph_bytes(model, side, length):
    """Bytes of all tensors in the graph of a forward pass and its gradient."""
    lengths = (length, 5) if side == "encoder" else (5, length)
    ids = [tf.TensorSpec([2, length], tf.int32) for length in lengths]

    @tf.function(input_signature=ids, autograph=False)
    def both(source, target_in):
        with tf.GradientTape() as tape:
            logits = model((source, target_in))
        stacks = (model.encoder, model.decoder)
        weights = [w for stack in stacks for w in stack.trainable_variables]
        return tape.gradient(logits, weights)

    return sum(
        tensor.shape.num_elements() * tensor.dtype.size
        for operation in both.get_concrete_function().graph.get_operations()
        for tensor in operation.outputs
        if tensor.dtype != tf.resource
    )


def test_attention_to_a_source_keeps_no_weights_of_all_its_pairs():
    model, length = make_model(num_layers=1, restriction=7), 997
    spec = [tf.TensorSpec([1, n], tf.int32) for n in (length, 5)]
    attention = tf.function(IdModel(model).attention_ids, autograph=False)
    graph = attention.get_concrete_function(*spec).graph
    shapes = [x.shape for op in graph.get_operations() for x in op.outputs]
    largest = max(shape.num_elements() or 0 for shape in shapes)
    assert largest < length * length


@pytest.mark.slow
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_memory_grows_linearly_with_the_length(side):
    # Every tensor there is, of which no more can be alive at a time.
    def growth(restriction):
        model = make_model(num_layers=1, restriction=restriction)
        sizes = [graph_bytes(model, side, n) for n in (70, 140, 210)]
        return np.diff(sizes)

    first, second = growth(restriction=7)
    assert first == second
    first, second = growth(restriction=None)
    assert second > 1.2 * first
