"""Aligned text from a folder, from TensorFlow Datasets, or built in.

Every source gives a `Corpus`: named splits, each a stream of `(source,
target)` strings.
"""

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from keras_transformer import config, extras
from keras_transformer.data import demo, lines

Pair = tuple[str, str]

DEMO = "demo"
TFDS_PREFIX = "tfds:"
# Bytes read, and dataset examples decoded, at a time.
BLOCK_BYTES = 1 << 20
BLOCK_EXAMPLES = 1024
# File or split names that an error lists.
MOST_NAMES = 20


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A named source of aligned pairs; made by `open_corpus`.

    Attributes:
        name: What the user called it.
        source_lang: Language code of the source side.
        target_lang: Language code of the target side.
        splits: Splits that have both languages.
        read: Streams a split.
    """

    name: str
    source_lang: str
    target_lang: str
    splits: tuple[str, ...]
    read: Callable[[str], Iterator[Pair]] = dataclasses.field(repr=False)

    def pairs(self, split: str) -> Iterator[Pair]:
        """Stream the `(source, target)` pairs of a split, in file order.

        `val` also finds a split named `validation`.

        Raises:
            UserError: If there is no such split, or its sides are empty or
                of unequal length. While iterating: if text is not UTF-8.
        """
        found = self._real_name(split)
        if found not in self.splits:
            raise config.UserError(
                f"Expected a split of {self.name} in {self.source_lang} and "
                f"{self.target_lang}, received {split}; it has: "
                f"{_some(self.splits)}."
            )
        return self.read(found)

    def _real_name(self, split: str) -> str:
        if split == "val" and split not in self.splits:
            return "validation"
        return split

    def fingerprint(self, split: str) -> str:
        """Name a split and, of a folder, the state of its files.

        Token records with another fingerprint are of another text.
        """
        split = self._real_name(split)
        parts = [self.name, split, self.source_lang, self.target_lang]
        for language in (self.source_lang, self.target_lang):
            path = pathlib.Path(self.name, f"{split}.{language}")
            if path.is_file():
                state = path.stat()
                parts += [str(state.st_size), str(state.st_mtime_ns)]
        return " ".join(parts)


def open_corpus(name: str, source_lang: str, target_lang: str) -> Corpus:
    """Find a corpus and check that it speaks both languages.

    Args:
        name: `demo`; a folder of `SPLIT.LANG` files, UTF-8, a sentence a
            line; or `tfds:NAME[/CONFIG]`, prepared or downloaded into
            `TFDS_DATA_DIR` (by default `~/tensorflow_datasets`).
        source_lang: Language code, as in the file names or text features.
        target_lang: Another one.

    Raises:
        UserError: If there is no such corpus or it lacks a language.
    """
    if source_lang == target_lang:
        raise config.UserError(
            "Expected two different languages, received "
            f"{source_lang} twice; change one of them."
        )
    if name == DEMO:
        return _open_demo(source_lang, target_lang)
    if name.startswith(TFDS_PREFIX):
        return _open_tfds(name, source_lang, target_lang)
    return _open_folder(name, source_lang, target_lang)


def absolute_name(name: str) -> str:
    """Name a corpus so that it is found from every working directory."""
    if name == DEMO or name.startswith(TFDS_PREFIX):
        return name
    return str(pathlib.Path(name).resolve())


def _some(names: tuple[str, ...]) -> str:
    rest = len(names) - MOST_NAMES
    more = (f"and {rest} more",) if rest > 0 else ()
    return ", ".join((*names[:MOST_NAMES], *more)) or "nothing"


def _open_demo(source_lang: str, target_lang: str) -> Corpus:
    def read(split: str) -> Iterator[Pair]:
        return iter(demo.demo_pairs(split, source_lang, target_lang))

    splits = tuple(demo.SPLIT_SIZES)
    demo.check_languages(source_lang, target_lang)
    return Corpus("demo", source_lang, target_lang, splits, read)


def _open_folder(name: str, source_lang: str, target_lang: str) -> Corpus:
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise config.UserError(
            f"Expected demo, a folder or {TFDS_PREFIX}NAME as corpus, "
            f"received {name}, which is no folder; check the path."
        )
    files = tuple(sorted(p.name for p in folder.iterdir() if p.is_file()))
    splits = tuple(
        stem
        for stem, dot, language in (file.rpartition(".") for file in files)
        if language == source_lang and f"{stem}.{target_lang}" in files
    )
    if not splits:
        raise config.UserError(
            f"Expected files SPLIT.{source_lang} and SPLIT.{target_lang} in "
            f"{folder}, found no such pair; this folder has: {_some(files)}."
        )
    return Corpus(
        name,
        source_lang,
        target_lang,
        splits,
        functools.partial(_read_folder, folder, source_lang, target_lang),
    )


def _read_folder(
    folder: pathlib.Path, source_lang: str, target_lang: str, split: str
) -> Iterator[Pair]:
    """Check both files of a split at once, then stream their lines."""
    source = folder / f"{split}.{source_lang}"
    target = folder / f"{split}.{target_lang}"
    source_lines, target_lines = _count_lines(source), _count_lines(target)
    if source_lines != target_lines:
        raise config.UserError(
            "Expected a line in one language for every line in the other, "
            f"found {source_lines} in {source} and {target_lines} in "
            f"{target}; align them again."
        )
    if not source_lines:
        raise config.UserError(
            f"Expected sentences in {source} and {target}, found both files "
            "empty; check where they come from."
        )
    return zip(_lines(source), _lines(target), strict=True)


def _count_lines(path: pathlib.Path) -> int:
    """Count lines; the last one needs no line end."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _lines(path: pathlib.Path) -> Iterator[str]:
    with path.open("rb") as file:
        yield from lines.read_lines(file, str(path))


def _open_tfds(name: str, source_lang: str, target_lang: str) -> Corpus:
    # Half a second that others need not.
    tfds = extras.needs("tensorflow_datasets", "tfds")

    dataset = name.removeprefix(TFDS_PREFIX)
    try:
        # `TFDS_DATA_DIR` as it is now, not when TFDS was imported.
        builder = tfds.builder(
            dataset, data_dir=os.environ.get("TFDS_DATA_DIR")
        )
    except Exception as error:
        # TFDS raises many types for a name that it does not know.
        raise config.UserError(
            f"Expected a dataset that TensorFlow Datasets knows, received "
            f"{dataset} ({_first_line(error)}); check the name."
        ) from error
    features = tuple(builder.info.features or ())
    if not {source_lang, target_lang} <= set(features):
        raise config.UserError(
            f"Expected text in {source_lang} and {target_lang}, but the "
            f"features of {dataset} are: {_some(features)}; choose among "
            "these or another dataset."
        )
    try:
        builder.download_and_prepare()
    except Exception as error:
        # Anything from the network, the disk or a missing manual download.
        raise config.UserError(
            f"Expected TensorFlow Datasets to prepare {dataset}, but it failed "
            f"({_first_line(error)}); check the connection, or set "
            "TFDS_DATA_DIR to a folder that holds the dataset."
        ) from error
    return Corpus(
        name,
        source_lang,
        target_lang,
        tuple(builder.info.splits),
        functools.partial(_read_tfds, builder, source_lang, target_lang),
    )


def _first_line(error: Exception) -> str:
    message = str(error).strip().partition("\n")[0].rstrip(".:")
    return f"{type(error).__name__}: {message}"


def _read_tfds(
    builder: Any, source_lang: str, target_lang: str, split: str
) -> Iterator[Pair]:
    """Check that a split holds examples, then stream them."""
    if not builder.info.splits[split].num_examples:
        raise config.UserError(
            f"Expected sentences in {split} of {builder.info.full_name}, "
            "found none; prepare the dataset again."
        )
    return _examples(builder, source_lang, target_lang, split)


def _examples(
    builder: Any, source_lang: str, target_lang: str, split: str
) -> Iterator[Pair]:
    examples = builder.as_dataset(split=split, shuffle_files=False)
    examples = examples.map(lambda row: (row[source_lang], row[target_lang]))
    blocks = examples.batch(BLOCK_EXAMPLES).as_numpy_iterator()
    rows = itertools.chain.from_iterable(
        zip(*block, strict=True) for block in blocks
    )
    for number, (source, target) in enumerate(rows, start=1):
        try:
            yield source.decode(), target.decode()
        except UnicodeDecodeError as error:
            raise config.UserError(
                f"Expected UTF-8 text in {builder.info.full_name}, found "
                f"other bytes in example {number} of {split} "
                f"({error.reason}); use another dataset."
            ) from None
