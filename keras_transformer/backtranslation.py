"""Translates text of the target language back, to train on the pairs.

A model of the reverse direction translates text that has no translation. The
pairs have a machine's sentences as sources and real ones as targets (Sennrich
et al., 2016), and train a model beside real pairs.
"""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_transformer.config import SettingError, UserError
from keras_transformer.data import folders
from keras_transformer.data.corpus import checked_texts
from keras_transformer.run import Run, log_shown
from keras_transformer.runs import lock
from keras_transformer.translation.display import SentenceDisplay
from keras_transformer.translation.evaluation import longest_source
from keras_transformer.translation.translated_corpus import TranslatedCorpus

# Edunov et al. (2018): shares of words, and places.
_DROPPED = 0.1
_BLANKED = 0.1
_MOVED = 3
_BLANK = "_"


def backtranslate(
    reverse: Run | str | os.PathLike,
    text: str | os.PathLike | Sequence[str],
    output: str | os.PathLike,
    *,
    noise: bool = False,
    average: int | None = None,
    precision: str = "float32",
    shortlist: str | os.PathLike | None = None,
    parallel: int | None = None,
    **options: Any,
) -> pathlib.Path:
    """Make a corpus of text and its translations into the source language.

    The folder has the split `train` alone. The translations are its source
    side, the text is its target side. The same call again resumes after the
    last 1,000 texts that were translated.

    Example:
        kt.backtranslate("runs/de-en", "more.de", "backtranslated")
        kt.train("runs/en-de", corpus=["my-text", "backtranslated:0.5:<bt>"])

    Args:
        reverse: A run that translates from the target language into the source
            language, or its directory.
        text: A file in UTF-8, one text a line, plain or gzipped, or texts.
        output: The folder to write.
        noise: Whether to drop a tenth of the words of each translation, to
            replace a tenth by `_`, and to move words by up to three places.
            A line always gets the same noise.
        average: As in `Run.translator`, like the next two.
        precision: Type to multiply in.
        shortlist: A file that `Run.shortlist` wrote.
        parallel: As in `Translator.translate`.
        **options: Fields of `Search` that override the run's, such as
            `sampling=kt.Sampling(seed=1)` to draw the translations.

    Returns:
        The path of the folder.

    Raises:
        UserError: If the text cannot be read or changes meanwhile, or the
            folder holds other translations.

    Reference:
        [Sennrich et al., 2016](https://aclanthology.org/P16-1009/); noise:
        [Edunov et al., 2018](https://aclanthology.org/D18-1045/).
    """
    if not isinstance(reverse, Run):
        reverse = Run(reverse)
    if options.get("n_best", 1) != 1:
        raise SettingError(
            "n_best", "1, a source for each text", options["n_best"]
        )
    run, folder = reverse.config, pathlib.Path(os.path.abspath(output))
    lock_folder = folder.with_name(f"{folder.name}.lock")
    count, checksum, read = _open(text)

    def load() -> Callable[..., list[str]]:
        translator = reverse.translator(average, precision, shortlist)
        longest = longest_source(run.training.max_length)

        def translate(
            numbered: Sequence[tuple[int, str]], progress: SentenceDisplay
        ) -> list[str]:
            numbers, texts = zip(*numbered, strict=True)
            found = translator.translate(
                texts,
                split_sentences=False,
                parallel=parallel,
                progress=progress,
                **{"max_source_length": longest, **options},
            )
            return [*map(_with_noise, numbers, found)] if noise else found

        return translate

    with log_shown(), lock.only_writer(lock_folder):
        made = TranslatedCorpus(
            folder,
            {
                "model": reverse.card(average).weights,
                "text": checksum,
                "noise": noise,
                "precision": precision,
                "shortlist": shortlist and os.fspath(shortlist),
                "options": {name: str(x) for name, x in options.items()},
            },
        )
        if not made.is_complete:
            made.translate(enumerate(read()), count, load)
            made.write(f"train.{run.target_lang}", made.translations())
            made.write(f"train.{run.source_lang}", read())
            if _open(text)[:2] != (count, checksum):
                raise UserError(
                    f"{text} changed while it was translated; remove "
                    f"{folder}.unfinished and begin again."
                )
            made.complete()
    # A process that was killed has left it.
    with contextlib.suppress(OSError):
        lock_folder.rmdir()
    return pathlib.Path(output)


def _open(
    text: str | os.PathLike | Sequence[str],
) -> tuple[int, str, Callable[[], Iterator[str]]]:
    """Return the number of texts, their checksum, and what reads them."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(text, str | os.PathLike):
        path = pathlib.Path(text)
        if not path.is_file():
            raise UserError(
                f"Expected a file of text as `text`, received {path}; check "
                "the path."
            )
        count = folders.count_lines(path, digest)
        if not count:
            raise UserError(f"Expected text in {path}, found none.")
        return count, digest.hexdigest(), lambda: folders.read_texts(path)
    texts = list(checked_texts("text", text))
    if not texts:
        raise UserError("Expected texts as `text`, received none.")
    for each in texts:
        digest.update(f"{each}\n".encode())
    return len(texts), digest.hexdigest(), lambda: iter(texts)


def _with_noise(number: int, text: str) -> str:
    """Drop, blank and move words; a text always keeps one.

    The draws depend on the text's number alone.
    """
    random = np.random.default_rng(number)
    words = np.array(text.split(), object)
    draws = random.random(len(words))
    words[draws < _DROPPED + _BLANKED] = _BLANK
    kept = words[draws >= _DROPPED]
    if not len(kept):
        return text
    # No word passes one that is more than `_MOVED` places away.
    places = np.arange(len(kept)) + random.random(len(kept)) * (_MOVED + 1)
    return " ".join(kept[np.argsort(places, kind="stable")])
