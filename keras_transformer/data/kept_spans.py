"""Puts away what a translation shall leave as it is, and puts it back.

A mark that wants nothing, `<term>{room}<as></term>`, becomes a symbol before
the text becomes pieces. The model writes the symbol where it belongs, and what
was marked takes its place again, byte for byte. Of another mark the model reads
what is wanted, in the place of the words. All this is string operators that
every TensorFlow has, so that a SavedModel does it too.

Axes: B texts, K symbols, N hypotheses of a text.
"""

import tensorflow as tf

from keras_transformer.data.pieces import AS, END, KEPT, TERM

# Of control characters no text has: what wants nothing ends with the first, the
# middle of another mark is the second.
_NOTHING, _SOMETHING = "\x01", "\x02"
_SPAN = f"{TERM}([^{_NOTHING}{_SOMETHING}]*){_NOTHING}"
_REPLACED = f"{TERM}[^{_NOTHING}{_SOMETHING}]*{_SOMETHING}"


def put_away(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return texts `(B,)` with symbols, and what they stand for `(B, K)`.

    Further spans stand in the text as they are.
    """
    text = tf.strings.regex_replace(text, AS + END, _NOTHING)
    text = tf.strings.regex_replace(text, AS, _SOMETHING)
    kept = []
    for symbol in KEPT:
        around = f"(?s).*?{_SPAN}.*"
        is_there = tf.strings.regex_full_match(text, around)
        span = tf.strings.regex_replace(text, around, r"\1")
        kept.append(tf.where(is_there, span, ""))
        text = tf.strings.regex_replace(text, _SPAN, symbol, False)
    text = tf.strings.regex_replace(text, _SPAN, r"\1")
    text = tf.strings.regex_replace(text, _REPLACED, TERM)
    text = tf.strings.regex_replace(text, _SOMETHING, AS)
    return text, tf.stack(kept, axis=1)


def put_back(text: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """Write what symbols stand for `(B, K)` into translations `(B, N)`."""
    shape = tf.shape(text, tf.int64)
    flat = tf.reshape(text, [-1])
    for number, symbol in enumerate(KEPT):
        parts = tf.strings.split(flat, symbol)
        rows = parts.value_rowids()
        span = tf.gather(kept[:, number], rows // shape[1])
        is_last = tf.concat([rows[1:] != rows[:-1], [True]], axis=0)
        values = parts.values + tf.where(is_last, "", span)
        flat = tf.strings.unsorted_segment_join(values, rows, parts.nrows())
    return tf.reshape(flat, shape)
