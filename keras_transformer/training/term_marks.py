"""Marks terms in the sources of training batches, as `data.kept_spans` does.

A symbol takes the place of words that belong together, in the source and in the
target. Behind the one in the source stands what the target had, or nothing. So
the model learns to write the symbol, and beside it what goes with those words.

Axes: B batch, S source length, T target length, V vocabulary, M and N words of
a source and of its target.
"""

from collections.abc import Sequence

import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.data.corpora import tags_of
from keras_transformer.data.languages import language_of
from keras_transformer.data.pieces import KEPT, SPACE, SPECIAL, TERM_SYMBOLS
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation import lexicon

# Sources are marked in some batches, and there most, since a batch is padded to
# its longest row: the share of rows in these.
_ROWS = 0.8
_KEEPING = 0.4  # Of all marks, those that want nothing.
_MOST_WANTED = 4  # Words that a mark wants.
_SPANS = 0.6, 0.9  # The share of sources with one mark, with one or two.
_MOST_SPANS = len(_SPANS) + 1
_WORDS = 0.6, 0.85  # The share of marks around one word, around one or two.
# How strong the link of two words must be: at all, and beside the best of each.
_LINK, _BESIDE = 0.05, 0.5
# Tokens by which marks may make a batch's sources and targets longer.
_MORE = 16, 4
_COUNTED = 10_000_000  # Tokens of a side, to know which pieces come often.
_STEP = 4  # They grow by multiples of it, so that there are few shapes.
_Sides = Sequence[np.ndarray]  # The source and the target.


class TermMarks:
    """Marks a share of the sources of each batch, drawn anew every time.

    What is marked is a function of the run's seed and the number of the batch.

    Args:
        run: The run; its `term_share` is the share.
        records: The text to learn from which words belong together.
        tokenizer: The vocabulary, which has `TERM_SYMBOLS`.
    """

    def __init__(
        self, run: RunConfig, records: TokenisedCorpus, tokenizer: Tokenizer
    ) -> None:
        self._recipe = run.training
        languages = run.source_lang, run.target_lang
        self._spaced = [language_of(x).has_spaces for x in languages]
        self._size = tokenizer.vocab_size
        names = tokenizer.pieces(range(self._size))
        *self._kept, self._end = map(names.index, TERM_SYMBOLS)
        self._space = names.index(SPACE)
        self._begins = np.array([name.startswith(SPACE) for name in names])
        whole = {*TERM_SYMBOLS, *(run.symbols or ()), *tags_of(run.corpus)}
        whole |= {name for name in names if SPECIAL.fullmatch(name)}
        said = ["" if name in whole else name for name in names]
        self._has_letters = np.array([any(map(str.isalnum, x)) for x in said])
        self._links = lexicon.associations(records, self._size)
        ids = records.source.ids[:_COUNTED]
        self._often = np.bincount(ids, minlength=self._size) ** 0.5

    def __call__(
        self, number: int, source: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mark a batch, which may grow: int32 `(B, S)` and `(B, T)`."""
        random = np.random.default_rng([self._recipe.seed, number, 2])
        share = self._recipe.term_share
        if random.random() * max(_ROWS, share) >= share:
            return source, target
        longest = [
            min(side.shape[1] + more, self._recipe.max_length)
            for side, more in zip((source, target), _MORE, strict=True)
        ]
        rows = []
        for pair in zip(source, target, strict=True):
            ids: _Sides = [row[: np.count_nonzero(row)] for row in pair]
            if len(ids[0]) and random.random() < max(_ROWS, share):
                ids = self._marked(ids, longest, random)
            rows.append(ids)
        sides = zip(*rows, strict=True)
        return tuple(map(_padded, sides, (source, target)))  # type: ignore

    def _marked(
        self, ids: _Sides, longest: Sequence[int], random: np.random.Generator
    ) -> _Sides:
        """Mark one to three terms of a pair, if its sides get no longer."""
        places = [*map(self._words, ids, self._spaced)]
        sides = source, target = [side.tolist() for side in ids]
        room = [x - len(side) for x, side in zip(longest, ids, strict=True)]
        changes: list[list[tuple[int, int, list[int]]]] = [[], []]
        numbers = iter(np.sort(random.permutation(len(KEPT))[:_MOST_SPANS]))
        spans = self._spans(ids, places, random)
        for start, stop, first, last in sorted(spans):
            symbol, space = self._kept[next(numbers)], [self._space]
            # As sentencepiece has it: it begins each text with a space.
            begins = not start or self._begins[source[start]]
            said, wanted = [symbol], target[first:last]
            if self._begins[wanted[0]]:
                said = space + said
            else:
                wanted = space + wanted
            if random.random() < _KEEPING:
                wanted = space
            mark = [*space * bool(begins), symbol, *wanted, self._end]
            room[0] -= len(mark) - (stop - start)
            room[1] -= len(said) - (last - first)
            if min(room) < 0:
                break
            changes[0].append((start, stop, mark))
            changes[1].append((first, last, said))
        for side, of_side in zip(sides, changes, strict=True):
            # From the last, so that the places before it stay.
            for first, last, new in sorted(of_side, reverse=True):
                side[first:last] = new
        return [np.array(side, np.int32) for side in sides]

    def _words(self, ids: np.ndarray, has_spaces: bool) -> np.ndarray:
        """Find the first and the last piece of each word, and one more."""
        letters = self._has_letters[ids]
        before = np.concatenate([[False], letters[:-1]])
        starts = letters & (self._begins[ids] | ~before | (not has_spaces))
        first = np.flatnonzero(starts)
        # Words and what is between them, by number.
        lengths = np.bincount(np.cumsum(starts)[letters], minlength=1)[1:]
        return np.stack([first, first + lengths], axis=1)

    def _spans(
        self, ids: _Sides, places: _Sides, random: np.random.Generator
    ) -> list[list[int]]:
        """Draw what belongs together: first and last piece and one more."""
        linked = self._linked(ids, places)
        is_used, is_written = (np.zeros(size, bool) for size in linked.shape)
        count = 1 + np.searchsorted(_SPANS, random.random())
        # Seldom those that come often, such as articles.
        source, target = places
        often = self._often[ids[0][source[:, 0]]]
        spans: list[list[int]] = []
        for start in np.argsort(random.exponential(often)):
            length = 1 + np.searchsorted(_WORDS, random.random())
            here = np.s_[start : start + length]
            rows = linked[here]
            of_target = np.flatnonzero(rows.any(axis=0))
            if len(rows) < length or not (rows[0].any() and rows[-1].any()):
                continue
            there = np.s_[of_target[0] : of_target[-1] + 1]
            if (
                there.stop - there.start > _MOST_WANTED
                or is_used[here].any()
                or is_written[there].any()  # Between two others.
                or linked[:, there].sum() > rows.sum()  # Of others, too.
            ):
                continue
            linked[here] = linked[:, there] = False
            is_used[here] = is_written[there] = True
            of_source, of_target = source[here].ravel(), target[there].ravel()
            spans.append([*of_source[[0, -1]], *of_target[[0, -1]]])
            if len(spans) == count:
                break
        return spans

    def _linked(self, ids: _Sides, places: _Sides) -> np.ndarray:
        """Find which words belong together, bool `(M, N)`."""
        keys, values = self._links
        # (S, T)
        wanted = ids[0][:, None].astype(np.int64) * self._size + ids[1]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        strength = np.where(keys[at] == wanted, values[at], 0.0)
        sums = np.zeros([len(ids[0]) + 1, len(ids[1]) + 1])
        sums[1:, 1:] = strength.cumsum(axis=0).cumsum(axis=1)
        # Of each two words, the sum over their pieces.
        rows, columns = places[0].T[:, None, :, None], places[1].T[:, None]
        (none, right), (left, both) = sums[rows, columns]
        lengths = np.maximum(np.diff(places[0]), np.diff(places[1]).T)
        strength = (both - right - left + none) / lengths
        ones, others = (
            strength.max(axis=side, keepdims=True, initial=0) for side in (0, 1)
        )
        return strength > np.maximum(_LINK, _BESIDE * np.maximum(ones, others))


def _padded(rows: Sequence[np.ndarray], batch: np.ndarray) -> np.ndarray:
    """Write rows one below the other, at least as long as in the batch."""
    more = max(*map(len, rows), batch.shape[1]) - batch.shape[1]
    more += -more % _STEP
    padded = np.full([len(rows), batch.shape[1] + more], PAD_ID, np.int32)
    for to, row in zip(padded, rows, strict=True):
        to[: len(row)] = row
    return padded
