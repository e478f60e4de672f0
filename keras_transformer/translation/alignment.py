"""Finds the source words behind a translation: attention and word alignment.

Axes: S source pieces, T target pieces, H heads, L layers.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.languages import words_of
from keras_transformer.settings import whole_number
from keras_transformer.translation.terms import MARK
from keras_transformer.translation.text_batches import (
    IDS,
    Batching,
    batches,
    source_ids,
)

_SPACE = "▁".encode()
_END = b"</s>"
_BYTE = re.compile(rb"<0x[0-9A-F]{2}>")

Links = list[tuple[int, int]]  # Source words with target words, from 0.


class Attention(NamedTuple):
    """The attention of each target piece to each source piece.

    Attributes:
        source_pieces: S pieces, "▁" for a space, the end token "</s>" last.
        target_pieces: T pieces, written in the same way.
        weights: float32 `(L, H, T, S)`; every row of S sums to 1. Row t is the
            attention with which piece t was written.
    """

    source_pieces: list[str]
    target_pieces: list[str]
    weights: np.ndarray

    def mean(self) -> np.ndarray:
        """Average over all layers and heads, float32 `(T, S)`."""
        return self.weights.mean(axis=(0, 1))


def attended(
    translator: Any,
    look: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    pairs: tuple[list[bytes], list[bytes]],
    max_source_length: int | None,
    batch_tokens: int,
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the ids of each pair and its attention, without padding."""
    graph = translator.graph(look.__name__, look, IDS, IDS)
    limits = max_source_length, batch_tokens
    padded = read_pairs(
        translator, lambda *ids: (*ids, graph(*ids)), pairs, *limits
    )
    pad, attentions = translator.tokenizer.ids.pad, []
    for source, target, weights in padded:
        source, target = source[source != pad], target[target != pad]
        own = weights[..., : len(target), : len(source)]
        attentions.append((source, target, own))
    return attentions


def read_pairs(
    translator: Any,
    graph: Callable[..., tuple],
    pairs: tuple[list[bytes], list[bytes]],
    max_source_length: int | None,
    batch_tokens: int,
) -> list[Any]:
    """Call a graph with batches of pairs; return what it says of each."""
    if max_source_length is not None:
        whole_number("max_source_length", max_source_length, least=2)
    batching, tokenizer = Batching(batch_tokens), translator.tokenizer
    source, _ = source_ids(tokenizer, pairs[0], max_source_length)
    target = tokenizer.target.tokenize(pairs[1])
    longest = tf.maximum(source.row_lengths(), target.row_lengths()).numpy()
    rows = np.arange(len(longest))
    planned = batches(rows, longest, longest, batching.batch_tokens)
    results: dict[int, tuple] = {}
    sides, pad_id = (source, target), tokenizer.ids.pad
    for rows, result in batching.run(graph, sides, planned, pad_id):
        of_rows = zip(*(x.numpy() for x in result), strict=True)
        results.update(zip(rows, of_rows, strict=True))
    return [results[row] for row in range(len(longest))]


def align_words(
    attention: np.ndarray,
    source_words: Sequence[Sequence[int]],
    target_words: Sequence[Sequence[int]],
) -> Links:
    """Give each target word the source word that it looked at most.

    The weight between two words is the sum over the pieces of both; a piece
    that several words share counts for each of them in part, and of equal sums
    the first is taken. `attention` is `(T, S)`; for each piece the words that
    it belongs to are given, ascending, and pieces beyond are left out.
    """
    if not len(source_words) or not len(target_words):
        return []
    inner = attention[: len(target_words), : len(source_words)]
    sums = _shares(target_words).T @ inner @ _shares(source_words)
    every = sorted({word for words in target_words for word in words})
    return [(int(sums[word].argmax()), word) for word in every]


def _shares(words: Sequence[Sequence[int]]) -> np.ndarray:
    """Divide each piece among its words, `(pieces, words)`."""
    shares = np.zeros([len(words), max(map(max, words)) + 1])
    for row, of_piece in zip(shares, words, strict=True):
        row[list(of_piece)] = 1 / len(of_piece)
    return shares


def align_pairs(
    attentions: Sequence[np.ndarray],
    tokenizer: Any,
    pairs: tuple[Sequence[bytes], Sequence[bytes]],
    languages: tuple[str, str],
) -> list[Links]:
    """Align the words of each pair of texts by their attention, `(T, S)`.

    A source with a mark of `terms` has no links: what is read has other words.
    """
    words = []
    sides = tokenizer, tokenizer.target
    for side, texts, language in zip(sides, pairs, languages, strict=True):
        _, starts, ends = side.tokenize_with_offsets(texts)
        places = zip(texts, starts.to_list(), ends.to_list(), strict=True)
        words.append(
            [
                # Without the end token.
                words_of_pieces(text, begins[:-1], stops[:-1], language)
                for text, begins, stops in places
            ]
        )
    return [
        # The source may be cut, and a blank text has its end alone.
        align_words(each, source[: each.shape[1] - 1], target[: len(each) - 1])
        if not MARK.search(text.decode())
        else []
        for text, each, source, target in zip(
            pairs[0], attentions, *words, strict=True
        )
    ]


def word_links(
    pair: tuple[str, str],
    languages: tuple[str, str],
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
) -> Links | None:
    """Give each word of a translation the source word it looked at most.

    Attention is float32 `(T, S)`; pieces may be filled up with "". None if the
    pieces have other words than the texts, as when the source was cut or has a
    mark of `terms`.
    """
    if MARK.search(pair[0]):
        return None
    sides = []
    pieces_of = source_pieces, target_pieces
    for text, pieces, language in zip(pair, pieces_of, languages, strict=True):
        words = _words(pieces, language)
        of_pieces = set(itertools.chain(*words))
        if len(words_of(text, language)) != len(of_pieces):
            return None
        sides.append(words)
    return align_words(attention, *sides)


def _words(pieces: Sequence[bytes], language: str) -> list[range]:
    """Find the words of each piece, without the end token."""
    parts = [
        bytes([int(piece[3:5], 16)])
        if _BYTE.fullmatch(piece)
        else piece.replace(_SPACE, b" ")
        for piece in itertools.takewhile(lambda x: x and x != _END, pieces)
    ]
    ends = list(itertools.accumulate(map(len, parts)))
    starts = [0, *ends][: len(ends)]
    return words_of_pieces(b"".join(parts), starts, ends, language)


def words_of_pieces(
    text: bytes, starts: Sequence[int], ends: Sequence[int], language: str
) -> list[range]:
    """Find the words of a UTF-8 text that each piece belongs to.

    A piece belongs to the words that it covers, even in part. One that covers
    none, such as the space before a word, belongs to the next word.
    """
    decoded = text.decode("utf-8", "replace")
    sizes = [len(character.encode()) for character in decoded]
    offsets = [0, *itertools.accumulate(sizes)]
    words = words_of(decoded, language)
    begins = [offsets[begin] for begin, _ in words]
    stops = [offsets[end] for _, end in words]
    of_pieces = []
    for start, end in zip(starts, ends, strict=True):
        first = min(bisect.bisect_right(stops, start), len(words) - 1)
        last = max(bisect.bisect_left(begins, end), first + 1)
        of_pieces.append(range(first, last))
    return of_pieces
