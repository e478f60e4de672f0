"""Writes a corpus of a model's translations, which is made once.

A process that is killed loses at most the last 1,000 translations: the next one
takes the others up.
"""

import dataclasses
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

from keras_transformer.config import Search, UserError
from keras_transformer.data import lines
from keras_transformer.data.corpus import Pair
from keras_transformer.machine import files
from keras_transformer.translation.display import SentenceDisplay

Item = TypeVar("Item")
# Translates items, "" where it cannot, and shows how many are done.
Translate = Callable[[Sequence[Item], SentenceDisplay], Iterable[str]]

# Texts that are translated before they are written.
CHUNK = 1_000
_ORIGIN = "origin.json"
_TRANSLATIONS = "translations.txt"

logger = logging.getLogger("keras_transformer")


class TranslatedCorpus:
    """A folder of translations. Until it is complete it is `FOLDER.unfinished`.

    Args:
        folder: The folder.
        origin: The model, the text and the way of translating, ready for JSON.
        search: How the model searches, which is of the origin too.

    Raises:
        UserError: If one of the folders exists and is of another origin. An
            unfinished one without a translation is replaced instead.
    """

    def __init__(
        self, folder: pathlib.Path, origin: Mapping[str, Any], search: Search
    ) -> None:
        self._folder = folder
        self._growing = folder.with_name(f"{folder.name}.unfinished")
        self._longest = search.max_source_length
        self._origin = {**origin, **dataclasses.asdict(search)}
        if folder.exists():
            self._check(folder)
        if self._growing.exists() and not self._is_begun_alone():
            self._check(self._growing)
        # A process was killed before it removed this.
        (folder / _TRANSLATIONS).unlink(missing_ok=True)

    def _check(self, found: pathlib.Path) -> None:
        of_found = _origin_of(found)
        if of_found is None:
            raise UserError(
                f"{found} exists, and holds no translations made here; "
                "choose another place."
            )
        names = [
            name
            for name in {**of_found, **self._origin}
            if of_found.get(name) != self._origin.get(name)
        ]
        if names:
            raise UserError(
                f"{found} holds translations of another {', '.join(names)} "
                "than this call asks for; remove it or choose another place."
            )

    @property
    def is_complete(self) -> bool:
        return self._folder.exists()

    def _is_begun_alone(self) -> bool:
        """Return whether it was begun here and has no translation yet."""
        translations = self._growing / _TRANSLATIONS
        return _origin_of(self._growing) is not None and not (
            translations.exists() and translations.stat().st_size
        )

    def translate(
        self,
        items: Iterable[Item],
        total: int,
        load: Callable[[], Translate[Item]],
    ) -> None:
        """Translate the items that have no translation yet.

        Args:
            items: What to translate, always the same in the same order.
            total: Number of items.
            load: Makes the function that translates, if there is work for it.

        Raises:
            UserError: If all translations are empty.
        """
        if not self._growing.exists() or self._is_begun_alone():
            with files.whole(self._growing) as made:
                made.mkdir(parents=True)
                text = json.dumps(self._origin, indent=2)
                (made / _ORIGIN).write_text(text)
        with open(self._growing / _TRANSLATIONS, "a+b") as file:
            done = _cut_to_chunks(file, total)
            if done < total:
                rest = itertools.islice(items, done, None)
                _append_translations(file, rest, done, total, load())
        if not any(self._translations()):
            raise UserError(
                "Expected translations, received empty ones alone; train the "
                f"model for longer, and remove {self._growing}."
            )

    def pairs(self, texts: Iterable[str]) -> Iterator[Pair]:
        """Pair the texts with their translations; leave out those without."""
        left_out = total = 0
        for pair in zip(texts, self._translations(), strict=True):
            total += 1
            if pair[1].strip():
                yield pair
            else:
                left_out += 1
        if left_out:
            logger.warning(
                "Left out %d of %d texts: blank, translated into nothing, or "
                "cut by the search, which reads %s tokens.",
                *(left_out, total, self._longest or "all"),
            )

    def _translations(self) -> Iterator[str]:
        """Read the translations, in the order of the items."""
        path = self._growing / _TRANSLATIONS
        with open(path, "rb") as file:
            yield from lines.read_lines(file, str(path))

    def write(
        self, split: str, languages: tuple[str, str], pairs: Iterable[Pair]
    ) -> None:
        """Write a split, each side of the pairs to its language's file."""
        stems = [self._growing / f"{split}.{name}" for name in languages]
        with files.open_whole(stems[0]) as one, files.open_whole(stems[1]) as t:
            for pair in pairs:
                for file, text in zip((one, t), pair, strict=True):
                    _append(file, [text])

    def complete(self) -> None:
        """Give the folder its name."""
        files.give_name(self._growing, self._folder)
        (self._folder / _TRANSLATIONS).unlink()


def _origin_of(folder: pathlib.Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / _ORIGIN).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _cut_to_chunks(file: BinaryIO, total: int) -> int:
    """Cut a file after its last whole chunk; return its number of lines.

    So the chunks of a run that was killed are those of one that was not, and
    so are the roundings in a batch.
    """
    file.seek(0)
    # The end of every line that has one.
    ends = list(itertools.accumulate(len(x) for x in file if x[-1:] == b"\n"))
    count = len(ends)
    if count < total:
        count -= count % CHUNK
    file.truncate(ends[count - 1] if count else 0)
    return count


def _append_translations(
    file: BinaryIO,
    items: Iterator[Item],
    done: int,
    total: int,
    translate: Translate[Item],
) -> None:
    logger.info("Translating %d of %d texts.", total - done, total)
    with SentenceDisplay(total, done=done) as display:
        while chunk := list(itertools.islice(items, CHUNK)):
            _append(file, translate(chunk, display))
            file.flush()
            os.fsync(file.fileno())
            display.end_chunk(len(chunk))


def _append(file: BinaryIO, texts: Iterable[str]) -> None:
    file.writelines(f"{lines.on_one_line(text)}\n".encode() for text in texts)
