"""Writes a corpus of a model's translations, which is made once.

A process that is killed loses at most the last 1,000 translations: the next one
takes the others up.
"""

import itertools
import json
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

from keras_transformer.config import UserError
from keras_transformer.data import lines
from keras_transformer.machine import files
from keras_transformer.translation.display import SentenceDisplay

Item = TypeVar("Item")
# Translates items, and shows how many are done.
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

    Raises:
        UserError: If one of the folders exists and is of another origin. An
            unfinished one without a translation is removed instead.
    """

    def __init__(self, folder: pathlib.Path, origin: Mapping[str, Any]) -> None:
        self._folder = folder
        self._growing = folder.with_name(f"{folder.name}.unfinished")
        if _is_begun_alone(self._growing):
            shutil.rmtree(self._growing)
        for found in (folder, self._growing):
            if not found.exists():
                continue
            of_found = _origin_of(found)
            if of_found is None:
                raise UserError(
                    f"{found} exists, and holds no translations made here; "
                    "choose another place."
                )
            if of_found != origin:
                raise UserError(
                    f"{found} holds translations of another model or text, or "
                    "made otherwise; remove it or choose another place."
                )
        # A process was killed before it removed this.
        (folder / _TRANSLATIONS).unlink(missing_ok=True)
        self._origin = origin

    @property
    def is_complete(self) -> bool:
        return self._folder.exists()

    def translate(
        self,
        items: Iterable[Item],
        total: int,
        make: Callable[[], Translate[Item]],
    ) -> None:
        """Translate the items that have no translation yet.

        Args:
            items: What to translate, always the same in the same order.
            total: Number of items.
            make: Makes the function that translates, if there is work for it.

        Raises:
            UserError: If all translations are empty.
        """
        if not self._growing.exists():
            with files.whole(self._growing) as made:
                made.mkdir(parents=True)
                text = json.dumps(self._origin, indent=2)
                (made / _ORIGIN).write_text(text)
        with open(self._growing / _TRANSLATIONS, "a+b") as file:
            done = _cut_to_chunks(file, total)
            if done < total:
                rest = itertools.islice(items, done, None)
                _append_translations(file, rest, done, total, make())
        if not any(self.translations()):
            raise UserError(
                "Expected translations, received empty ones alone; train the "
                f"model for longer, and remove {self._growing}."
            )

    def translations(self) -> Iterator[str]:
        """Read the translations, in the order of the items."""
        path = self._growing / _TRANSLATIONS
        with open(path, "rb") as file:
            yield from lines.read_lines(file, str(path))

    def write(self, name: str, texts: Iterable[str]) -> None:
        """Write a file of the corpus."""
        with files.open_whole(self._growing / name) as file:
            _append(file, texts)

    def complete(self) -> None:
        """Give the folder its name."""
        files.give_name(self._growing, self._folder)
        (self._folder / _TRANSLATIONS).unlink()


def _origin_of(folder: pathlib.Path) -> Any:
    try:
        return json.loads((folder / _ORIGIN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _is_begun_alone(folder: pathlib.Path) -> bool:
    """Return whether a folder was begun here and has no translation yet."""
    translations = folder / _TRANSLATIONS
    return _origin_of(folder) is not None and not (
        translations.exists() and translations.stat().st_size
    )


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
