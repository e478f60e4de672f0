"""Keeps a search to whole characters where pieces stand for single bytes.

A vocabulary with byte pieces can write any character, as its bytes in UTF-8.
The last three tokens say which byte may come next; any other token may come
where no character is open.

Axes: B batch, W beams, V vocabulary, C candidates of a step, t tokens.
"""

import codecs
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# What all tokens but byte pieces count as.
_NO_BYTE = 256
# For each state, bytes that lead to it: nothing is open, or one more byte is
# missing, or two or three of which the first has a narrower range.
_STATES = (b"", b"\xc3", b"\xe0", b"\xed", b"\xf0", b"\xf4")
_ONE_MORE = np.int64(1)


def _goes_on(begun: bytes) -> bool:
    """Return whether bytes begin a text in UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return "\ufffd" not in decoder.decode(begun)


def _make_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    may_follow = np.zeros([len(_STATES), _NO_BYTE + 1], bool)
    may_follow[0, _NO_BYTE] = True
    state_after = np.zeros([_NO_BYTE + 1], np.int64)
    length = np.zeros([_NO_BYTE + 1], np.int64)
    for byte in range(_NO_BYTE):
        for state, begun in enumerate(_STATES):
            may_follow[state, byte] = _goes_on(begun + bytes([byte]))
        if byte >= 0x80 and may_follow[0, byte]:
            lead = bytes([byte])
            state_after[byte] = _STATES.index(lead) if lead in _STATES else 1
            length[byte] = 2 + (byte >= 0xE0) + (byte >= 0xF0)
    return may_follow, state_after, length


# Whether a byte may come in a state; the state after a byte that begins a
# character, else 0; and the bytes of the character that it begins, else 0.
_MAY_FOLLOW, _STATE_AFTER, _LENGTH = _make_tables()


def byte_table(byte_ids: Sequence[int], vocab_size: int) -> np.ndarray | None:
    """Return the byte that each token stands for, int64 `(V,)`.

    It is None where a vocabulary has no pieces of the 256 bytes.
    """
    if not byte_ids:
        return None
    byte_of = np.full([vocab_size], _NO_BYTE, np.int64)
    byte_of[list(byte_ids)] = np.arange(_NO_BYTE)
    return byte_of


def may_follow(
    byte_of: tf.Tensor, ids: tf.Tensor, position: tf.Tensor
) -> tf.Tensor:
    """Say which bytes may come after `ids` `(B, W, 1 + t)`, start token first.

    The last one of `(B, W, 257)` is what stands for no byte. The `position` is
    that of the newest token, t.
    """
    # Before the start token comes the start token, which is no byte.
    places = tf.maximum(position - [0, 1, 2], 0)
    last = tf.gather(byte_of, tf.gather(ids, places, axis=2))
    newest, second, third = tf.unstack(last, axis=2)  # (B, W)
    lengths = tf.gather(_LENGTH, second), tf.gather(_LENGTH, third)
    is_open = (lengths[0] > 2) | (lengths[1] > 3)
    is_open &= ~tf.gather(_MAY_FOLLOW[0], newest)
    state = tf.where(is_open, _ONE_MORE, tf.gather(_STATE_AFTER, newest))
    return tf.gather(_MAY_FOLLOW, state)


def any_broken(
    byte_of: tf.Tensor,
    ids: tf.Tensor,
    position: tf.Tensor,
    parents: tf.Tensor,
    tokens: tf.Tensor,
) -> tf.Tensor:
    """Return whether a candidate `(B, C)` breaks a character of its beam."""

    def look() -> tf.Tensor:
        follows = may_follow(byte_of, ids, position)
        follows = tf.gather(follows, parents, batch_dims=1)  # (B, C, 257)
        # Not `tf.gather_nd`, which has no kernel for bool on GPUs.
        added = tf.gather(byte_of, tokens)[:, :, None]
        return ~tf.reduce_all(tf.gather(follows, added, batch_dims=2))

    # Mostly there is no byte, neither the newest token nor a candidate.
    near = tf.gather(byte_of, tf.concat([ids[:, :, -1], tokens], axis=1))
    return tf.cond(tf.reduce_any(near < _NO_BYTE), look, lambda: False)


def without_broken(
    byte_of: tf.Tensor, ids: tf.Tensor, position: tf.Tensor, logits: tf.Tensor
) -> tf.Tensor:
    """Set to -inf what breaks a character, unless that leaves nothing."""
    follows = may_follow(byte_of, ids, position)
    fits = tf.gather(follows, byte_of, axis=2)  # (B, W, V)
    whole = tf.where(fits, logits, -float("inf"))
    is_left = tf.reduce_any(tf.math.is_finite(whole), axis=2, keepdims=True)
    return tf.where(is_left, whole, logits)
