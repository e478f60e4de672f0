"""Puts away what marks want in a translation, and puts it back.

A mark such as `<term>lamp<as>Leuchte</term>` becomes a symbol before the text
becomes pieces, and what is wanted follows it: `<kept0> Leuchte</term>`. With
nothing wanted, as in `<term>{room}<as></term>`, the words stay as they are. The
model writes the symbol where it belongs, and what it stands for takes its place
again, byte for byte. All this is string operators that every TensorFlow has, so
that a SavedModel does it too.

Axes: B texts, K symbols, N hypotheses of a text.
"""

import tensorflow as tf

from keras_transformer.data.pieces import AS, END, KEPT, TERM

# Control characters, which texts hardly have: they end what is marked, the
# first where nothing is wanted.
_NOTHING, _SOMETHING = "\x01", "\x02"
_WORDS = f"([^{_NOTHING}{_SOMETHING}]*?)"
_MARK = f"{TERM}{_WORDS}(?:{_NOTHING}|{_SOMETHING}{_WORDS}{END})"


def put_away(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return texts `(B,)` with symbols, and what they stand for `(B, K)`.

    Of further marks the words stay in the text.
    """
    text = tf.strings.regex_replace(text, AS + END, _NOTHING)
    text = tf.strings.regex_replace(text, AS, _SOMETHING)
    around, kept = f"(?s).*?{_MARK}.*", []
    for symbol in KEPT:
        words = tf.strings.regex_replace(text, around, r"\1")
        wanted = tf.strings.regex_replace(text, around, r"\2")
        span = tf.where(wanted == "", words, wanted)
        is_there = tf.strings.regex_full_match(text, around)
        kept.append(tf.where(is_there, span, ""))
        written = rf"{symbol} \2{END}"
        text = tf.strings.regex_replace(text, _MARK, written, False)
    text = tf.strings.regex_replace(text, _MARK, r"\1")
    text = tf.strings.regex_replace(text, _SOMETHING, AS)
    return text, tf.stack(kept, axis=1)


def put_back(text: tf.Tensor, kept: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Write what symbols stand for `(B, K)` into translations `(B, N)`.

    Returns:
        The texts, and how often each one leaves a mark out or writes a symbol
        too many, int64 `(B, N)`.
    """
    shape = tf.shape(text, tf.int64)
    flat = tf.reshape(text, [-1])
    faults = tf.zeros_like(flat, tf.int64)
    for number, symbol in enumerate(KEPT):
        parts = tf.strings.split(flat, symbol)
        rows = parts.value_rowids()
        spans = tf.repeat(kept[:, number], shape[1])
        times = tf.cast(spans != "", tf.int64)
        faults += tf.abs(parts.row_lengths() - 1 - times)
        is_last = tf.concat([rows[1:] != rows[:-1], [True]], axis=0)
        values = parts.values + tf.where(is_last, "", tf.gather(spans, rows))
        flat = tf.strings.unsorted_segment_join(values, rows, parts.nrows())
    return tf.reshape(flat, shape), tf.reshape(faults, shape)
