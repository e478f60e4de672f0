"""The steps of a Transformer for `beam_search`, with nothing copied.

Each position writes one slot per beam into the caches of its sentence, in
place, and every key and value stays there. As beams branch, only a mask moves:
it leaves each beam the slots of its ancestors. That costs less than reordering
the caches by parent beam.

Where self-attention is restricted to the last r positions, the slots form a
ring: a position overwrites the one that can no longer be seen.

Axes: B batch, W beams, H heads, t slots, S source length, K key width, U value
width.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.decoding.beam_search import Shared
from keras_transformer.model import Transformer


class CachedSteps:
    """All that `beam_search` needs to write with a `Transformer`.

    Args:
        model: The model.
        source: int32 `(B, S)`, EOS last.
        beam_size: W.
        words: The only pieces to write, and what to add to their logits, both
            `(K,)`; the search then knows each by its place among them.

    Attributes:
        state: The slots of each beam's ancestors, bool `(B, W, t)`; a ring
            has slots for r positions only.
        shared: Caches, projected memory and source mask of each sentence.
        empty_cache: The state of the first call of `append`.
    """

    def __init__(
        self,
        model: Transformer,
        source: tf.Tensor,
        beam_size: int,
        words: tuple[tf.Tensor, tf.Tensor] | None = None,
    ) -> None:
        self._model = model
        self._beam_size = beam_size
        self._ring = model.model_config.restriction  # r, or None.
        batch = source.shape[0] or tf.shape(source)[0]
        memory, source_mask = model.encode(source, training=False)
        self._words = words
        self._scorer = model.embedding.scorer(*(words or ()))
        self.empty_cache = model.empty_cache(batch)
        self.state = tf.zeros([batch, beam_size, 0], tf.bool)
        self.shared = Shared(
            {
                "cache": self.empty_cache,
                # Once for each sentence, not for each beam or step.
                "cross": model.cross_keys_values(memory),
                "source_mask": source_mask,
            },
            self._extend,
        )

    def step(
        self, ids: tf.Tensor, position: tf.Tensor, state: Any, shared: Any
    ) -> tuple[tf.Tensor, Any, Any]:
        """Compute the next logits, as `beam_search` asks for them."""
        ids = self._whole_vocabulary(ids)
        beams = self._beam_size
        new = np.eye(beams, dtype=bool)[None]
        new = tf.tile(new, [tf.shape(ids)[0], 1, 1])
        place = position
        own = tf.concat([state, new], axis=2)  # (B, W, t)
        if self._ring is not None:
            place = position % self._ring
            first, last = place * beams, (place + 1) * beams
            # Until the ring is full, nothing comes after what is written.
            parts = [state[:, :, :first], new, state[:, :, last:]]
            own = tf.concat(parts, axis=2)
        keys = shared["cache"][0][0]
        room = tf.shape(keys)[2] - tf.shape(own)[2]
        logits, cache = self._model.decode_step(
            ids,
            position,
            shared["cache"],
            shared["cross"],
            shared["source_mask"],
            own=tf.pad(own, [[0, 0], [0, 0], [0, room]]),
            write=writer(keys, place, beams),
            scorer=self._scorer,
        )
        return logits, own, {**shared, "cache": cache}

    def append(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, Any]:
        """Make a step whose beams never branch, as `sample` calls it.

        The state starts as `model.empty_cache` and grows with every token, up
        to the positions that a restriction leaves to see.
        """
        return self._model.decode_step(
            self._whole_vocabulary(ids),
            position,
            cache,
            self.shared.state["cross"],
            self.shared.state["source_mask"],
            scorer=self._scorer,
        )

    def _whole_vocabulary(self, ids: tf.Tensor) -> tf.Tensor:
        """Turn ids of the search into ids of the model."""
        ids = tf.cast(ids, tf.int64)  # As the search keeps them.
        return ids if self._words is None else tf.gather(self._words[0], ids)

    def _extend(self, shared: Any, steps: tf.Tensor) -> Any:
        """Make room for that many more steps, or for the whole ring."""
        if self._ring is not None:
            slots = tf.shape(shared["cache"][0][0])[2]
            steps = tf.minimum(steps, self._ring - slots // self._beam_size)
        more = steps * self._beam_size
        return {
            **shared,
            "cache": tf.nest.map_structure(
                lambda slots: extended(slots, more), shared["cache"]
            ),
        }


def extended(slots: tf.Tensor, more: int | tf.Tensor) -> tf.Tensor:
    """Make room: `(B, H, t, K)` to `(B, H, t + more, K)`, always a new tensor.

    TensorFlow's optimiser takes `Empty` for stateful and leaves it alone. It
    would fold zeros into one constant, and what is written in place into a
    constant is still there in the next run, and in every cache.
    """
    batch, heads, _, width = tf.unstack(tf.shape(slots))
    room = tf.raw_ops.Empty(
        shape=[batch, heads, more, width], dtype=slots.dtype, init=True
    )
    return tf.concat([slots, room], axis=2)


def writer(
    slots: tf.Tensor, position: tf.Tensor, beams: int
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Make the function that writes a position's W slots `(B, H, W, K)`.

    It fits every tensor whose shape is that of `slots` but for the last axis.

    `InplaceUpdate` writes into its input, so nothing may read that afterwards:
    every cache goes straight from one write to the next.
    """
    batch, heads, size, _ = tf.unstack(tf.shape(slots))
    # One row of memory holds a position's W slots of one (sentence, head).
    rows = tf.range(batch * heads) * (size // beams) + position

    def write(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        width = beams * new.shape[3]
        written = tf.raw_ops.InplaceUpdate(
            x=tf.reshape(old, [-1, width]),
            i=rows,
            v=tf.reshape(new, [-1, width]),
        )
        return tf.reshape(written, tf.shape(old))

    return write
