"""Corpora that models write: for a student, or of text translated back.

A student learns the translations of a teacher, one model or several, more
easily than those of people (Kim and Rush, 2016). Text without a translation
becomes pairs with a machine's sentences as sources (Sennrich et al., 2016).
"""

import dataclasses
import hashlib
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_transformer.config import Search, UserError
from keras_transformer.data import lines
from keras_transformer.data.texts import Pair, checked_texts
from keras_transformer.machine import exhaustion, files
from keras_transformer.run import Run, train
from keras_transformer.runs import layout
from keras_transformer.runs.layout import DISTILLED, TOKENIZER_FILE
from keras_transformer.runs.run_config import begun_config, load_vocabulary
from keras_transformer.training.request import (
    check_symbols,
    log_shown,
    understand,
)
from keras_transformer.translation.display import SentenceDisplay
from keras_transformer.translation.unfinished import (
    chunks,
    deciding,
    unfinished,
    write_chunks,
)

_ORIGIN = "origin.json"
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
    resumes after the last 4,000 texts that were translated.

    Example:
        kt.distill("runs/big", "runs/student", corpus="my-text", preset="tiny")

    Args:
        teacher: A run, or its directory.
        run_dir: The student's run directory.
        **arguments: All other arguments of `train`. The vocabulary is the
            teacher's unless you give `tokenizer`, `init_from` or `symbols`.

    Returns:
        The student's run.
    """
    if not isinstance(teacher, Run):
        teacher = Run(teacher)
    own = ("tokenizer", "init_from", "symbols")
    if all(arguments.get(name) is None for name in own):
        arguments["tokenizer"] = teacher.path / TOKENIZER_FILE
    # Its validation text is a split of the folder; begun, it needs no text.
    of_student = {**arguments, "corpus": None, "validation_share": None}
    begun = begun_config(run_dir)
    if not begun:
        of_student |= _distilled(teacher, pathlib.Path(run_dir), arguments)
    elif pathlib.Path(begun.corpus).name != DISTILLED:
        raise UserError(
            "Expected a new run_dir for the student, or that of one that began "
            f"with its distilled text, received {run_dir}, which began with "
            f"{begun.corpus}; choose another one."
        )
    teacher.before_loading()
    return train(run_dir, **of_student)


def _distilled(
    teacher: Run, run_dir: pathlib.Path, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the corpus of a student; return it and the symbols to train on."""
    asked = understand(run_dir=run_dir / DISTILLED, **arguments)
    corpus, run = asked.text, teacher.config
    languages = corpus.source_lang, corpus.target_lang
    if languages != (run.source_lang, run.target_lang):
        raise UserError(
            f"Expected a teacher of {languages[0]} to {languages[1]}, received "
            f"{run.source_lang} to {run.target_lang} in {teacher.path}; choose "
            "another or change the languages."
        )
    split, validation = asked.run.splits
    copied = {validation, *({"test"} & {*corpus.splits})}
    others = {name: corpus.pairs(name, "validation_split") for name in copied}
    teacher.before_loading()
    # The name of the folder to train on has no tags.
    check_symbols(asked.run.corpus, False, load_vocabulary(teacher.path, run))
    with log_shown(), layout.only_writer(run_dir):
        _make(
            run_dir / DISTILLED,
            teacher,
            [source for source, _ in corpus.pairs(split, "train_split")],
            dataclasses.replace(
                run.search, n_best=1, max_source_length=run.training.max_length
            ),
            split,
            others,
        )
    is_given = arguments.get("symbols") is not None
    symbols = {"symbols": asked.run.symbols} if is_given else {}
    return {"corpus": run_dir / DISTILLED, **symbols}


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
    resumes after the last 4,000 texts that were translated.

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

    Reference:
        [Sennrich et al., 2016](https://aclanthology.org/P16-1009/).
    """
    if not isinstance(reverse, Run):
        reverse = Run(reverse)
    options.setdefault("max_source_length", reverse.config.longest_source)
    search = dataclasses.replace(reverse.config.search, **options)
    if isinstance(text, str | os.PathLike):
        lines.open_file(text, "`text`").close()
        texts = list(lines.read_texts(pathlib.Path(text)))
    else:
        texts = list(checked_texts("text", text))
    if not texts:
        raise UserError("Expected texts as `text`, received none.")
    folder = pathlib.Path(output)
    with log_shown():
        _make(folder, reverse, texts, search, "train", {}, parallel)
    return folder


def _make(
    folder: pathlib.Path,
    run: Run,
    texts: Sequence[str],
    search: Search,
    split: str,
    others: Mapping[str, Iterable[Pair]],
    parallel: int | None = None,
) -> None:
    """Write a corpus of texts and their translations; copy the others."""
    of_texts = hashlib.blake2b(json.dumps(texts).encode(), digest_size=16)
    origin = {"text": of_texts.hexdigest(), **deciding(run.chosen(), search)}
    noted, path = json.dumps(origin), folder / _ORIGIN
    if path.is_file() and path.read_text("utf-8") == noted:
        return
    if folder.exists():
        raise UserError(
            f"{folder} exists, and was made by another model, search or text; "
            "choose another place."
        )
    languages = run.config.source_lang, run.config.target_lang
    logger.info("Translating %d texts from %s to %s.", len(texts), *languages)
    with unfinished(folder) as kept:
        translator, display = run.translator(), SentenceDisplay(len(texts))
        from keras_transformer.translation.text_batches import Batching

        batching = Batching(parallel=parallel, progress=display)

        def translated(chunk: list[str]) -> Iterator[bytes]:
            n_best, are_cut = translator.search_texts(chunk, search, batching)
            for (best, *_), is_cut in zip(n_best, are_cut, strict=True):
                yield _line("" if is_cut else best.text)

        with display:
            write_chunks(kept, chunks(texts), translated, origin, display)
        said = (line.decode().rstrip("\n") for line in kept.lines())
        pairs = [x for x in zip(texts, said, strict=True) if x[1].strip()]
        if not pairs:
            raise UserError(
                "Expected translations, received empty ones alone; train the "
                "model for longer."
            )
        if left_out := len(texts) - len(pairs):
            logger.warning(
                "Left out %d of %d texts: blank, translated into nothing, or "
                "cut by the search, which reads %s tokens.",
                left_out,
                len(texts),
                search.max_source_length or "all",
            )
        with files.whole(folder) as made:
            made.mkdir()
            for name, written in {split: pairs, **others}.items():
                rows = list(written)
                for side, language in enumerate(languages):
                    with open(made / f"{name}.{language}", "wb") as file:
                        file.writelines(_line(row[side]) for row in rows)
            (made / _ORIGIN).write_text(noted)


def _line(text: str) -> bytes:
    # A corpus may hold no NUL, which a sampled translation may.
    line = lines.on_one_line(text).replace("\0", " ")
    return f"{line}\n".encode("utf-8", "replace")
