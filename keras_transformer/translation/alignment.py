"""Finds the source words behind a translation: attention and word alignment.

Axes: S source pieces, T target pieces.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.data.languages import words_of
from keras_transformer.data.tokenizer import Tokenizer
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


def read_pairs(
    translator: Any,
    graph: Callable[..., tuple],
    pairs: tuple[list[str], list[str]],
    max_source_length: int | None = None,
) -> list[Any]:
    """Call a graph with batches of pairs; return what it says of each."""
    if max_source_length is not None:
        whole_number("max_source_length", max_source_length, least=2)
    batching, tokenizer = Batching(2_048), translator.tokenizer
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
    translator: Any,
    pairs: tuple[list[str], list[str]],
    max_source_length: int | None,
) -> list[Links]:
    """Align the words of each pair of texts, as `Translator.align` says."""
    of_ids = translator.id_model.attention_ids
    look = translator.graph("attention", of_ids, IDS, IDS)
    tokenizer = translator.tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise UserError(
            "Expected a `kt.Tokenizer`, whose pieces spell the words of a "
            f"text, received {type(tokenizer.source_tokenizer).__name__}."
        )
    read = read_pairs(
        translator, lambda *ids: (*ids, look(*ids)), pairs, max_source_length
    )
    languages = translator.source_lang, translator.target_lang
    links = []
    for *pair, (*ids, weights) in zip(*pairs, read, strict=True):
        named = map(tokenizer.pieces, ids)
        read_as, written_as = ([x.encode() for x in side] for side in named)
        of_pair = word_links(pair, languages, read_as, written_as, weights)
        links.append(of_pair or [])
    return links


def word_links(
    pair: Sequence[str],
    languages: tuple[str, str],
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
) -> Links | None:
    """Give each word of a translation the source word it looked at most.

    Attention is float32 `(T, S)`; pieces may be filled up behind "</s>". None
    if the pieces have other words than the texts, as when the source was cut or
    has a mark of `terms`.
    """
    if MARK.search(pair[0]):
        return None
    sides, places = [], []
    pieces_of = source_pieces, target_pieces
    for text, pieces, language in zip(pair, pieces_of, languages, strict=True):
        words = words_of_pieces(pieces, language)
        count, found = len({*itertools.chain(*words)}), words_of(text, language)
        said = [text[slice(*place)] for place in found]
        # A source may read " – " as ", " and "a—b" as "a, b" or "a – b".
        glued = [len(re.findall(r"\w[–—―]+(?=\w)", word)) for word in said]
        for alone, more in itertools.product((1, 0), range(3)):
            times = (alone if x in "–—―" else 1 for x in said)
            pairs = enumerate(zip(times, glued, strict=True))
            kept = [i for i, (x, y) in pairs for _ in range(x + more * y)]
            if len(kept) == count:
                break
        else:
            return None
        sides.append(words)
        places.append(kept)
    links = align_words(attention, *sides)
    return [(places[0][x], places[1][y]) for x, y in links]


def words_of_pieces(pieces: Sequence[bytes], language: str) -> list[range]:
    """Find the words that each piece belongs to, without the end token.

    A piece belongs to the words that it covers, even in part. One that covers
    none, such as the space before a word, belongs to the next word.
    """
    parts = [
        bytes([int(piece[3:5], 16)])
        if _BYTE.fullmatch(piece)
        else piece.replace(_SPACE, b" ")
        for piece in itertools.takewhile(lambda x: x and x != _END, pieces)
    ]
    text = b"".join(parts).decode("utf-8", "replace")
    sizes = [len(character.encode()) for character in text]
    offsets = [0, *itertools.accumulate(sizes)]
    words = words_of(text, language)
    begins = [offsets[begin] for begin, _ in words]
    stops = [offsets[end] for _, end in words]
    of_pieces, start = [], 0
    for part in parts:
        end = start + len(part)
        first = min(bisect.bisect_right(stops, start), len(words) - 1)
        last = max(bisect.bisect_left(begins, end), first + 1)
        of_pieces.append(range(first, last))
        start = end
    return of_pieces
