"""The steps of a Transformer for `beam_search`, with nothing copied.

Each position writes one slot a beam into the caches of its sentence, in place,
and there every key and value stays. What moves as beams branch is a mask that
leaves each beam the slots of its ancestors, which costs less than to reorder
the caches by parent beam.

Where self-attention is restricted to the last r positions, these are a ring: a
position overwrites the one that nobody may see any more.

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
    """What `beam_search` needs to write with a `Transformer`.

    Args:
        model: The model.
        source: int32 `(B, S)`, EOS last.
        beam_size: W.

    Attributes:
        state: The slots of each beam's ancestors, bool `(B, W, t)`, of which
            a ring has those of r positions.
        shared: Caches, projected memory and source mask of each sentence.
    """

    def __init__(
        self, model: Transformer, source: tf.Tensor, beam_size: int
    ) -> None:
        self._model = model
        self._beam_size = beam_size
        self._ring = model.model_config.restriction  # Positions, or None.
        batch = tf.shape(source)[0]
        memory, source_mask = model.encode(source, training=False)
        # Transposed once for the whole search: faster in every step.
        self._output_kernel = model.embedding.output_kernel()
        self.state = tf.zeros([batch, beam_size, 0], tf.bool)
        self.shared = Shared(
            {
                "cache": model.empty_cache(batch),
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
        ids = tf.cast(ids, tf.int64)  # As the search keeps them.
        beams = self._beam_size
        new = np.eye(beams, dtype=bool)[None]
        new = tf.tile(new, [tf.shape(ids)[0], 1, 1])
        place = position
        own = tf.concat([state, new], axis=2)  # (B, W, t)
        if self._ring is not None:
            place = position % self._ring
            first, last = place * beams, (place + 1) * beams
            # Before the ring is full nothing comes after what is written.
            own = tf.concat(
                [state[:, :, :first], new, state[:, :, last:]], axis=2
            )
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
            output_kernel=self._output_kernel,
        )
        return logits, own, {**shared, "cache": cache}

    def append(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, Any]:
        """A step whose beams never branch, as `sample` calls it.

        The state is `model.empty_cache` and grows by what is written, up to
        what a restriction leaves to see.
        """
        return self._model.decode_step(
            tf.cast(ids, tf.int64),
            position,
            cache,
            self.shared.state["cross"],
            self.shared.state["source_mask"],
            output_kernel=self._output_kernel,
        )

    def _extend(self, shared: Any, steps: tf.Tensor) -> Any:
        """Caches with room for so many more steps, or for the whole ring."""
        if self._ring is not None:
            slots = tf.shape(shared["cache"][0][0])[2]
            steps = tf.minimum(steps, self._ring - slots // self._beam_size)
        more = steps * self._beam_size
        return {
            **shared,
            "cache": tf.nest.map_structure(
                lambda slots: extended(slots, more),
                shared["cache"],
            ),
        }


def extended(slots: tf.Tensor, more: int | tf.Tensor) -> tf.Tensor:
    """Make room: `(B, H, t, K)` to `(B, H, t + more, K)`, always a new tensor.

    `Empty` has a state as far as TensorFlow's optimiser knows. Zeros would be
    folded into one constant, and what is written in place into a constant is
    there in the next run too, and in every cache.
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

    It is for all tensors of the size of `slots` but for their last axis.

    `InplaceUpdate` writes into its input, so nobody may read that afterwards:
    every cache goes from one write to the next alone.
    """
    batch, heads, size, _ = tf.unstack(tf.shape(slots))
    # A row of memory for each (sentence, head), the slots of its W beams.
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
