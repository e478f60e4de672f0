"""Looks through a corpus for what to clean before a model learns from it.

Axes: N pairs.
"""

import array
import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.config import UNK_ID
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.texts import Corpus, Pair
from keras_transformer.data.tokenizer import Tokenizer

# Characters from which on the lengths of two sides tell something.
TELLING_LENGTH = 20
# Times the usual ratio of lengths from which on a pair is suspect.
FAR = 3
# Fewer in a corpus are not worth a line in the log.
NOTICEABLE = 1 / 1000
# Pairs that tell how well a vocabulary fits, and tokens a character, compared
# with its own text and at most, from which on it does not.
SAMPLE = 1_000
MISFIT, MOST = 1.5, 1.0
# Characters that a table shows.
MOST_SHOWN = 12
_BYTE = re.compile("<0x([0-9A-F]{2})>")

Row = str | tuple[str, str, str]

logger = logging.getLogger("keras_transformer")


class Findings(NamedTuple):
    """The pairs of a text that are suspect.

    Attributes:
        pairs: All pairs.
        repeated: Pairs that stood there before; None if nobody counted.
        equal: Pairs whose sides are the same text.
        empty: Pairs with a side without text.
        ratio: Characters of the target for one of the source, the median.
        unlike: Pairs whose ratio is more than `FAR` times above or below it.
    """

    pairs: int
    repeated: int | None
    equal: int
    empty: int
    ratio: float
    unlike: int

    def advice(self, too_long: int) -> str:
        """Name what to clean, as one sentence; empty if that is little."""
        found = (
            ("repeated", self.repeated or 0),
            ("with equal sides", self.equal),
            (f"with one side {FAR} times longer than usual", self.unlike),
            ("with an empty side", self.empty),
            ("too long", too_long),
        )
        named = [
            f"{count:,} {which} ({100 * count / self.pairs:.1f} %)"
            for which, count in found
            if count > NOTICEABLE * self.pairs
        ]
        if not named:
            return ""
        return (
            f"Of {self.pairs:,} training pairs {', '.join(named)}: look at "
            "them, and clean the text where they are wrong."
        )

    def rows(
        self, records: TokenisedCorpus, tokenizer: Tokenizer, longest: int
    ) -> list[Row]:
        """Make the rows of a table, with what the first records say."""
        read = len(records) + records.dropped + records.empty
        part = f", of the first {read:,}" if read < self.pairs else ""
        found = spelled(records, tokenizer)
        shown = " ".join(char for char, _ in found.most_common(MOST_SHOWN))
        share = sum(found.values()) / max(sum(records.num_tokens), 1)
        named = f"{100 * share:.2g} % of the tokens{part}"
        named += f": {shown}" if shown else ""
        gone = f", dropped{part}"
        repeated = "not counted" if self.repeated is None else self.repeated
        counts: list[tuple[str, int | str, str]] = [
            ("repeated", repeated, "pairs that stood there before"),
            ("equal sides", self.equal, "pairs"),
            ("target/source", f"{self.ratio:.2f}", "characters, the median"),
            ("unlike lengths", self.unlike, f"pairs over {FAR} times off that"),
            ("empty", self.empty, "pairs with an empty side, dropped"),
            (
                "too long",
                records.dropped,
                f"pairs above {longest} tokens{gone}",
            ),
            ("spelled in bytes", len(found), f"different characters, {named}"),
        ]
        rows: list[Row] = [f"The text, {self.pairs:,} pairs"]
        for name, x, unit in counts:
            rows.append((name, f"{x:,}" if isinstance(x, int) else x, unit))
        return rows


class Inspection:
    """Counts what is suspect in the pairs of a corpus while they are read."""

    def __init__(self, corpus: Corpus) -> None:
        self._counts_repeated = not corpus.repeats
        self._pairs = self._equal = self._empty = 0
        self._hashes, self._ratios = array.array("q"), array.array("f")

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Pass pairs on, and count."""
        for pair in pairs:
            source, target = pair
            self._pairs += 1
            if not source or not target or source.isspace() or target.isspace():
                self._empty += 1
            else:
                self._equal += source == target
                if self._counts_repeated:
                    self._hashes.append(hash(pair))
                if max(len(source), len(target)) >= TELLING_LENGTH:
                    self._ratios.append(len(target) / len(source))
            yield pair

    def findings(self) -> Findings:
        """Sum up what was read."""
        repeated = None
        if self._counts_repeated:
            hashes = np.sort(self._hashes)
            repeated = int((hashes[1:] == hashes[:-1]).sum())
        ratios = np.array(self._ratios)
        usual = float(np.median(ratios)) if len(ratios) else 1.0
        off = np.maximum(ratios / usual, usual / ratios)
        return Findings(
            *(self._pairs, repeated, self._equal, self._empty, usual),
            int((off > FAR).sum()),
        )


def spelled(records: TokenisedCorpus, tokenizer: Tokenizer) -> Counter[str]:
    """Count the characters that the vocabulary lacks and spells in bytes.

    A character without bytes counts as "⁇", and so do bytes that are none.
    """
    matches = map(
        _BYTE.fullmatch, tokenizer.pieces(range(tokenizer.vocab_size))
    )
    # The byte that each piece stands for.
    values = np.array([int(x[1], 16) if x else -1 for x in matches])
    found: Counter[str] = Counter()
    for side in (records.source, records.target):
        ids = side.ids
        for start in range(0, len(ids), 1 << 22):
            part = np.asarray(ids[start : start + (1 << 22)])
            found["⁇"] += int((part == UNK_ID).sum())
            of_part = values[part]
            text = bytes(of_part[of_part >= 0].astype(np.uint8))
            found.update(text.decode("utf-8", "replace").replace("�", "⁇"))
    return +found


def warn_of_misfit(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    own: TokenisedCorpus | None,
    languages: Sequence[str],
) -> None:
    """Warn if a vocabulary was made for other text than `pairs`.

    `own` are records of the text that it was made for, if there are any, and
    `languages` those of both sides.
    """
    head = list(itertools.islice(pairs, SAMPLE))
    for i, side in enumerate((tokenizer, tokenizer.target)):
        texts = [pair[i] for pair in head]
        here = _tokens_a_character(side, texts)
        known = None
        if own is not None:
            ids = (own.source, own.target)[i]
            rows = np.arange(min(SAMPLE, len(ids.lengths)))
            longest = int(ids.lengths[rows].max(initial=1))
            read = side.detokenize(ids.padded(rows, longest)).numpy()
            known = _tokens_a_character(side, [x.decode() for x in read])
        if here > (MISFIT * known if known else MOST):
            usual = "seldom more than 1"
            if known:
                usual = f"{known:.2f} for the text that it was made for"
            logger.warning(
                "The vocabulary takes %.2f tokens a character for the %s side, "
                "%s: it was made for another language or script, so the model "
                "learns slowly and drops long pairs. Learn a new vocabulary "
                "(without `init_from` and `tokenizer`) or begin with another "
                "run.",
                *(here, languages[i], usual),
            )


def _tokens_a_character(side: Tokenizer, texts: Sequence[str]) -> float:
    lengths = side.tokenize(texts).row_lengths().numpy() if texts else []
    characters = sum(map(len, texts))
    # The end token and the "▁" that each text begins with spell nothing.
    return float(np.sum(lengths) - 2 * len(texts)) / max(characters, 1)
