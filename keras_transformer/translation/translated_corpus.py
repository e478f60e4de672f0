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
from typing import Any

from keras_transformer.config import Search, UserError
from keras_transformer.data import lines
from keras_transformer.data.texts import Pair
from keras_transformer.machine import files
from keras_transformer.translation.display import SentenceDisplay
from keras_transformer.translation.translator import Hypothesis, Translator

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
        UserError: If one of the folders exists and is of another origin.
    """

    def __init__(
        self, folder: pathlib.Path, origin: Mapping[str, Any], search: Search
    ) -> None:
        self._folder = folder
        self._growing = folder.with_name(f"{folder.name}.unfinished")
        self._search = search
        self._origin = {**origin, **dataclasses.asdict(search)}
        for found in (folder, self._growing):
            if found.exists():
                self._check(found)
        # A process was killed before it removed this.
        (folder / _TRANSLATIONS).unlink(missing_ok=True)

    def _check(self, found: pathlib.Path) -> None:
        try:
            text = (found / _ORIGIN).read_text(encoding="utf-8")
            of_found = dict(json.loads(text))
        except (OSError, ValueError, TypeError):
            raise UserError(
                f"{found} exists, and holds no translations made here; "
                "choose another place."
            ) from None
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

    def translate(
        self,
        texts: Iterable[str],
        total: int,
        load: Callable[[], Translator],
        pick: Callable[[int, Sequence[Hypothesis]], str],
        parallel: int | None = None,
    ) -> None:
        """Translate the texts that have no translation yet.

        Args:
            texts: What to translate, always the same in the same order.
            total: Number of texts.
            load: Loads the model, if there is work for it.
            pick: Makes a translation of a text's number and hypotheses.
            parallel: As in `Translator.translate`.

        Raises:
            UserError: If all translations are empty.
        """
        done = self._cut_to_chunks(total)
        if done < total:
            translator = load()
            logger.info("Translating %d of %d texts.", total - done, total)
            rest = itertools.islice(texts, done, None)
            with SentenceDisplay(total, done=done) as display:
                while chunk := list(itertools.islice(rest, CHUNK)):
                    found, are_cut = translator.n_best(
                        *(chunk, self._search),
                        parallel=parallel,
                        progress=display,
                    )
                    said = map(pick, itertools.count(done), found)
                    self._append(
                        "" if is_cut else text
                        for text, is_cut in zip(said, are_cut, strict=True)
                    )
                    display.end_chunk(len(chunk))
                    done += len(chunk)
        if not any(self._translations()):
            raise UserError(
                "Expected translations, received empty ones alone; train the "
                f"model for longer, and remove {self._growing}."
            )

    def _cut_to_chunks(self, total: int) -> int:
        """Cut what is there after its last whole chunk; count its lines.

        So the chunks of a run that was killed are those of one that was not,
        and so are the roundings in a batch.
        """
        if not self._growing.exists():
            return 0
        with open(self._growing / _TRANSLATIONS, "a+b") as file:
            file.seek(0)
            # The end of every line that has one.
            sizes = (len(line) for line in file if line[-1:] == b"\n")
            ends = list(itertools.accumulate(sizes))
            count = len(ends)
            if count < total:
                count -= count % CHUNK
            file.truncate(ends[count - 1] if count else 0)
        return count

    def _append(self, texts: Iterable[str]) -> None:
        written = b"".join(map(_line, texts))
        if self._growing.exists():
            with open(self._growing / _TRANSLATIONS, "ab") as file:
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
            return
        with files.whole(self._growing) as made:
            made.mkdir(parents=True)
            origin = json.dumps(self._origin, indent=2)
            (made / _ORIGIN).write_text(origin)
            (made / _TRANSLATIONS).write_bytes(written)

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
                *(left_out, total, self._search.max_source_length or "all"),
            )

    def _translations(self) -> Iterator[str]:
        """Read the translations, in the order of the texts."""
        path = self._growing / _TRANSLATIONS
        with open(path, "rb") as file:
            yield from lines.read_lines(file, str(path))

    def write(
        self, split: str, languages: tuple[str, str], pairs: Iterable[Pair]
    ) -> None:
        """Write a split, each side of the pairs to its language's file."""
        one, other = (self._growing / f"{split}.{name}" for name in languages)
        with open(one, "wb") as sources, open(other, "wb") as targets:
            for pair in pairs:
                sources.write(_line(pair[0]))
                targets.write(_line(pair[1]))

    def complete(self) -> None:
        """Give the folder its name."""
        files.give_name(self._growing, self._folder)
        (self._folder / _TRANSLATIONS).unlink()


def _line(text: str) -> bytes:
    # A corpus may hold no NUL, which a sampled translation may.
    line = lines.on_one_line(text).replace("\0", " ")
    return f"{line}\n".encode("utf-8", "replace")
