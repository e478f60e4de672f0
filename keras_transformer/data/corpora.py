"""Corpora of aligned text: what one is called, and how it is opened.

It is built in, in a folder, from TFDS, or in memory; or made of others: a
mixture of several, each with a weight and a tag, or one with a validation
split held out of its training text.

`my-text + more:0.5:<bt>` names the mixture of all training pairs of `my-text`
and half of those of `more`, whose sources begin with `<bt>`. The tag tells the
model where a pair comes from, for example that it was translated back by a
machine ([Caswell et al., 2019](https://aclanthology.org/W19-5206/)).
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, cast

from keras_transformer.config import SettingError, UserError
from keras_transformer.data.languages import check_sides
from keras_transformer.data.texts import MEMORY as MEMORY
from keras_transformer.data.texts import Corpus as Corpus
from keras_transformer.data.texts import Pair, State, checked_pairs, some
from keras_transformer.machine import extras

DEMO = "demo"
TFDS_PREFIX = "tfds:"
SEPARATOR = " + "
_PART = re.compile(
    r"(?P<name>.+?)(?::(?P<weight>\d+(?:\.\d+)?))?(?::(?P<tag><[^<>:\s]+>))?"
)


class Part(NamedTuple):
    """The place of a corpus in a mixture."""

    name: str
    weight: Fraction = Fraction(1)  # How often its pairs come in an epoch.
    tag: str | None = None  # The first word of its sources.

    def __str__(self) -> str:
        # Exact, since it is read from a decimal; never as 5e-05.
        number = Decimal(self.weight.numerator) / self.weight.denominator
        weight = f":{number:f}" if self.weight != 1 else ""
        return self.name + weight + (f":{self.tag}" if self.tag else "")


def parts_of(name: str) -> list[Part]:
    """Split the name of a mixture; a plain corpus is its only part."""
    return [_part(text) for text in name.split(SEPARATOR)]


def _part(text: str) -> Part:
    named = _PART.fullmatch(text)
    if named is None or os.path.isdir(text):
        return Part(text)
    return Part(named["name"], Fraction(named["weight"] or 1), named["tag"])


def tags_of(name: str) -> tuple[str, ...]:
    """Return the tags in a mixture's name, each once."""
    return tuple(dict.fromkeys(x.tag for x in parts_of(name) if x.tag))


def absolute_name(name: str | os.PathLike) -> str:
    """Name a corpus so that it is found from every working directory."""
    parts = []
    for part in parts_of(os.fspath(name)):
        is_name = part.name in (DEMO, MEMORY)
        if not is_name and not part.name.startswith(TFDS_PREFIX):
            part = part._replace(name=str(pathlib.Path(part.name).resolve()))
        parts.append(part)
    return SEPARATOR.join(map(str, parts))


_Single = (
    str | os.PathLike | Corpus | Iterable[Pair] | Mapping[str, Iterable[Pair]]
)
Source = _Single | Sequence[str | os.PathLike]


def open_corpus(
    corpus: Source | None,
    source_lang: str = "en",
    target_lang: str = "de",
    train_split: str = "train",
) -> Corpus:
    """Find a corpus and check that it has both languages.

    Args:
        corpus: `"demo"`, built in, English and German; a folder of `SPLIT.LANG`
            files, UTF-8, one sentence a line, plain or gzipped;
            `"tfds:NAME[/CONFIG]"`, prepared or downloaded into `TFDS_DATA_DIR`
            (by default `~/tensorflow_datasets`); pairs
            `(source, target)` in any iterable, an array `(N, 2)`, a DataFrame,
            a `tf.data.Dataset` or a dataset of Hugging Face, which become the
            split `train`; a dictionary of these by split; or a list of names
            to train on all of them, each as `"NAME[:WEIGHT][:<TAG>]"`. With
            the weight 0.5 every second pair is used, with 2 each one twice,
            and the tag becomes the first word of every source. The other
            splits are those of the first corpus.
        source_lang: Language code, as in the file names or text features.
        target_lang: Another one.
        train_split: The split that is mixed, if there are several names.
    """
    check_sides(source_lang, target_lang)
    corpus = one_name(corpus)
    languages = source_lang, target_lang
    if isinstance(corpus, str | os.PathLike):
        parts = parts_of(os.fspath(corpus))
        opened = [(part, _open(part.name, *languages)) for part in parts]
        is_plain = parts == [Part(parts[0].name)]
        return opened[0][1] if is_plain else Mixture(opened, train_split)
    if not isinstance(corpus, Corpus):
        return InMemory(corpus, *languages)
    if corpus.languages != languages:
        known, given = map(" and ".join, (corpus.languages, languages))
        raise UserError(
            f"Expected the languages of the corpus, {known}, received {given}; "
            "pass source_lang and target_lang."
        )
    return corpus


def one_name(corpus: Source | None) -> _Single:
    """Make one name, that of a mixture, of a list of names."""
    if isinstance(corpus, list | tuple):
        names = [x for x in corpus if isinstance(x, str | os.PathLike)]
        if names and len(names) == len(corpus):
            return SEPARATOR.join([os.fspath(name) for name in names])
    return cast(_Single, corpus)


def _open(name: str, source_lang: str, target_lang: str) -> Corpus:
    """Open a single corpus by its name."""
    if name == MEMORY:
        raise UserError(
            "Expected the pairs that were in memory, which no file keeps; pass "
            "them again as corpus=, or a folder with `corpus`."
        )
    kind: type[Corpus]
    if name == DEMO:
        from keras_transformer.data.folders import Demo as kind
    elif name.startswith(TFDS_PREFIX):
        kind = Tfds
    else:
        from keras_transformer.data.folders import Folder as kind
    return kind(name, source_lang, target_lang)  # type: ignore[call-arg]


class Tfds(Corpus):
    """`tfds:NAME[/CONFIG]`, which is downloaded if necessary.

    The languages are text features of the dataset.
    """

    def __init__(self, name: str, source_lang: str, target_lang: str) -> None:
        # Importing it takes half a second, which others need not spend.
        tfds = extras.needs("tensorflow_datasets", "tfds")
        dataset = name.partition(":")[2]
        # Use `TFDS_DATA_DIR` as it is now, not as TFDS was imported.
        data_dir = os.environ.get("TFDS_DATA_DIR")
        with _explained(dataset, "know", "check the name"):
            self.builder = builder = tfds.builder(dataset, data_dir=data_dir)
        features = tuple(builder.info.features or ())
        if not {source_lang, target_lang} <= set(features):
            raise UserError(
                f"Expected text in {source_lang} and {target_lang}, but "
                f"{dataset} has: {some(features)}; choose two of these."
            )
        way = "check the connection, or set TFDS_DATA_DIR to a folder with it"
        with _explained(dataset, "prepare", way):
            builder.download_and_prepare()
        splits = tuple(builder.info.splits)
        super().__init__(name, source_lang, target_lang, splits)

    def read(self, split: str) -> Iterator[Pair]:
        source, target = self.languages
        examples = self.builder.as_dataset(split=split, shuffle_files=False)
        examples = examples.map(lambda row: (row[source], row[target]))
        for block in examples.batch(1024).as_numpy_iterator():
            for one, other in zip(*block, strict=True):
                yield one.decode(), other.decode()


@contextlib.contextmanager
def _explained(dataset: str, verb: str, advice: str) -> Iterator[None]:
    """Turn any error of TFDS into one sentence."""
    try:
        yield
    except Exception as error:
        said = str(error).strip().partition("\n")[0].rstrip(".:")
        raise UserError(
            f"Expected TensorFlow Datasets to {verb} {dataset}, but it failed "
            f"({type(error).__name__}: {said}); {advice}."
        ) from error


class InMemory(Corpus):
    """Pairs that a program has."""

    def __init__(self, corpus: Any, source_lang: str, target_lang: str) -> None:
        splits = corpus if isinstance(corpus, Mapping) else {"train": corpus}
        languages = source_lang, target_lang
        is_row = {*languages} & {*splits}  # Of a dataset.
        is_named = all(isinstance(split, str) for split in splits)
        if is_row or not (is_named and isinstance(corpus, Iterable)):
            expected = "demo, a folder, tfds:NAME, pairs of texts, or pairs by "
            expected += "the names of splits, as {'train': [('a', 'b')]}"
            raise SettingError("corpus", expected, corpus)
        super().__init__(MEMORY, *languages, tuple(splits))
        self._pairs = {
            split: list(checked_pairs(split, of_split, languages))
            for split, of_split in splits.items()
        }
        for split, pairs in self._pairs.items():
            if not pairs:
                raise UserError(f"Expected pairs in {split}, received none.")

    def read(self, split: str) -> Iterator[Pair]:
        return iter(self._pairs[split])

    def state(self, split: str) -> State:
        text = json.dumps(self._pairs[split])
        return [[split, len(self._pairs[split]), zlib.crc32(text.encode())]]


class Mixture(Corpus):
    """The split `train_split` of all parts; the other splits of the first.

    A pair comes as often as its corpus's weight says, exactly: of the first n
    pairs of a corpus with weight w, floor(n·w) are taken, evenly spaced. So 2
    takes each pair twice, 0.5 every second one.
    """

    def __init__(
        self, parts: Sequence[tuple[Part, Corpus]], train_split: str
    ) -> None:
        first = parts[0][1]
        name = SEPARATOR.join(str(part) for part, _ in parts)
        super().__init__(name, *first.languages, first.splits)
        self.parts, self._train_split = parts, train_split
        self._mixed, *_ = [x.find(train_split, "train_split") for _, x in parts]

    def read(self, split: str) -> Iterator[Pair]:
        if split != self._mixed:
            return self.parts[0][1].read(split)
        return (
            # An empty source stays empty, and is dropped.
            (f"{part.tag} {x}" if part.tag and x.strip() else x, target)
            for part, corpus in self.parts
            for x, target in _weighted(
                corpus.pairs(self._train_split), part.weight
            )
        )

    def state(self, split: str) -> State:
        if split != self._mixed:
            return self.parts[0][1].state(split)
        name = self._train_split
        return [row for _, part in self.parts for row in part.state_of(name)]


def without_tag(source: str, tags: Collection[str]) -> str:
    """Return a source of a mixture as its corpus has it."""
    tag, _, rest = source.partition(" ")
    return rest if tag in tags else source


def _weighted(pairs: Iterator[Pair], weight: Fraction) -> Iterator[Pair]:
    """Repeat and leave out pairs, evenly, by their weight."""
    due = Fraction(0)
    for pair in pairs:
        due += weight
        for _ in range(int(due)):
            yield pair
        due -= int(due)


def hold_out(corpus: Corpus, splits: tuple[str, str], share: float) -> Corpus:
    """Hold the second split out of the first; of a mixture, of its first."""
    if not isinstance(corpus, Mixture):
        return HeldOut(corpus, splits, share)
    (part, first), *others = corpus.parts
    return Mixture([(part, HeldOut(first, splits, share)), *others], splits[0])


class HeldOut(Corpus):
    """A corpus whose training split is split in two by its source texts.

    The text alone decides, so every training on it holds out the same pairs,
    a `share` in (0, 1) of them. Equal sources go to the same side, so that the
    model is not validated on a source that it was trained on.
    """

    def __init__(
        self, corpus: Corpus, splits: tuple[str, str], share: float
    ) -> None:
        train, self._validation = splits
        name = corpus.real_name(self._validation)
        if name in corpus.splits:
            raise UserError(
                "Expected `validation_share` for a corpus without a split "
                f"{name}, but {corpus.name} has one; leave it out."
            )
        all_splits = *corpus.splits, self._validation
        super().__init__(corpus.name, *corpus.languages, all_splits)
        self._corpus, self._share = corpus, share
        self._train = corpus.find(train, "train_split")

    def read(self, split: str) -> Iterator[Pair]:
        if split not in (self._train, self._validation):
            return self._corpus.read(split)
        held = split == self._validation
        pairs = self._corpus.read(self._train)
        return (pair for pair in pairs if self._is_held_out(pair) == held)

    def _is_held_out(self, pair: Pair) -> bool:
        digest = hashlib.blake2b(pair[0].encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self._share * 2**64

    def state(self, split: str) -> State:
        is_new = split == self._validation
        return self._corpus.state(self._train if is_new else split)
