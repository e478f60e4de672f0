"""Opens aligned text: built in, from a folder, from TFDS, or in memory.

Every source gives a `Corpus`: named splits, each a stream of `(source,
target)` strings. A validation split may be held out of the training text.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from keras_transformer.config import SettingError, UserError
from keras_transformer.data.corpus import (
    DEMO,
    MEMORY,
    TEST_SET_PREFIX,
    TFDS_PREFIX,
    Corpus,
    Pair,
    State,
    checked_pairs,
)
from keras_transformer.data.demo import open_demo
from keras_transformer.data.folders import open_folder
from keras_transformer.data.languages import check_sides
from keras_transformer.data.mixture import SEPARATOR, is_plain, mix, parts_of

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
        corpus: `"demo"`, with numbers, dates and amounts in some 280 languages
            and with sentences in English and German; a folder of `SPLIT.LANG`
            files, UTF-8, one sentence a line, plain or gzipped;
            `"tfds:NAME[/CONFIG]"`, prepared or downloaded into `TFDS_DATA_DIR`
            (by default `~/tensorflow_datasets`); `"sacrebleu:NAME"`, a test
            set that sacreBLEU knows, such as `sacrebleu:wmt14/full`; pairs
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

    Raises:
        UserError: If there is no such corpus, it lacks a language, or a code
            is none.
    """
    check_sides(source_lang, target_lang)
    if not isinstance(corpus, str | os.PathLike | Corpus | Iterable):
        raise SettingError(
            "corpus", "demo, a folder, tfds:NAME or pairs of texts", corpus
        )
    corpus = one_name(corpus)
    if isinstance(corpus, Corpus):
        languages = corpus.source_lang, corpus.target_lang
        if languages != (source_lang, target_lang):
            raise UserError(
                "Expected the languages of the corpus, "
                f"{' and '.join(languages)}, received {source_lang} and "
                f"{target_lang}; pass source_lang and target_lang."
            )
        return corpus
    if not isinstance(corpus, str | os.PathLike):
        return _in_memory(corpus, source_lang, target_lang)
    parts = parts_of(os.fspath(corpus))
    opened = [
        (part, _open(part.name, source_lang, target_lang)) for part in parts
    ]
    return opened[0][1] if is_plain(parts) else mix(opened, train_split)


def one_name(corpus: Source) -> _Single:
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
    if name == DEMO:
        return open_demo(source_lang, target_lang)
    if name.startswith(TFDS_PREFIX):
        from keras_transformer.data.published import open_tfds

        return open_tfds(name, source_lang, target_lang)
    if name.startswith(TEST_SET_PREFIX):
        from keras_transformer.data.published import open_test_set

        return open_test_set(name, source_lang, target_lang)
    return open_folder(name, source_lang, target_lang)


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


def _in_memory(
    corpus: Iterable[Pair] | Mapping[str, Iterable[Pair]],
    source_lang: str,
    target_lang: str,
) -> Corpus:
    splits = corpus if isinstance(corpus, Mapping) else {"train": corpus}
    languages = source_lang, target_lang
    is_other = not all(isinstance(split, str) for split in splits)
    if is_other or {*languages} & {*splits}:
        expected = (
            "pairs by the names of splits, such as {'train': [('a', 'b')]}"
        )
        raise SettingError("corpus", expected, corpus)
    pairs = {}
    for split, of_split in splits.items():
        pairs[split] = list(checked_pairs(split, of_split, languages))
        if not pairs[split]:
            raise UserError(
                f"Expected pairs of sentences in the split {split}, received "
                "none."
            )

    def read(split: str) -> Iterator[Pair]:
        return iter(pairs[split])

    def state(split: str) -> State:
        text = json.dumps(pairs[split])
        return [[split, len(pairs[split]), zlib.crc32(text.encode())]]

    return Corpus(MEMORY, source_lang, target_lang, tuple(pairs), read, state)


def hold_out(
    corpus: Corpus, train_split: str, validation_split: str, share: float
) -> Corpus:
    """Split the training split in two by its source texts.

    The text alone decides, so every training on it holds out the same pairs.
    Equal sources go to the same side, so that the model is not validated on a
    source that it was trained on. Of a mixture, only the first corpus is split:
    the others may hold sources that are equal to held-out ones.

    Args:
        corpus: The corpus.
        train_split: Its training split, which keeps the rest.
        validation_split: Name of the new split, not one of the corpus.
        share: The expected share of the pairs to hold out, in (0, 1).

    Returns:
        The corpus with both; its other splits are as they were. Reading one of
        the two raises a `SettingError` if the share leaves nothing in it.

    Raises:
        UserError: If the corpus has the validation split.
    """
    if corpus.parts:
        (part, first), *others = corpus.parts
        first = hold_out(first, train_split, validation_split, share)
        parted = mix([(part, first), *others], train_split)
    else:
        parted = _part(corpus, train_split, validation_split, share)

    def read_whole(split: str) -> Iterator[Pair]:
        is_new = split == validation_split
        return parted.read(split) if is_new else corpus.read(split)

    return dataclasses.replace(parted, read_whole=read_whole)


def _part(
    corpus: Corpus, train_split: str, validation_split: str, share: float
) -> Corpus:
    name = corpus.real_name(validation_split)
    if name in (*corpus.splits, *corpus.missing):
        raise UserError(
            f"Expected `validation_share` for a corpus without a split {name}, "
            f"but {corpus.name} has one; leave it out."
        )
    whole = corpus.find(train_split, "train_split")

    def is_held_out(pair: Pair) -> bool:
        digest = hashlib.blake2b(pair[0].encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < share * 2**64

    def read(split: str) -> Iterator[Pair]:
        if split not in (whole, validation_split):
            return corpus.read(split)
        held = split == validation_split
        pairs = (p for p in corpus.read(whole) if is_held_out(p) == held)
        first = next(pairs, None)
        if first is None:
            raise SettingError(
                "validation_share", f"one that leaves pairs in {split}", share
            )
        return itertools.chain([first], pairs)

    def state(split: str) -> State:
        held = split in (whole, validation_split)
        return corpus.state(whole if held else split)

    return dataclasses.replace(
        corpus,
        splits=(*corpus.splits, validation_split),
        read=read,
        state=state,
    )
