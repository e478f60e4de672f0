"""The form of every source of aligned text: named splits of text pairs."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from keras_transformer.config import SettingError, UserError

Pair = tuple[str, str]
# What text is made of, in rows: the path, size and time of a file, or the
# name, number of pairs and checksum of a split in memory.
State = list[list[Any]]

DEMO = "demo"
MEMORY = "memory"
TFDS_PREFIX = "tfds:"
TEST_SET_PREFIX = "sacrebleu:"
# File or split names that an error lists.
MOST_NAMES = 20


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


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A named source of aligned pairs; made by `open_corpus`.

    Attributes:
        name: The user's name for it.
        source_lang: Language code of the source side.
        target_lang: Language code of the target side.
        splits: Splits that have both languages.
        read: Streams a split.
        state: Tells at once what a split's text is made of, as rows of a
            name, a size, and a time or a checksum; none of what never changes.
        missing: The file that a split with only one language lacks, by split.
        references: Reads all references of each source of a split; the
            result is None if a source has but the one of its pair.
        parts: The corpora of a mixture; empty if it is none.
        read_whole: Streams a split with what was held out of it, if anything
            was; otherwise None.
    """

    name: str
    source_lang: str
    target_lang: str
    splits: tuple[str, ...]
    read: Callable[[str], Iterator[Pair]] = dataclasses.field(repr=False)
    state: Callable[[str], State] = dataclasses.field(
        default=lambda split: [], repr=False
    )
    missing: Mapping[str, str] = dataclasses.field(
        default_factory=dict, repr=False
    )
    references: Callable[[str], list[tuple[str, ...]] | None] = (
        dataclasses.field(default=lambda split: None, repr=False)
    )
    parts: tuple[tuple[Part, "Corpus"], ...] = dataclasses.field(
        default=(), repr=False
    )
    read_whole: Callable[[str], Iterator[Pair]] | None = dataclasses.field(
        default=None, repr=False
    )

    def pairs(self, split: str, flag: str | None = None) -> Iterator[Pair]:
        """Stream the `(source, target)` pairs of a split, in file order.

        `val` also finds a split named `validation`.

        Args:
            split: One of `splits`.
            flag: The argument that names another split, for the
                error.

        Raises:
            UserError: If there is no such split, or its sides are empty or of
                unequal length; while iterating, if text is not UTF-8.
        """
        return self.read(self.find(split, flag))

    def find(self, split: str, flag: str | None = None) -> str:
        """Return the name that a split has here, as `pairs` finds it."""
        found = self.real_name(split)
        if found in self.missing:
            raise UserError(
                f"Expected {self.missing[found]}, plain or gzipped, as the "
                f"other side of the split {found}, found none; restore it."
            )
        if found not in self.splits:
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
        return found

    def sentences(self, split: str) -> Iterator[str]:
        """Stream both sides of a split, to learn a vocabulary from.

        Pairs held out of it are among them, so that the vocabulary does not
        depend on their share.

        Raises:
            UserError: As in `pairs`.
        """
        read = self.read_whole or self.read
        return itertools.chain.from_iterable(read(self.find(split)))

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


def some(names: tuple[str, ...]) -> str:
    """List names, but at most `MOST_NAMES` of them."""
    rest = len(names) - MOST_NAMES
    more = (f"and {rest} more",) if rest > 0 else ()
    return ", ".join((*names[:MOST_NAMES], *more)) or "nothing"


def checked_texts(
    name: str, texts: Iterable[str], in_utf_8: bool = False
) -> Iterator[str]:
    """Pass texts on; refuse anything else, and say where in `name` it is.

    Raises:
        SettingError: If `texts` is a single text or does not hold texts.
        UserError: While iterating, if one of them is not a `str`, or cannot be
            spelled `in_utf_8`.
    """
    # Of a table, `for` would give the names of its columns.
    is_other = isinstance(texts, str | bytes | Mapping) or hasattr(
        texts, "itertuples"
    )
    if is_other or not isinstance(texts, Iterable):
        raise SettingError(name, "a list of texts", texts)

    def checked() -> Iterator[str]:
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise UserError(
                    f"Expected texts as `{name}`, received "
                    f"{_kind_of(text)} in place {number}; make a str of it or "
                    "leave it out."
                )
            if in_utf_8:
                _check_characters(text, f"place {number} of `{name}`")
            yield text

    return checked()


@contextlib.contextmanager
def place_named(name: str, texts: Iterable[str]) -> Iterator[None]:
    """Name the place of a text that has made a library fail."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError):
        list(checked_texts(name, texts, in_utf_8=True))
        raise


def checked_pairs(
    name: str, pairs: Any, languages: tuple[str, str] | None = None
) -> Iterator[Pair]:
    """Pass pairs of texts on; refuse anything else, and say where it is.

    Args:
        name: What `pairs` is called, for errors.
        pairs: Any iterable of pairs, an array `(N, 2)`, a DataFrame of two
            columns, or a `tf.data.Dataset` of pairs of strings. With
            `languages`, also rows and columns named by them, as in a dataset of
            Hugging Face.
        languages: The codes of both sides.

    Raises:
        SettingError: If `pairs` holds no pairs, which `name` names.
        UserError: While iterating, if one of them is not a pair of texts.
    """
    if isinstance(pairs, str | bytes | Corpus) or not isinstance(
        pairs, Iterable
    ):
        raise SettingError(
            name, "pairs of texts, such as `corpus.pairs('train')`", pairs
        )

    def checked() -> Iterator[Pair]:
        for number, row in enumerate(_rows(pairs, languages)):
            pair = _pair_of(row, languages)
            is_pair = isinstance(pair, tuple | list) and len(pair) == 2
            if not (is_pair and all(isinstance(side, str) for side in pair)):
                kind = tuple(map(_kind_of, pair)) if is_pair else pair
                advice = "give pairs such as ('a dog', 'ein Hund')"
                if is_pair and "ndarray" in kind:
                    advice = "leave out `batch`, or call `unbatch`"
                raise UserError(
                    "Expected pairs of source and target text, received "
                    f"{kind!r:.60} in place {number} of {name}; {advice}."
                )
            for side in pair:
                _check_characters(side, f"place {number} of {name}")
            yield pair[0], pair[1]

    return checked()


def _check_characters(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            "Expected Unicode text, received half of a surrogate pair, "
            f"{ascii(text[error.start])}, in {place}; write the whole "
            "character or leave it out."
        ) from None


def _rows(pairs: Any, languages: tuple[str, str] | None) -> Iterable[Any]:
    """Iterate over the rows of a table, whatever holds it."""
    if hasattr(pairs, "itertuples"):  # A DataFrame.
        if languages and set(languages) <= set(pairs.columns):
            pairs = pairs[list(languages)]
        return pairs.itertuples(index=False, name=None)
    if hasattr(pairs, "as_numpy_iterator"):  # A tf.data.Dataset.
        return pairs.as_numpy_iterator()
    return pairs


def _pair_of(row: Any, languages: tuple[str, str] | None) -> Any:
    """Make a tuple of a row, if it is one of another kind."""
    if isinstance(row, Mapping) and languages:
        row = row.get("translation", row)
        if set(languages) <= row.keys():
            row = tuple(row[language] for language in languages)
    if hasattr(row, "tolist"):  # An array.
        row = tuple(row.tolist())
    if isinstance(row, tuple) and all(isinstance(x, bytes) for x in row):
        return tuple(x.decode("utf-8", "replace") for x in row)
    return row


def _kind_of(text: Any) -> Any:
    """Name the type of a value that should be a text, for an error."""
    if text is None or isinstance(text, str | float):
        return text
    return type(text).__name__
