"""What counts as texts, as pairs and as a corpus, whatever holds them."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from keras_transformer.config import SettingError, UserError
from keras_transformer.data.languages import spelling_in
from keras_transformer.settings import of_kind

Pair = tuple[str, str]
# The path, size and time of each file that a text is made of; in memory the
# name of a split, the number of its pairs and their checksum.
State = list[list[Any]]
MEMORY = "memory"  # The name of a corpus without one.
# File or split names that an error lists.
MOST_NAMES = 20


def some(names: tuple[str, ...]) -> str:
    """List names, but at most `MOST_NAMES` of them."""
    rest = len(names) - MOST_NAMES
    more = (f"and {rest} more",) if rest > 0 else ()
    return ", ".join((*names[:MOST_NAMES], *more)) or "nothing"


def checked_texts(
    name: str,
    texts: Iterable[str],
    in_utf_8: bool = False,
    without_zero: bool = False,
) -> Iterator[str]:
    """Pass texts on; refuse anything else, and say where in `name` it is."""
    # Of a table, `for` would give the names of its columns.
    is_other = isinstance(texts, str | bytes | Mapping)
    is_table = hasattr(texts, "itertuples")
    if is_other or is_table or not isinstance(texts, Iterable):
        raise SettingError(name, "a list of texts", texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"Expected a str in place {number} of `{name}`, received "
                f"{text if text is None else type(text).__name__}; leave it "
                "out or make it one, bytes by `.decode()`, a tensor by "
                "`.numpy().decode()`."
            )
        if in_utf_8 or (without_zero and "\0" in text):
            _check_characters(text, f"place {number} of `{name}`")
        yield text


def checked_pairs(
    name: str, pairs: Any, languages: tuple[str, str] | None = None
) -> Iterator[Pair]:
    """Pass pairs of texts on; refuse anything else, and say where it is.

    `pairs` is an iterable, a DataFrame or a `tf.data.Dataset`, whose rows are
    pairs or, with `languages`, named by them as in a Hugging Face dataset.
    """
    if isinstance(pairs, str | bytes) or not hasattr(pairs, "__iter__"):
        expected = "pairs of texts, such as `corpus.pairs('train')`"
        raise SettingError(name, expected, pairs)
    if hasattr(pairs, "itertuples"):  # A DataFrame.
        columns = [*pairs.columns]
        named = [spelling_in(columns, x) for x in languages or ()]
        known = named, ["source", "target"]
        found = [x for x in known if x and {*x} <= {*columns}]
        if found:
            pairs = pairs[found[0]]
        elif columns[:1] == named[1:] or columns[1:] == named[:1]:
            pairs = pairs[columns[::-1]]  # The other name says nothing.
        pairs = pairs.itertuples(index=False, name=None)
    elif hasattr(pairs, "as_numpy_iterator"):  # A tf.data.Dataset.
        pairs = pairs.as_numpy_iterator()
    for number, row in enumerate(pairs):
        sides = _sides_of(row, languages)
        if len(sides) != 2 or not all(isinstance(x, str) for x in sides):
            raise UserError(
                "Expected pairs of source and target text, received "
                f"{row!r:.60} in place {number} of {name}; give pairs such as "
                "('a dog', 'ein Hund'), of a tf.data.Dataset without `batch`."
            )
        source, target = map(str, sides)  # Of an array too.
        _check_characters(source + target, f"place {number} of {name}")
        yield source, target


def _sides_of(row: Any, languages: tuple[str, str] | None) -> tuple[Any, ...]:
    """Return what a row holds; nothing if it cannot be a pair."""
    if isinstance(row, Mapping):
        row = row.get("translation", row)
    if isinstance(row, Mapping):
        row = [row.get(language) for language in languages or ()]
    if isinstance(row, str | Set) or not isinstance(row, Iterable):
        return ()
    sides = tuple(row)
    if all(isinstance(x, bytes) for x in sides):  # Of a tf.data.Dataset.
        return tuple(x.decode("utf-8", "replace") for x in sides)
    return sides


def _check_characters(text: str, place: str) -> None:
    found = "a zero byte" if "\0" in text else ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"half of a surrogate pair, {ascii(text[error.start])}"
    if found:
        why = f"Expected Unicode text, received {found}, in {place}; remove it."
        raise UserError(why)


@dataclasses.dataclass(eq=False)
class Corpus:
    """Aligned pairs in named splits; made by `open_corpus`.

    What a corpus is made of is a subclass with `read`.

    Attributes:
        name: The user's name for it.
        source_lang: Language code of the source side.
        target_lang: Language code of the target side.
        splits: Splits that have both languages.
    """

    name: str
    source_lang: str
    target_lang: str
    splits: tuple[str, ...]

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of both sides."""
        return self.source_lang, self.target_lang

    def read(self, split: str) -> Iterator[Pair]:
        """Stream one of `splits`."""
        raise NotImplementedError

    def state(self, split: str) -> State:
        """Tell what one of `splits` is made of, without reading it."""
        return []

    def pairs(self, split: str, flag: str | None = None) -> Iterator[Pair]:
        """Stream the `(source, target)` pairs of a split, in file order.

        `val` also finds a split named `validation`. `flag` is the argument that
        names another one, for the error.
        """
        return self.read(self.find(split, flag))

    def sentences(self, split: str) -> Iterator[str]:
        """Stream both sides of a split."""
        return itertools.chain.from_iterable(self.pairs(split))

    def find(self, split: str, flag: str | None = None) -> str:
        """Return the name that a split has here, as `pairs` finds it."""
        name = self.real_name(of_kind("split", str, split))
        if name in self.splits:
            return name
        advice = f"name one of them as `{flag or 'split'}`"
        if self.name == MEMORY:
            advice = "pass a dictionary such as {'train': …, 'val': …}"
        if flag == "validation_split":
            advice += ", or hold some of the training text out with "
            advice += "`validation_share` 0.02"
        raise UserError(
            f"Expected a split of {self.name} in {' and '.join(self.languages)}"
            f", received {split}; it has: {some(self.splits)}; {advice}."
        )

    def state_of(self, *splits: str) -> State:
        """Tell what the text of splits is made of, without reading files."""
        return [row for split in splits for row in self.state(self.find(split))]

    def real_name(self, split: str) -> str:
        """Return `validation` for a `val` that is not there."""
        is_absent = split == "val" and split not in self.splits
        return "validation" if is_absent else split
