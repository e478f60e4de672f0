"""Looks through a corpus for what to clean before a model learns from it.

Axes: N pairs.
"""

import array
import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.data.corpora import parts_of, tags_of, without_tag
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.texts import Corpus, Pair
from keras_transformer.data.tokenizer import Tokenizer

# The bytes 0x80 to 0xBF, as Latin-1 and Windows-1252 read them.
_AFTER = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# Characters of Chinese and Japanese.
_SPACELESS = "[\u3040-\u30ff\u3400-\u9fff]"
# What web pages and a wrong encoding leave in a text, and what mends it.
LEFTOVERS = {
    "entities": (
        r"&(?:amp;)*(?:[A-Za-z]{2,8}|#\d{2,6}|#x[\dA-Fa-f]{2,5});",
        "decode with html.unescape, twice if there is &amp;",
    ),
    "tags": (r"</\w+>|<\w+ [^<>]*=[^<>]*>|<(?:br|p) ?/?>", "remove them"),
    "tokenisation": (
        r"\w{1,20} (?:[,.](?=\s)|@-@|n't\b|'s(?= (?!\w+s\b)))",
        "detokenise with sacremoses",
    ),
    "spacing": (f"(?:{_SPACELESS} ){{3,9}}{_SPACELESS}", "remove these spaces"),
    # UTF-8 read as Latin-1 or Windows-1252, also of characters of three bytes
    # in a row, or as Shift JIS or GBK; Shift JIS, GBK and others read so.
    "mojibake": (
        "[ÃÐ][\x80-\xbfŸ„œ]|Â[\xa0-\xbf]|â€|ðŸ|\ufffd"
        f"|(?:[à-í]{_AFTER}{{2}}){{2,4}}|[縺繧繝].{{1,2}}[縺繧繝]"
        "|[銆銇銈銉锛鐨涓].{1,19}[銆銇銈銉锛鐨涓]|(?:[\x82\x83‚ƒ].){3}"
        "|(?=(?:[¡-¿]{0,8}[À-þ]){4})[¡-þ]{6,12}",
        "mend with ftfy, or read the text in its own encoding, such as GBK",
    ),
}
_SUSPECT = re.compile(
    "[&<ÃÐÂ縺繧繝銆銇銈銉锛鐨涓\x82\x83‚ƒ\ufffd]|â€|ðŸ| (?:[,.@']|n't)"
    f"|[à-í]{_AFTER}|[¡-þ]{{6}}|{_SPACELESS} "
)
_LEFT = re.compile("|".join(f"(?P<{x}>{y})" for x, (y, _) in LEFTOVERS.items()))

Row = str | tuple[str, str, str]


class Inspection:
    """Counts what is suspect in the pairs of a corpus while they are read.

    Its text should not have the splits `held_out`, if they are there.
    """

    def __init__(self, corpus: Corpus, held_out: Iterable[str] = ()) -> None:
        self._repeats = any(x.weight > 1 for x in parts_of(corpus.name))
        self.pairs = self.equal = self.empty = 0
        self.leftovers, self._examples = Counter[str](), dict[str, str]()
        self._hashes = array.array("q")
        self._held_out: dict[str, list[str]] = {}
        for split in held_out:
            with contextlib.suppress(UserError):  # Who needs it will tell.
                pairs = corpus.pairs(split)
                self._held_out[split] = [x for x, _ in pairs if x.strip()]
        self._unmet = set(itertools.chain(*self._held_out.values()))
        self._tags = tags_of(corpus.name)

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Pass pairs on, and count."""
        for pair in pairs:
            source, target = pair
            self.pairs += 1
            if not source or not target or source.isspace() or target.isspace():
                self.empty += 1
            else:
                self.equal += source == target
                if not self._repeats:
                    self._hashes.append(hash(pair))
                self.meet(source)
                both = f"{source}\n{target}\n"
                if _SUSPECT.search(both):
                    leftovers = _LEFT.finditer(both)
                    of_pair = {str(x.lastgroup): x[0] for x in leftovers}
                    self.leftovers.update([*of_pair])
                    self._examples = {**of_pair, **self._examples}
            yield pair

    def meet(self, source: str) -> None:
        """Look whether a source is one of the held-out splits."""
        self._unmet.discard(without_tag(source, self._tags))

    def repeated(self) -> int:
        """Count pairs that stood there before, unless that is meant."""
        return len(self._hashes) - len(np.unique(self._hashes))

    def shared(self) -> dict[str, tuple[int, int]]:
        """Count the sources of held-out splits that were read, and all."""
        return {
            split: (sum(x not in self._unmet for x in sources), len(sources))
            for split, sources in self._held_out.items()
        }

    def counts(self, too_long: int) -> dict[str, int]:
        """Count the suspect pairs of each kind; `too_long` are dropped."""
        counts = {
            "repeated": self.repeated(),
            "equal sides": self.equal,
            "empty": self.empty,
            "too long": too_long,
        }
        return counts | self.leftovers

    def advice(self, too_long: int) -> list[str]:
        """Say what to clean, in a sentence, and what the scores are worth."""
        named = [
            f"{count:,} {'with ' * (kind in LEFTOVERS)}{kind}"
            f"{self._such_as(kind)} ({100 * count / self.pairs:.1f} %)"
            for kind, count in self.counts(too_long).items()
            if count > self.pairs / 1000  # Fewer are not worth a line.
        ]
        advice = [
            f"Of {self.pairs:,} training pairs {', '.join(named)}: look at "
            "them, and clean the text where they are wrong."
        ]
        return advice[: len(named)] + self.shared_advice()

    def shared_advice(self) -> list[str]:
        """Say what scores are worth of splits whose sources were met."""
        return [
            f"{count:,} of {all_of:,} sources of {split} are in the training "
            "text too, so scores on it are better than on new text."
            for split, (count, all_of) in self.shared().items()
            if count
        ]

    def _such_as(self, kind: str) -> str:
        found = self._examples.get(kind)
        return f", such as {found}" if found else ""

    def rows(
        self, records: TokenisedCorpus, tokenizer: Tokenizer, longest: int
    ) -> list[Row]:
        """Make the rows of a table, with what the first records say."""
        read = len(records) + records.dropped + records.empty
        part = f", of the first {read:,}" if read < self.pairs else ""
        about = {
            "repeated": "pairs that stood there before",
            "equal sides": "pairs",
            "empty": "pairs with an empty side, dropped",
            "too long": f"pairs above {longest} tokens, dropped{part}",
        }
        for kind, (_, way) in LEFTOVERS.items():
            about[kind] = f"pairs{self._such_as(kind)}; {way}"
        rows: list[Row] = [f"The text, {self.pairs:,} pairs"]
        for kind, count in self.counts(records.dropped).items():
            rows.append((kind, f"{count:,}", about[kind]))
        characters = Counter[str]()
        for ids in records.source.ids, records.target.ids:
            for start in range(0, len(ids), 1 << 22):
                chunk = np.asarray(ids[start : start + (1 << 22)])
                characters += tokenizer.spelled(chunk)
        shown = " ".join(char for char, _ in characters.most_common(12))
        share = sum(characters.values()) / max(sum(records.num_tokens), 1)
        named = f"different characters, {100 * share:.2g} % of the tokens{part}"
        named += f": {shown}" if shown else ""
        rows.append(("spelled in bytes", f"{len(characters):,}", named))
        for split, (count, all_of) in self.shared().items():
            of = f"of {all_of:,} sources, which are in this text too"
            rows.append((f"of {split}", f"{count:,}", of))
        return rows
