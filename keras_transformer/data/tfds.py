"""Opens aligned text of TensorFlow Datasets."""

import contextlib
import functools
import itertools
import logging
import os
from collections.abc import Iterator
from typing import Any

from keras_transformer import config
from keras_transformer.data.corpus import TFDS_PREFIX, Corpus, Pair, some
from keras_transformer.machine import extras

# Dataset examples decoded at a time.
BLOCK_EXAMPLES = 1024


def open_tfds(name: str, source_lang: str, target_lang: str) -> Corpus:
    """Prepare `tfds:NAME[/CONFIG]`, downloading it if necessary.

    The languages are text features of the dataset.

    Raises:
        UserError: If there is no such dataset or it lacks a language.
    """
    # Importing it takes half a second, which others need not spend.
    tfds = extras.needs("tensorflow_datasets", "tfds")

    dataset = name.removeprefix(TFDS_PREFIX)
    try:
        # Use `TFDS_DATA_DIR` as it is now, not as TFDS was imported.
        with _without_its_log():
            builder = tfds.builder(
                dataset, data_dir=os.environ.get("TFDS_DATA_DIR")
            )
    except Exception as error:
        # TFDS raises many types of errors for an unknown name.
        raise config.UserError(
            f"Expected a dataset that TensorFlow Datasets knows, received "
            f"{dataset} ({_first_line(error)}); check the name."
        ) from error
    features = tuple(builder.info.features or ())
    if not {source_lang, target_lang} <= set(features):
        raise config.UserError(
            f"Expected text in {source_lang} and {target_lang}, but the "
            f"features of {dataset} are: {some(features)}; choose among "
            "these or another dataset."
        )
    try:
        builder.download_and_prepare()
    except Exception as error:
        # The network, the disk or a missing manual download may be the cause.
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


@contextlib.contextmanager
def _without_its_log() -> Iterator[None]:
    """Leave out what TFDS logs, a paragraph about folders for a wrong name."""
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


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
