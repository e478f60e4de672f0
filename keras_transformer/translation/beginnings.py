"""The texts that translations begin with, as the tokens that may spell them.

A text may end inside a word: "dreihundertz" may go on as "dreihundertzwei". So
a translation begins with the tokens of the text, but in place of any of them a
piece may stand that begins with all the text from there on, such as "zwei".

The pieces that begin with a text stand next to each other in alphabetical
order. Their first and last places are looked up by a hash of the text, because
a graph cannot compare strings by order, and a table would be a resource.

Axes: B batch, P tokens of the longest text, N tokens near the ends of texts.
"""

import numpy as np
import tensorflow as tf

from keras_transformer.config import EOS_ID
from keras_transformer.data.symbols import SPACE, SPECIAL
from keras_transformer.data.tokenizer import Tokenizer

_HASHES = 2**62


class Beginnings:
    """Tokenizes the beginnings of translations.

    Args:
        tokenizer: Of target texts.

    Attributes:
        places: The place of each piece in alphabetical order, int64 `(V,)`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        names = tokenizer.pieces(range(tokenizer.vocab_size))
        # No text begins with the name of an id or a byte. Where a space must
        # follow, a translation may also end.
        spelled = [
            name if name == SPACE or not SPECIAL.fullmatch(name) else ""
            for name in names
        ]
        self._space_ids = [i for i, name in enumerate(names) if name == SPACE]
        spelled[EOS_ID] = SPACE
        self._names = np.array([name.encode() for name in names], object)
        self._longest = max(map(len, spelled))
        order = np.array(sorted(range(len(names)), key=spelled.__getitem__))
        self.places = np.argsort(order)
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for place, piece_id in enumerate(order):
            name = spelled[piece_id]
            for end in range(1, len(name) + 1):
                first.setdefault(name[:end], place)
                last[name[:end]] = place
        with tf.init_scope():
            hashes = _hashed(tf.constant(list(first))).numpy()
        by_hash = np.argsort(hashes)
        self._hashes = hashes[by_hash]
        # (texts, 2), in the order of their hashes.
        self._ranges = np.array(
            [*zip(first.values(), last.values(), strict=True)]
        )[by_hash]

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenize texts `(B,)`.

        Returns:
            Ragged int32 `(B, None, 3)`: each token, and the places of the
            first and the last piece that may stand there instead; 0 and -1
            if there are none.
        """
        ids = self._tokenizer.tokenize(texts)[:, :-1]
        if self._space_ids:  # After a space, the last word is whole.
            is_whole = tf.strings.regex_full_match(texts, r"(?s).*\s")
            is_whole &= ids.row_lengths() > 0
            spaces = tf.fill([tf.size(texts), 1], self._space_ids[0])
            spaces = tf.ragged.boolean_mask(spaces, is_whole[:, None])
            ids = tf.concat([ids, spaces], axis=1)
        # No piece begins with all that is left further from the end.
        head, tail = ids[:, : -self._longest], ids[:, -self._longest :]
        return tf.concat(
            [closed(head), _beside(tail, self._ranges_of(tail))], axis=1
        )

    def _ranges_of(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Find the pieces that begin with all from each token on, `(N, 2)`."""
        names = ids.with_values(tf.gather(self._names, ids.values))
        texts = tf.gather(
            tf.strings.reduce_join(names, axis=1), ids.value_rowids()
        )
        lengths = tf.strings.length(names.values)
        starts = tf.cumsum(lengths, exclusive=True)
        of_rows = tf.gather(
            tf.concat([starts, [0]], axis=0), ids.row_starts()
        )  # A row without tokens has no place for it.
        starts -= tf.gather(of_rows, ids.value_rowids())
        left = tf.strings.substr(texts, starts, tf.strings.length(texts))
        hashes = _hashed(left)
        places = tf.searchsorted(self._hashes, hashes)
        places = tf.minimum(places, len(self._hashes) - 1)
        is_known = tf.gather(self._hashes, places) == hashes
        ranges = tf.cast(tf.gather(self._ranges, places), tf.int32)
        return tf.where(is_known[:, None], ranges, [[0, -1]])


def closed(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Let nothing stand in place of tokens, ragged `(B, None, 3)`."""
    return _beside(ids, tf.tile([[0, -1]], [tf.size(ids.values), 1]))


def _hashed(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(texts, _HASHES)


def _beside(ids: tf.RaggedTensor, ranges: tf.Tensor) -> tf.RaggedTensor:
    """Put a range after each token, ragged `(B, None, 3)`."""
    return ids.with_values(tf.concat([ids.values[:, None], ranges], axis=1))
