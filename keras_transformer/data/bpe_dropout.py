"""BPE-dropout: every epoch cuts words into other pieces.

Each merge of byte-pair encoding is left out with some probability, in training
only (Provilkov et al., 2020). The pieces of a batch are a pure function of the
seed and the batch's number, so that a resumed training sees the pieces it would
have seen.

The plan of the batches reserves room for longer segmentations, once for all
epochs. If that is not enough for a sentence, some of its words, drawn at
random, stay as they are.

The merges are our own. sentencepiece samples too, but from version 0.2.3 on its
draws differ between processes, even with the same seed.

Axes: B rows of a batch, L length of a side, N pairs or symbols, W words.
Lengths count tokens, including the end token.
"""

import itertools
import logging
from typing import NamedTuple

import numpy as np

from keras_transformer import config
from keras_transformer.data import sentencepiece_file
from keras_transformer.data.records import Side, TokenisedCorpus
from keras_transformer.data.symbols import SPACE
from keras_transformer.data.tokenizer import Tokenizer

logger = logging.getLogger("keras_transformer")
NORMAL = 1  # A piece's type in a sentencepiece model.
# Pairs on which the growth of segmentations is measured.
MEASURED_PAIRS = 2_000
# The plan leaves room for this many standard deviations above the mean length.
# Nine tenths of the pieces that dropout adds fit (`benchmarks/multi30k.md`).
DEVIATIONS = 0.5
# Below this growth, the merges that are skipped are made up for.
NOTICEABLE = 1.05


class Growth(NamedTuple):
    """The growth of lengths.

    Attributes:
        factor: Mean ratio of the lengths, without end tokens.
        deviation: Deviation of a length from its mean, divided by the root of
            the length.
    """

    factor: float
    deviation: float

    def room(self, lengths: np.ndarray, longest: int | None) -> np.ndarray:
        """Return the length to reserve for each pair, int32 `(N,)`."""
        rooms = self.factor * (lengths - 1) + 1
        rooms += DEVIATIONS * self.deviation * np.sqrt(lengths)
        rooms = np.ceil(rooms).astype(np.int32)
        return np.maximum(lengths, np.minimum(rooms, longest or rooms))

    def num_tokens(self, side: Side) -> int:
        """Return the mean number of tokens of a side."""
        ends = len(side.lengths)
        pieces = int(side.lengths.sum(dtype=np.int64)) - ends
        return round(self.factor * pieces) + ends


class ResegmentedCorpus:
    """A corpus with BPE-dropout, used in training for a `TokenisedCorpus`.

    Its lengths are those that a plan should reserve.

    Args:
        corpus: The records, in the tokenizer's own pieces.
        tokenizer: Their vocabulary.
        dropout: Probability of leaving out a merge, in (0, 1).
        seed: Fixes the segmentations.
        max_length: The greatest length allowed; None for any.

    Raises:
        UserError: If the vocabulary is not one of byte-pair encoding.
        ValueError: If `dropout` is out of range.
    """

    def __init__(
        self,
        corpus: TokenisedCorpus,
        tokenizer: Tokenizer,
        dropout: float,
        seed: int,
        max_length: int | None,
    ) -> None:
        if not 0 < dropout < 1:
            raise ValueError(
                f"`dropout` must be in (0, 1). Received: dropout={dropout}"
            )
        is_paired = tokenizer.target is not tokenizer
        if is_paired or not sentencepiece_file.is_bpe(tokenizer.model):
            raise config.UserError(
                "Expected a vocabulary of byte-pair encoding for "
                "`bpe_dropout`, received one of another kind; train without "
                "it, or with another `tokenizer`."
            )
        self.source, self.target = corpus.source, corpus.target
        self.dropped, self.empty = corpus.dropped, corpus.empty
        self._plain = corpus
        self._merges = Merges(tokenizer.model)
        self._dropout = dropout
        self._seed = seed
        self._growths = [self._measure(self.source), self._measure(self.target)]
        for name, growth in zip(
            ("source", "target"), self._growths, strict=True
        ):
            if growth.factor < NOTICEABLE:
                logger.warning(
                    "BPE-dropout of %g makes the %s side %.1f %% longer, which "
                    "is next to nothing; text without spaces between words "
                    "needs more, such as 0.6.",
                    *(dropout, name, 100 * (growth.factor - 1)),
                )
        self._max_length = max_length

    def __len__(self) -> int:
        return len(self._plain)

    @property
    def source_lengths(self) -> np.ndarray:
        return self._growths[0].room(self.source.lengths, self._max_length)

    @property
    def target_lengths(self) -> np.ndarray:
        return self._growths[1].room(self.target.lengths, self._max_length)

    @property
    def num_tokens(self) -> tuple[int, int]:
        """Return an epoch's mean tokens of source and target, if all fit."""
        source, target = self._growths
        return source.num_tokens(self.source), target.num_tokens(self.target)

    def gather(
        self,
        rows: np.ndarray,
        source_length: int,
        target_length: int,
        number: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the two sides of a batch, as `TokenisedCorpus` does."""
        plain = self._plain.gather(rows, source_length, target_length, number)
        source, target = (
            self._resegment(ids, np.random.default_rng([self._seed, number, i]))
            for i, ids in enumerate(plain)
        )
        return source, target

    def _measure(self, side: Side) -> Growth:
        """Measure growth on pairs from all over a corpus."""
        count = min(MEASURED_PAIRS, len(side.lengths))
        chosen = np.linspace(0, len(side.lengths) - 1, count).astype(int)
        lengths = side.lengths[chosen]
        plain = lengths - 1  # Without end tokens.
        ids = side.padded(chosen, int(lengths.max()))
        pieces, row_of = _pieces(ids)
        word_of = _words(pieces, row_of, self._merges.begins_word)
        _, new_word_of = self._merges.segment(
            pieces, word_of, self._dropout, np.random.default_rng(self._seed)
        )
        # Words ascend with their rows.
        row_of_word = row_of[np.unique(word_of, return_index=True)[1]]
        longer = np.bincount(row_of_word[new_word_of], minlength=count)
        factor = longer.sum() / max(plain.sum(), 1)
        excess = (longer - factor * plain) / np.sqrt(lengths)
        return Growth(float(factor), float(np.sqrt(np.mean(excess**2))))

    def _resegment(
        self, ids: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Cut the words of ids (B, L) into other pieces, as far as they fit."""
        old, row_of = _pieces(ids)
        old_word_of = _words(old, row_of, self._merges.begins_word)
        new, new_word_of = self._merges.segment(
            old, old_word_of, self._dropout, random
        )
        old_sizes = np.bincount(old_word_of)
        new_sizes = np.bincount(new_word_of)
        row_of_word = row_of[np.cumsum(old_sizes) - old_sizes]
        free = (ids == config.PAD_ID).sum(axis=1)
        fits = _fitting(new_sizes - old_sizes, row_of_word, free, random)
        # Back in the order of the words.
        of_new, of_old = fits[new_word_of], ~fits[old_word_of]
        pieces = np.concatenate([new[of_new], old[of_old]])
        word_of = np.concatenate([new_word_of[of_new], old_word_of[of_old]])
        order = np.argsort(word_of, kind="stable")
        sizes = np.bincount(row_of_word[word_of], minlength=len(ids))
        result = np.full_like(ids, config.PAD_ID)
        result[np.arange(ids.shape[1]) < sizes[:, None]] = pieces[order]
        real = np.flatnonzero(ids[:, 0] != config.PAD_ID)
        result[real, sizes[real]] = config.EOS_ID
        return result


# A training can be planned on either.
AnyCorpus = TokenisedCorpus | ResegmentedCorpus


def _pieces(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all pieces of rows `(B, L)` but PAD and EOS, with their rows."""
    row_of, _ = places = np.nonzero(
        (ids != config.PAD_ID) & (ids != config.EOS_ID)
    )
    return ids[places], row_of


def _words(
    pieces: np.ndarray, row_of: np.ndarray, begins_word: np.ndarray
) -> np.ndarray:
    """Number the word of each piece, through all rows."""
    begins = begins_word[pieces] | (np.diff(row_of, prepend=-1) != 0)
    return np.cumsum(begins) - 1


def _fitting(
    extra: np.ndarray,
    row_of: np.ndarray,
    free: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Choose words (W,) at random whose `extra` pieces fit the `free` (B,)."""
    order = np.lexsort((random.random(len(extra)), row_of))
    total = np.cumsum(np.maximum(extra, 0)[order])
    before = np.concatenate([[0], total])
    first = np.searchsorted(row_of, row_of)  # The start of each word's row.
    fits = np.empty(len(extra), bool)
    fits[order] = total - before[first] <= free[row_of]
    return fits


class Merges:
    """The merges of a vocabulary.

    Two neighbours merge if the vocabulary has their text as one piece. The
    pair that was learnt first goes first.

    Args:
        model: A serialised sentencepiece model of byte-pair encoding.

    Attributes:
        begins_word: Boolean array `(V,)`, which pieces begin with a space.

    Reference:
        [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267), algorithm 1.
    """

    def __init__(self, model: bytes) -> None:
        pieces = sentencepiece_file.parse_model(model).pieces
        names = [piece.piece for piece in pieces]
        self.begins_word = np.array([name.startswith(SPACE) for name in names])
        ids = {
            piece.piece: i
            for i, piece in enumerate(pieces)
            if piece.type == NORMAL
        }
        # The characters of each piece, `(V,)` begins and lengths in `(N,)`.
        spelled = [
            [ids[character] for character in name]
            if name in ids and all(character in ids for character in name)
            else [i]  # A byte, a role, or a user's own piece.
            for i, name in enumerate(names)
        ]
        self._characters = np.array(list(itertools.chain(*spelled)), np.int32)
        self._sizes = np.array([len(characters) for characters in spelled])
        self._begins = np.cumsum(self._sizes) - self._sizes
        self._add_pairs(names, ids, [piece.score for piece in pieces])

    def _add_pairs(
        self, names: list[str], ids: dict[str, int], scores: list[float]
    ) -> None:
        """Tabulate which pairs merge: sorted keys, ranks, merged pieces."""
        self._vocab_size = len(names)
        pairs = [
            (ids[name[:i]] * len(names) + ids[name[i:]], merged)
            for name, merged in ids.items()
            for i in range(1, len(name))
            if name[:i] in ids and name[i:] in ids
        ]
        pairs.append((self._vocab_size**2, 0))  # No search goes beyond it.
        keys, merged = np.array(sorted(pairs), np.int64).T
        self._keys, self._merged = keys, merged.astype(np.int32)
        best_first = np.argsort(-np.array(scores), kind="stable")
        self._ranks = np.argsort(best_first)[merged]

    def segment(
        self,
        pieces: np.ndarray,
        word_of: np.ndarray,
        dropout: float,
        random: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cut words into pieces, starting from their characters.

        In each step every possible merge is left out with the probability
        `dropout`, and the best of the others is made. A word whose merges are
        all left out then stays as it is.

        Args:
            pieces: Integer array `(N,)`, the words as they are cut now.
            word_of: Integer array `(N,)`, the word of each, ascending.
            dropout: In [0, 1].
            random: Decides which merges are left out.

        Returns:
            The new `pieces` and `word_of`.
        """
        sizes = self._sizes[pieces]
        symbols = self._characters[_ranges(self._begins[pieces], sizes)]
        word_of = np.repeat(word_of, sizes)
        done = []
        while len(symbols):
            chosen, merged = self._choose(symbols, word_of, dropout, random)
            active = np.zeros(int(word_of[-1]) + 1, bool)
            active[word_of[chosen]] = True
            going_on = active[word_of]
            done.append((symbols[~going_on], word_of[~going_on]))
            symbols[chosen] = merged
            going_on[chosen + 1] = False
            symbols, word_of = symbols[going_on], word_of[going_on]
        if not done:
            return symbols, word_of
        symbols, word_of = (
            np.concatenate(parts) for parts in zip(*done, strict=True)
        )
        order = np.argsort(word_of, kind="stable")
        return symbols[order], word_of[order]

    def _choose(
        self,
        symbols: np.ndarray,
        word_of: np.ndarray,
        dropout: float,
        random: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the left place and the id of the next merge in every word."""
        keys = symbols[:-1] * np.int64(self._vocab_size) + symbols[1:]
        at = np.searchsorted(self._keys, keys)
        possible = (self._keys[at] == keys) & (word_of[:-1] == word_of[1:])
        places = np.flatnonzero(possible)
        places = places[random.random(len(places)) >= dropout]
        ranks = self._ranks[at[places]]
        # The first place of the best rank in each word.
        order = np.lexsort((ranks, word_of[places]))
        places = places[order]
        first = np.flatnonzero(np.diff(word_of[places], prepend=-1))
        chosen = places[first]
        return chosen, self._merged[at[chosen]]


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """List the places `start, …, start + size - 1` of every pair."""
    ends = np.cumsum(sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
    return np.repeat(starts, sizes) + within
