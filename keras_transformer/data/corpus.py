"""What a corpus is, and what one is called.

`my-text + more:0.5:<bt>` names the mixture of all training pairs of `my-text`
and half of those of `more`, whose sources begin with `<bt>`. The tag tells the
model where a pair comes from, for example that it was translated back by a
machine ([Caswell et al., 2019](https://aclanthology.org/W19-5206/)).
"""

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from keras_transformer.config import UserError
from keras_transformer.data.symbols import SPECIAL
from keras_transformer.data.texts import Pair, some

# The path, size and time of each file that a text is made of.
State = list[list[Any]]

DEMO = "demo"
MEMORY = "memory"
TFDS_PREFIX = "tfds:"
TEST_SET_PREFIX = "sacrebleu:"
SEPARATOR = " + "
_PART = re.compile(
    r"(?P<name>.+?)(?::(?P<weight>\d+(?:\.\d+)?))?(?::(?P<tag><[^<>:\s]+>))?"
)


@dataclasses.dataclass(eq=False)
class Corpus:
    """Aligned pairs in named splits; made by `open_corpus`.

    What a corpus is made of is a subclass with `read`.

    Attributes:
        name: The user's name for it.
        source_lang: Language code of the source side.
        target_lang: Language code of the target side.
        splits: Splits that have both languages.
        missing: The file that a split with only one language lacks, by split.
        repeats: Whether it has pairs several times on purpose.
    """

    name: str
    source_lang: str
    target_lang: str
    splits: tuple[str, ...]
    missing: Mapping[str, str] = dataclasses.field(
        default_factory=dict, repr=False
    )
    repeats: bool = dataclasses.field(default=False, repr=False)

    def read(self, split: str) -> Iterator[Pair]:
        """Stream one of `splits`."""
        raise NotImplementedError

    def read_whole(self, split: str) -> Iterator[Pair]:
        """Stream one of `splits` with what was held out of it."""
        return self.read(split)

    def state(self, split: str) -> State:
        """Tell what one of `splits` is made of, without reading it."""
        return []

    def references(self, split: str) -> list[tuple[str, ...]] | None:
        """Read all references of each source; None if only pairs have one."""
        return None

    def pairs(self, split: str, flag: str | None = None) -> Iterator[Pair]:
        """Stream the `(source, target)` pairs of a split, in file order.

        `val` also finds a split named `validation`.

        Args:
            split: One of `splits`.
            flag: The argument that names another split, for the error.

        Raises:
            UserError: If there is no such split, or its sides are empty or of
                unequal length; while iterating, if text is not UTF-8.
        """
        return self.read(self.find(split, flag))

    def sentences(self, split: str) -> Iterator[str]:
        """Stream both sides of a split, to learn a vocabulary from.

        Pairs held out of it are among them, so that the vocabulary does not
        depend on their share.

        Raises:
            UserError: As in `pairs`.
        """
        pairs = self.read_whole(self.find(split))
        return itertools.chain.from_iterable(pairs)

    def find(self, split: str, flag: str | None = None) -> str:
        """Return the name that a split has here, as `pairs` finds it."""
        found = self.real_name(split)
        if found in self.splits:
            return found
        if found in self.missing:
            raise UserError(
                f"Expected {self.missing[found]}, plain or gzipped, as the "
                f"other side of the split {found}, found none; restore it."
            )
        advice = f"; name one of them as `{flag}`" if flag else ""
        if self.name == MEMORY:
            advice = "; pass a dictionary such as {'train': …, 'val': …}"
        if flag == "validation_split":
            advice += ", or hold some of the training text out with "
            advice += "`validation_share` 0.02"
        raise UserError(
            f"Expected a split of {self.name} in {self.source_lang} and "
            f"{self.target_lang}, received {split}; it has: "
            f"{some(self.splits)}{advice}."
        )

    def state_of(self, *splits: str) -> State:
        """Tell what the text of splits is made of, without reading files.

        Raises:
            UserError: If there is no such split.
        """
        rows = (self.state(self.find(split)) for split in splits)
        return list(itertools.chain.from_iterable(rows))

    def real_name(self, split: str) -> str:
        """Return `validation` for a `val` that is not there."""
        if split == "val" and not {split} & {*self.splits, *self.missing}:
            return "validation"
        return split


class Part(NamedTuple):
    """The place of a corpus in a mixture.

    Attributes:
        name: The user's name for the corpus.
        weight: How often its pairs are seen in an epoch, on average.
        tag: The first word of its sources; None for none.
    """

    name: str
    weight: Fraction = Fraction(1)
    tag: str | None = None

    def __str__(self) -> str:
        weight = ""
        if self.weight != 1:
            # Exact, since it is read from a decimal; never as 5e-05.
            number = Decimal(self.weight.numerator) / self.weight.denominator
            weight = f":{number:f}"
        return self.name + weight + (f":{self.tag}" if self.tag else "")


def parts_of(name: str) -> list[Part]:
    """Split the name of a mixture; a plain corpus is its only part.

    Raises:
        UserError: If a weight is 0, or a tag is a piece with another meaning.
    """
    if os.path.isdir(name):  # A folder may be called so.
        return [Part(name)]
    return [_part(text) for text in name.split(SEPARATOR)]


def _part(text: str) -> Part:
    named = _PART.fullmatch(text)
    if named is None or os.path.isdir(text):
        return Part(text)
    name, tag = named["name"], named["tag"]
    weight = Fraction(named["weight"] or 1)
    if not weight:
        raise UserError(
            f"Expected a weight above 0 for {name}, received {text}; leave the "
            "corpus out or give another weight."
        )
    if tag and SPECIAL.fullmatch(tag):
        raise UserError(
            f"Expected another tag for {name}, received {tag}, a piece that "
            "every vocabulary has; choose one such as <bt>."
        )
    return Part(name, weight, tag)


def is_plain(parts: Sequence[Part]) -> bool:
    """Return whether there is nothing to mix."""
    return list(parts) == [Part(parts[0].name)]


def tags_of(name: str) -> tuple[str, ...]:
    """Return the tags in a mixture's name, each once."""
    return tuple(dict.fromkeys(x.tag for x in parts_of(name) if x.tag))


def absolute_name(name: str | os.PathLike) -> str:
    """Name a corpus so that it is found from every working directory.

    Raises:
        UserError: If the name of a mixture would then be ambiguous.
    """
    parts = parts_of(os.fspath(name))
    found = [part._replace(name=_absolute(part.name)) for part in parts]
    for part in found:
        if SEPARATOR in part.name and not is_plain(found):
            raise UserError(
                f"Expected corpora to mix in folders without {SEPARATOR!r} in "
                f"their paths, received {part.name}; rename a folder."
            )
    return SEPARATOR.join(map(str, found))


def _absolute(name: str) -> str:
    prefixes = TFDS_PREFIX, TEST_SET_PREFIX
    if name in (DEMO, MEMORY) or name.startswith(prefixes):
        return name
    return str(pathlib.Path(name).resolve())
