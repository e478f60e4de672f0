"""Holds a validation split out of the training text."""

import dataclasses
import hashlib
from collections.abc import Iterator

from keras_transformer.config import SettingError, UserError
from keras_transformer.data.corpus import Corpus, Pair, checksum_of
from keras_transformer.data.mixture import mix


def hold_out(
    corpus: Corpus,
    train_split: str,
    validation_split: str,
    share: float,
    seed: int,
) -> Corpus:
    """Split the training split in two by its source texts.

    Equal sources go to the same side, so that the model is not validated on a
    source that it was trained on. Of a mixture, only the first corpus is split:
    the others may hold sources that are equal to held-out ones.

    Args:
        corpus: The corpus.
        train_split: Its training split, which keeps the rest.
        validation_split: Name of the new split, not one of the corpus.
        share: The expected share of the pairs to hold out, in (0, 1).
        seed: Fixes which pairs those are.

    Returns:
        The corpus with both; its other splits are as they were.

    Raises:
        UserError: If the corpus has the validation split, or one of the sides
            is empty.
    """
    if corpus.parts:
        (part, first), *others = corpus.parts
        first = hold_out(first, train_split, validation_split, share, seed)
        return mix([(part, first), *others], train_split)
    if validation_split in (*corpus.splits, *corpus.missing):
        raise UserError(
            f"Expected `validation_share` for a corpus without a split "
            f"{validation_split}, but {corpus.name} has one; leave it out."
        )
    whole = corpus.find(train_split, "train_split")

    def is_held_out(pair: Pair) -> bool:
        digest = hashlib.blake2b(pair[0].encode(), key=b"%d" % seed)
        return int.from_bytes(digest.digest()[:8], "big") < share * 2**64

    def read(split: str) -> Iterator[Pair]:
        if split not in (whole, validation_split):
            return corpus.read(split)
        held = split == validation_split
        return (p for p in corpus.read(whole) if is_held_out(p) == held)

    def stamp(split: str) -> str | None:
        if split not in (whole, validation_split):
            return corpus.stamp(split)
        of_whole = corpus.stamp(whole)
        return of_whole and f"{of_whole} {split} {share} {seed}"

    parted = dataclasses.replace(
        corpus,
        splits=(*corpus.splits, validation_split),
        read=read,
        identify=checksum_of(read),
        stamp=stamp,
    )
    for split in (whole, validation_split):
        if next(read(split), None) is None:
            raise SettingError(
                "validation_share", f"one that leaves pairs in {split}", share
            )
    return parted
