"""Learns a shortlist from a run's training text, and keeps it in a file.

The probability that a source piece becomes a target piece is that of IBM's
model 1 (Brown et al., 1993), as in shortlists of Marian and CTranslate2.

The file is a vocabulary map of CTranslate2, with a line for each source piece:

    PIECE<TAB>CANDIDATE CANDIDATE …

Candidates of the empty piece, the first one, belong to every source.
"""

import dataclasses
import os
import pathlib
from typing import NamedTuple

import numpy as np

from keras_transformer.config import PAD_ID, UserError
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.shortlist import SPECIAL, Shortlist
from keras_transformer.machine import files

_ITERATIONS = 5
# The most frequent target pieces are candidates of every source, beside the
# most probable ones of each of its pieces.
COMMON, BEST = 200, 50
MOST = 50_000  # Pairs of sentences to learn from.
MOST_PAIRS = 20_000_000  # Of pieces, for `associations`: about a gigabyte.


class _Pairs(NamedTuple):
    """Each of N pairs of a sentence's source and target pieces, M different."""

    kinds: np.ndarray  # int32 (N,), which of the M each is
    targets: np.ndarray  # int32 (N,), the number of its target token
    sources: np.ndarray  # int32 (M,), the source piece of each kind
    pieces: np.ndarray  # int32 (M,), the target piece of each kind


def learn(
    records: TokenisedCorpus, tokenizer: Tokenizer, most: int = MOST
) -> np.ndarray:
    """Find the candidates of each source piece in the first `most` pairs.

    They are int32 `(V, C)`, as `Shortlist` takes them. A piece is always its
    own candidate, since names and numbers are often copied.
    """
    size = tokenizer.vocab_size
    common, best = min(COMMON, size), min(BEST, size)
    paired = _paired(records, size, most)
    probabilities = _probabilities(paired, size)
    candidates = np.full([size, max(common, best + 1)], PAD_ID, np.int32)
    candidates[SPECIAL:, 0] = np.arange(SPECIAL, size)
    # Sort by source piece, the most probable first.
    order = np.lexsort((-probabilities, paired.sources))
    sources = paired.sources[order]
    ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
    kept = ranks < best
    candidates[sources[kept], 1 + ranks[kept]] = paired.pieces[order][kept]
    # How often each target piece comes, counting each token once.
    tokens = paired.kinds[np.unique(paired.targets, return_index=True)[1]]
    counts = np.bincount(paired.pieces[tokens], minlength=size)
    candidates[PAD_ID] = PAD_ID
    candidates[PAD_ID, :common] = np.argsort(-counts, kind="stable")[:common]
    return candidates


def associations(
    records: TokenisedCorpus, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find how strongly pieces belong together: p(target) times p(source).

    Return keys, source piece times `size` plus target piece, int64 in ascending
    order, and the product for each, at most 1.
    """
    source, target = records.source, records.target
    lengths = source.lengths[:MOST].astype(np.int64) * target.lengths[:MOST]
    most = int(np.searchsorted(np.cumsum(lengths), MOST_PAIRS)) + 1
    forth = _paired(records, size, most)
    swapped = dataclasses.replace(records, source=target, target=source)
    back = _paired(swapped, size, most)
    keys = forth.sources.astype(np.int64) * size + forth.pieces
    order = np.lexsort((back.sources, back.pieces))
    return keys, _probabilities(forth, size) * _probabilities(back, size)[order]


def _paired(records: TokenisedCorpus, size: int, most: int) -> _Pairs:
    """Pair the pieces of all sentences."""
    keys, targets, before = [], [], 0
    for row in range(min(len(records), most)):
        source, target = (
            side.ids[side.starts[row] :][: side.lengths[row] - 1]
            for side in (records.source, records.target)
        )
        # (S, T): each token of one side with each of the other.
        keys.append((source.astype(np.int64)[:, None] * size + target).ravel())
        token = np.arange(before, before + len(target), dtype=np.int32)
        targets.append(np.tile(token, len(source)))
        before += len(target)
    different, kinds = np.unique(np.concatenate(keys), return_inverse=True)
    sources, pieces = np.divmod(different, size)
    return _Pairs(
        kinds.astype(np.int32),
        np.concatenate(targets),
        sources.astype(np.int32),
        pieces.astype(np.int32),
    )


def _probabilities(paired: _Pairs, size: int) -> np.ndarray:
    """Estimate p(target piece | source piece) of each kind of pair."""
    probabilities = np.ones(len(paired.sources))
    for _ in range(_ITERATIONS):
        # A target token comes from all source tokens of its sentence; their
        # shares follow the probabilities.
        shares = probabilities[paired.kinds]
        shares /= np.bincount(paired.targets, shares)[paired.targets]
        counts = np.bincount(paired.kinds, shares)
        totals = np.bincount(paired.sources, counts, minlength=size)
        probabilities = counts / totals[paired.sources]
    return probabilities


def write(
    path: str | os.PathLike, candidates: np.ndarray, tokenizer: Tokenizer
) -> None:
    """Write the candidates that `learn` has found with this tokenizer."""
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    # The format parts pieces by these; spaces of other kinds may stay.
    ids = {
        i
        for i, name in enumerate(names)
        if i >= SPECIAL and name and not set(name) & set(" \t\r\n")
    }
    names[PAD_ID] = ""
    lines = []
    for i in [PAD_ID, *sorted(ids)]:
        listed = " ".join(names[j] for j in candidates[i] if j in ids)
        lines.append(f"{names[i]}\t{listed}\n")
    files.write_text(pathlib.Path(path), "".join(lines))


def read(path: str | os.PathLike, tokenizer: Tokenizer) -> Shortlist:
    """Read the file for a model with this tokenizer."""
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    ids = {name: i for i, name in enumerate(names) if i >= SPECIAL} | {"": 0}
    rows: dict[int, list[int]] = {}
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        for line in text.removesuffix("\n").split("\n"):
            piece, listed = line.split("\t")
            rows[ids[piece]] = [ids[name] for name in listed.split(" ")]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"Expected a shortlist of this vocabulary in {path}, found another "
            f"file ({type(error).__name__}: {error}); make one with the verb "
            "shortlist."
        ) from None
    width = max(map(len, rows.values()))
    candidates = np.full([tokenizer.vocab_size, width], PAD_ID, np.int32)
    for i, row in rows.items():
        candidates[i, : len(row)] = row
    return Shortlist(candidates)
