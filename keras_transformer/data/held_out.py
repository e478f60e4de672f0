"""Holds a validation split out of the training text."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator

from keras_transformer.config import SettingError, UserError
from keras_transformer.data.corpus import Corpus, Pair, State
from keras_transformer.data.mixture import mix


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
    if validation_split in (*corpus.splits, *corpus.missing):
        raise UserError(
            f"Expected `validation_share` for a corpus without a split "
            f"{validation_split}, but {corpus.name} has one; leave it out."
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
