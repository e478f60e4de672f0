"""Corpora that models write: for a student, or of text translated back.

A teacher, one model or several, translates a training text once. A student
learns these translations more easily than those of people, so a smaller or
faster model comes closer to its teacher (Kim and Rush, 2016).

A model of the reverse direction translates text that has no translation. The
pairs have a machine's sentences as sources and real ones as targets (Sennrich
et al., 2016), and train a model beside real pairs.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_transformer.config import Search, UserError
from keras_transformer.data import lines
from keras_transformer.data.texts import Pair, checked_texts
from keras_transformer.machine import exhaustion, files
from keras_transformer.run import Run
from keras_transformer.runs import layout
from keras_transformer.runs.layout import DISTILLED, TOKENIZER_FILE
from keras_transformer.runs.run_config import begun_config, load_vocabulary
from keras_transformer.train_run import train
from keras_transformer.training.preparation import check_tags
from keras_transformer.training.request import log_shown, understand
from keras_transformer.translation.display import SentenceDisplay
from keras_transformer.translation.text_batches import Batching
from keras_transformer.translation.translator import Translator

# Texts that are translated before they are written.
CHUNK = 1_000
_ORIGIN = "origin.json"
_CHUNKS = "translations"
_LESS_MEMORY = "end other programs that need it"

logger = logging.getLogger("keras_transformer")


@exhaustion.explained(_LESS_MEMORY)
def distill(
    teacher: Run | str | os.PathLike,
    run_dir: str | os.PathLike,
    **arguments: Any,
) -> Run:
    """Train a student on its teacher's translations of a training text.

    The teacher searches as its run says. Its translations are kept in
    `run_dir/distilled`, a corpus with the validation split and, if there is
    one, the split `test` of the original. Sources that are longer than the
    teacher reads are left out, and the log counts them. The same call again
    resumes after the last 1,000 texts that were translated.

    Example:
        kt.distill("runs/big", "runs/student", corpus="my-text", preset="tiny")

    Args:
        teacher: A run, or its directory.
        run_dir: The student's run directory.
        **arguments: All other arguments of `train`. The vocabulary is the
            teacher's unless you give `tokenizer`, `init_from`, `symbols` or
            `normalization`.

    Returns:
        The student's run.

    Raises:
        UserError: If the folder holds other translations.
    """
    if not isinstance(teacher, Run):
        teacher = Run(teacher)
    arguments = with_vocabulary(teacher, arguments)
    folder = pathlib.Path(run_dir) / DISTILLED
    begun = begun_config(run_dir)
    # A student's directory may have moved since.
    if begun and pathlib.Path(begun.corpus).name != DISTILLED:
        raise UserError(
            "Expected a new run_dir for the student, or that of one that began "
            f"with its distilled text, received {run_dir}, which began with "
            f"{begun.corpus}; choose another one."
        )
    # As for a run there: `train` looks at what the student has begun with.
    asked = understand(run_dir=folder, **arguments)
    corpus, run = asked.open_text(), teacher.config
    languages = corpus.source_lang, corpus.target_lang
    if languages != (run.source_lang, run.target_lang):
        raise UserError(
            f"Expected a teacher of {languages[0]} to {languages[1]}, received "
            f"{run.source_lang} to {run.target_lang} in {teacher.path}; choose "
            "another or change the languages."
        )
    # The name of the folder to train on has no tags.
    check_tags(asked.run.corpus, load_vocabulary(teacher.path, run))
    if arguments.get("symbols") is not None:
        arguments["symbols"] = asked.run.symbols
    split, validation = asked.run.splits
    corpus.find(validation, "validation_split")
    pairs = list(corpus.pairs(split, "train_split"))
    # Its validation text is a split of the folder then.
    of_student = {**arguments, "corpus": None, "validation_share": None}
    if begun:  # Which may refuse settings: before the work.
        understand(run_dir=run_dir, **of_student)
    with log_shown(), layout.only_writer(run_dir):
        _make(
            folder,
            teacher,
            [source for source, _ in pairs],
            dataclasses.replace(
                run.search, n_best=1, max_source_length=run.training.max_length
            ),
            split,
            {
                name: corpus.pairs(name)
                for name in {validation, *({"test"} & {*corpus.splits})}
            },
            text=_checksum(itertools.chain.from_iterable(pairs)),
        )
    return train(run_dir, **{**of_student, "corpus": folder})


def with_vocabulary(teacher: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add the teacher's vocabulary unless the arguments choose another."""
    own = ("tokenizer", "init_from", "symbols", "normalization")
    if any(arguments.get(name) is not None for name in own):
        return arguments
    return {**arguments, "tokenizer": teacher.path / TOKENIZER_FILE}


@exhaustion.explained(_LESS_MEMORY)
def backtranslate(
    reverse: Run | str | os.PathLike,
    text: str | os.PathLike | Iterable[str],
    output: str | os.PathLike,
    *,
    parallel: int | None = None,
    **options: Any,
) -> pathlib.Path:
    """Make a corpus of text and its translations into the source language.

    The folder has the split `train` alone. Texts that are blank, or longer than
    the run reads, are left out, and the log counts them. The same call again
    resumes after the last 1,000 texts that were translated.

    Example:
        kt.backtranslate("runs/de-en", "more.de", "backtranslated")
        kt.train("runs/en-de", corpus=["my-text", "backtranslated:0.5:<bt>"])

    Args:
        reverse: A run that translates from the target language into the source
            language, opened with the weights to use, or its directory.
        text: A file in UTF-8, one text a line, plain or gzipped, or texts: in
            the language that `reverse` reads. All are read into memory.
        output: The folder to write.
        parallel: As in `Translator.translate`.
        **options: Fields of `Search` that override the run's, such as
            `sampling=kt.Sampling(seed=1)` to draw the translations.

    Returns:
        The path of the folder.

    Raises:
        UserError: If the folder holds other translations.

    Reference:
        [Sennrich et al., 2016](https://aclanthology.org/P16-1009/).
    """
    if not isinstance(reverse, Run):
        reverse = Run(reverse)
    run, folder = reverse.config, pathlib.Path(os.path.abspath(output))
    lock_folder = folder.with_name(f"{folder.name}.lock")
    options.setdefault("max_source_length", run.longest_source)
    search = dataclasses.replace(run.search, **options)
    if isinstance(text, str | os.PathLike):
        lines.open_file(pathlib.Path(text), "`text`").close()
        texts = list(lines.read_texts(pathlib.Path(text)))
    else:
        texts = list(checked_texts("text", text))
    if not texts:
        raise UserError("Expected texts as `text`, received none.")

    with log_shown(), layout.only_writer(lock_folder):
        logger.info(
            "Reading text in %s, writing its translations into %s: pairs to "
            "train %s to %s.",
            *(run.source_lang, run.target_lang) * 2,
        )
        _make(
            *(folder, reverse, texts, search, "train", {}, parallel),
            text=_checksum(texts),
        )
    # A process that was killed has left it.
    with contextlib.suppress(OSError):
        lock_folder.rmdir()
    return pathlib.Path(output)


def _make(
    folder: pathlib.Path,
    run: Run,
    texts: Sequence[str],
    search: Search,
    split: str,
    others: Mapping[str, Iterable[Pair]],
    parallel: int | None = None,
    **origin: Any,
) -> None:
    """Write a corpus of texts and their translations, unless it is there.

    `others` are splits to copy. Until the corpus is complete it is
    `FOLDER.unfinished`, where every chunk of texts has a file: a process that
    is killed loses one, and the next takes the others up. A folder of another
    `origin`, which is of a model, a text and so on, is refused.
    """
    growing = folder.with_name(f"{folder.name}.unfinished")
    identity, words = run.chosen().identity, run.weights.shortlist
    if words:
        lines.open_file(words, "`shortlist`").close()
    origin |= {
        "model": identity,
        "precision": run.weights.precision,
        "shortlist": words and files.checksum(words),
        **dataclasses.asdict(search),
    }
    for place in (folder, growing):
        if place.exists():
            _check_origin(place, origin)
    if folder.exists():
        if (folder / _CHUNKS).exists():  # A process was killed before that.
            files.remove(folder / _CHUNKS)
        return
    # The same chunks after a kill, so the same roundings in a batch.
    chunks = {
        growing / _CHUNKS / f"{first:09}": texts[first : first + CHUNK]
        for first in range(0, len(texts), CHUNK)
    }
    left = {path: of for path, of in chunks.items() if not path.exists()}
    if left:
        total = len(texts)
        done = total - sum(map(len, left.values()))
        translator = _load(run, identity)
        logger.info("Translating %d of %d texts.", total - done, total)
        with SentenceDisplay(total, done=done) as display:
            for path, chunk in left.items():
                found, are_cut = translator.n_best(
                    chunk, search, Batching(parallel=parallel, progress=display)
                )
                if not growing.exists():
                    with files.whole(growing) as made:
                        (made / _CHUNKS).mkdir(parents=True)
                        (made / _ORIGIN).write_text(json.dumps(origin))
                with files.open_whole(path) as file:
                    for (best, *_), is_cut in zip(found, are_cut, strict=True):
                        file.write(_line("" if is_cut else best.text))
                display.end_chunk(len(chunk))
    pairs: list[Pair] = []
    for path, chunk in chunks.items():
        with open(path, "rb") as file:
            said = lines.read_lines(file, str(path))
            of_chunk = zip(chunk, said, strict=True)
            pairs += [pair for pair in of_chunk if pair[1].strip()]
    if not pairs:
        raise UserError(
            "Expected translations, received empty ones alone; train the "
            f"model for longer, and remove {growing}."
        )
    if left_out := len(texts) - len(pairs):
        logger.warning(
            "Left out %d of %d texts: blank, translated into nothing, or cut "
            "by the search, which reads %s tokens.",
            *(left_out, len(texts), search.max_source_length or "all"),
        )
    languages = run.config.source_lang, run.config.target_lang
    for name, written in {split: pairs, **others}.items():
        one, other = (growing / f"{name}.{language}" for language in languages)
        with open(one, "wb") as sources, open(other, "wb") as targets:
            for source, target in written:
                sources.write(_line(source))
                targets.write(_line(target))
    files.give_name(growing, folder)
    files.remove(folder / _CHUNKS)


def _check_origin(folder: pathlib.Path, origin: Mapping[str, Any]) -> None:
    """Refuse a folder of something else than these translations."""
    try:
        found = dict(json.loads((folder / _ORIGIN).read_text("utf-8")))
        if "teacher" in found:  # As older versions called it.
            found["model"] = found.pop("teacher")
    except (OSError, ValueError, TypeError):
        raise UserError(
            f"{folder} exists, and holds no translations made here; choose "
            "another place."
        ) from None
    # Older versions noted what is no longer asked as false.
    names = [
        name
        for name in {**found, **origin}
        if (found.get(name) or None) != (origin.get(name) or None)
    ]
    if names:
        raise UserError(
            f"{folder} holds translations of another {', '.join(names)} than "
            "this call asks for; remove it or choose another place."
        )


def _load(run: Run, noted: str) -> Translator:
    """Load a run, whose weights must be those that were noted."""
    translator = run.translator()
    if translator.weights.identity != noted:
        raise UserError(
            f"The weights in {run.path} changed before they were loaded; begin "
            "again when its training has ended."
        )
    return translator


def _line(text: str) -> bytes:
    # A corpus may hold no NUL, which a sampled translation may.
    line = lines.on_one_line(text).replace("\0", " ")
    return f"{line}\n".encode("utf-8", "replace")


def _checksum(texts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(f"{text}\n".encode("utf-8", "replace"))
    return digest.hexdigest()
