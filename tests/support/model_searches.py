"""Searches with a small model: with its caches, and with whole prefixes."""

import numpy as np
import tensorflow as tf

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.cached_steps import CachedSteps

VOCAB = 23
SOURCE = np.array(
    [
        [5, 7, 9, 11, 3, 0, 0],
        [6, 3, 0, 0, 0, 0, 0],
        [22, 21, 20, 19, 18, 17, 3],
        [8, 4, 3, 0, 0, 0, 0],
        [13, 3, 0, 0, 0, 0, 0],
    ],
    "int32",
)
# The search looks for finished sentences before steps 0, 4, 8, 12, 16, 20, 25
# and 31: these leave after the blocks 1, 2, 5 and 8, most of them within one.
LIMITS = np.array([37, 2, 19, 33, 7], "int32")


def search_with(
    model, source, limits, beam_size, search=beam_search, **options
):
    steps = CachedSteps(model, source, beam_size)
    return search(
        steps.step,
        steps.state,
        shared=steps.shared,
        max_lengths=limits,
        beam_size=beam_size,
        **options,
    )


def graph_of(model, beam_size, **options):
    def search(source, limits):
        return search_with(model, source, limits, beam_size, **options)

    shapes = [None, None], [None]
    return tf.function(
        search,
        input_signature=[tf.TensorSpec(shape, tf.int32) for shape in shapes],
        autograph=False,
    )


def search_graph(id_model, options, inputs=1, **given):
    """A graph of a source, and of a prefix, for an `IdModel`."""
    return tf.function(
        lambda *ids: id_model.search_ids(ids[0], options, *ids[1:], **given),
        input_signature=[tf.TensorSpec([None, None], tf.int32)] * inputs,
        autograph=False,
    )


def graph_of_model(model):
    """The whole model, dropout off, for ids of any shape."""
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(
        lambda source, target_in: model((source, target_in), training=False),
        input_signature=[ids, ids],
        autograph=False,
    )


def simple(model, source, limits, beam_size, **options):
    """The same search with a state of whole prefixes and no cache at all."""
    source_of_beams = np.repeat(source, beam_size, axis=0)
    whole_targets = graph_of_model(model)

    def step(ids, position, prefix):
        prefix = tf.concat([prefix, ids[:, :, None]], axis=-1)
        flat = tf.reshape(prefix, [-1, position + 1])
        logits = whole_targets(source_of_beams, flat)[:, -1]
        return tf.reshape(logits, [*ids.shape, model.vocab_size]), prefix

    prefix = tf.zeros([len(source), beam_size, 0], tf.int32)
    return beam_search(
        step, prefix, max_lengths=limits, beam_size=beam_size, **options
    )
