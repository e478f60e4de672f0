"""Mixes several corpora for training, each with a weight and a tag.

`my-text + more:0.5:<bt>` names the mixture of all training pairs of `my-text`
and half of those of `more`, whose sources begin with `<bt>`. The tag tells the
model where a pair comes from, for example that it was translated back by a
machine ([Caswell et al., 2019](https://aclanthology.org/W19-5206/)).
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from keras_transformer.config import UserError
from keras_transformer.data.corpus import Corpus, Pair, Part, State
from keras_transformer.data.symbols import SPECIAL

SEPARATOR = " + "
_NAME = re.compile(
    r"(?P<name>.+?)(?::(?P<weight>\d+(?:\.\d+)?))?(?::(?P<tag><[^<>:\s]+>))?"
)


def parts_of(name: str) -> list[Part]:
    """Split the name of a mixture; a plain corpus is its only part.

    Raises:
        UserError: If a weight is 0, or a tag is a piece with another meaning.
    """
    # A folder may be called so.
    if os.path.isdir(name):
        return [Part(name)]
    found = []
    for text in name.split(SEPARATOR):
        named = _NAME.fullmatch(text)
        if named is None or os.path.isdir(text):
            found.append(Part(text))
            continue
        weight = Fraction(named["weight"] or 1)
        if not weight:
            raise UserError(
                f"Expected a weight above 0 for {named['name']}, received "
                f"{text}; leave the corpus out or give another weight."
            )
        tag = named["tag"]
        if tag and SPECIAL.fullmatch(tag):
            raise UserError(
                f"Expected another tag for {named['name']}, received {tag}, "
                "a piece that every vocabulary has; choose one such as <bt>."
            )
        found.append(Part(named["name"], weight, tag))
    return found


def is_plain(parts: list[Part]) -> bool:
    """Return whether there is nothing to mix."""
    return parts == [Part(parts[0].name)]


def tags_of(name: str) -> tuple[str, ...]:
    """Return the tags in a mixture's name, each once."""
    return tuple(dict.fromkeys(x.tag for x in parts_of(name) if x.tag))


def mix(parts: Sequence[tuple[Part, Corpus]], train_split: str) -> Corpus:
    """Mix the training splits of corpora; other splits are the first one's.

    A pair comes as often as its corpus's weight says, exactly: of the first n
    pairs of a corpus with weight w, floor(n·w) are taken, evenly spaced. So 2
    takes each pair twice, 0.5 every second one.

    Args:
        parts: The corpora, at least one.
        train_split: The split to mix.

    Raises:
        UserError: If a corpus lacks the split.
    """
    first = parts[0][1]
    mixed = [
        (part, corpus, corpus.find(train_split, "train_split"))
        for part, corpus in parts
    ]
    whole = mixed[0][2]

    def read(split: str) -> Iterator[Pair]:
        if split != whole:
            return first.read(split)
        return (
            (_tagged(source, part.tag), target)
            for part, corpus, of_part in mixed
            for source, target in _weighted(corpus.read(of_part), part.weight)
        )

    def state(split: str) -> State:
        if split != whole:
            return first.state(split)
        states = (corpus.state(of_part) for _, corpus, of_part in mixed)
        return list(itertools.chain.from_iterable(states))

    def references(split: str) -> list[tuple[str, ...]] | None:
        return None if split == whole else first.references(split)

    name = SEPARATOR.join(str(part) for part, _ in parts)
    return dataclasses.replace(
        first,
        name=name,
        read=read,
        state=state,
        references=references,
        parts=tuple(parts),
    )


def _tagged(source: str, tag: str | None) -> str:
    """Begin a source with a tag; an empty one stays empty, and is dropped."""
    return f"{tag} {source}" if tag and source.strip() else source


def _weighted(pairs: Iterator[Pair], weight: Fraction) -> Iterator[Pair]:
    """Repeat and leave out pairs, evenly, by their weight."""
    due = Fraction(0)
    for pair in pairs:
        due += weight
        for _ in range(int(due)):
            yield pair
        due -= int(due)
