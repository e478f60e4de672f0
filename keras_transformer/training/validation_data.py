"""What a validation reads: every pair of the split, cut where it is too long.

One line of a whole book in the validation split would ask for attention of
book × book tokens. It is cut as the translator cuts its sources, never dropped.

Axes: B rows of a batch, S source length, T target length.
"""

import logging

import numpy as np
import tensorflow as tf

from keras_transformer.config import EOS_ID, PAD_ID, Search
from keras_transformer.data import batching
from keras_transformer.translation.text_batches import numbered

logger = logging.getLogger("keras_transformer")


def validation_batches(
    corpus: batching.TokenisedCorpus,
    batch_tokens: int,
    longest_source: int,
    split: str,
    max_extra_length: int = Search.max_extra_length,
) -> tf.data.Dataset:
    """Stream every pair once, and say on the log which are cut.

    Args:
        corpus: The pairs, in the order of the split.
        batch_tokens: As for `evaluation_batches`.
        longest_source: Tokens, end token included, after which a source is
            cut. A target is cut where a translation of the longest source has
            to end.
        split: What the log calls the pairs.
        max_extra_length: Most tokens of a translation beyond its source's.

    Returns:
        Dataset in the form of `evaluation_batches`, S at most `longest_source`
        and T at most `max_extra_length` more wherever a pair has to be cut.
    """
    longest_target = longest_source + max_extra_length
    batches = batching.evaluation_batches(corpus, batch_tokens)
    is_long = (np.asarray(corpus.source_lengths) > longest_source) | (
        np.asarray(corpus.target_lengths) > longest_target
    )
    if not is_long.any():
        return batches
    logger.warning(
        "%s: %d of %d pairs are cut in every validation, after %d tokens of "
        "the source and %d of the target: line %s.",
        split,
        is_long.sum(),
        len(is_long),
        longest_source,
        longest_target,
        numbered(is_long),
    )

    def cut(
        inputs: tuple[tf.Tensor, tf.Tensor], target: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        source, target_in = inputs
        return (
            (cut_rows(source, longest_source), target_in[:, :longest_target]),
            cut_rows(target, longest_target),
        )

    return batches.map(cut)


def cut_rows(ids: tf.Tensor, longest: int) -> tf.Tensor:
    """Shorten the longer rows of `(B, L)` to `longest` ids, EOS still last."""
    is_long = tf.reduce_any(ids[:, longest:] != PAD_ID, axis=1)  # (B,)
    kept = ids[:, :longest]
    last = tf.where(is_long, EOS_ID, kept[:, -1])
    return tf.concat([kept[:, :-1], last[:, None]], axis=1)
