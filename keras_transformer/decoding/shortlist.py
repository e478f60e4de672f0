"""A shortlist: the only target pieces that a search scores for its sources.

Each source piece has candidates, the pieces that it is likely to become. A
search scores the candidates of all its sources, not the whole vocabulary.

Axes: V vocabulary, C candidates of a piece, B batch, S source length,
P pieces beside them, K words of a search.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import EOS_ID, PAD_ID
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.candidates import CHUNK, NONE, Rules

# What every search may write, with the same ids as in the whole vocabulary.
SPECIAL = EOS_ID + 1


class Words(NamedTuple):
    """The pieces that a search may write, in the order of their ids.

    Attributes:
        ids: int64 `(K,)`, PAD after the last; K is a multiple of `CHUNK`.
        offsets: float32 `(K,)`, added to the logits: 0, or -inf after the last.
    """

    ids: tf.Tensor
    offsets: tf.Tensor

    def places(self, ids: tf.Tensor) -> tf.Tensor:
        """Return where pieces, int32 of any shape, stand in `self.ids`."""
        in_order = tf.boolean_mask(self.ids, self.offsets == 0.0)
        pieces = tf.cast(tf.reshape(ids, [-1]), tf.int64)
        return tf.reshape(tf.searchsorted(in_order, pieces), tf.shape(ids))

    def rules(self, rules: Rules) -> Rules:
        """Return rules for places in `self.ids`."""
        if rules.byte_of is None:
            return rules
        return rules._replace(byte_of=tf.gather(rules.byte_of, self.ids))

    def of_whole_vocabulary(
        self, result: BeamResult, history: Any
    ) -> tuple[BeamResult, Any]:
        """Return what a search found with pieces in place of their places."""
        ids = tf.cast(tf.gather(self.ids, result.ids), tf.int32)
        if history:
            tokens = tf.gather(self.ids, history.tokens)
            history = history._replace(tokens=tokens)
        return result._replace(ids=ids), history


class Shortlist:
    """The candidates of each source piece, integers `(V, C)`, PAD for none.

    The candidates of PAD belong to every source.
    """

    def __init__(self, candidates: np.ndarray) -> None:
        self._candidates = tf.Variable(
            candidates.astype(np.int32), False, name="shortlist"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Shortlist, (self._candidates.numpy(),)

    def words(self, source: tf.Tensor, others: tf.Tensor | None) -> Words:
        """Collect what a search of sources `(B, S)` may write.

        These are the special pieces, the candidates of all sources, and others
        `(B, P)` that it must write.
        """
        size = self._candidates.shape[0]
        pieces = tf.unique(tf.reshape(source, [-1])).y
        candidates = [
            tf.range(SPECIAL),
            self._candidates[PAD_ID],
            tf.reshape(tf.gather(self._candidates.value(), pieces), [-1]),
        ]
        if others is not None:
            candidates.append(tf.reshape(others, [-1]))
        among = tf.concat(candidates, axis=0)[:, None]
        is_in = tf.scatter_nd(among, tf.ones_like(among[:, 0]), [size]) > 0
        ids = tf.where(is_in)[:, 0]  # int64, in order.
        count = tf.size(ids)
        more = tf.maximum(-count % CHUNK, 2 * CHUNK - count)
        offsets = [tf.zeros([count]), tf.fill([more], NONE)]
        return Words(
            tf.concat([ids, tf.zeros([more], tf.int64) + PAD_ID], axis=0),
            tf.concat(offsets, axis=0),
        )
