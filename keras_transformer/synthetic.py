"""Corpora that models write: for a student, or of text translated back.

A student learns the translations of a teacher, one model or several, more
easily than those of people (Kim and Rush, 2016). Text without a translation
becomes pairs with a machine's sentences as sources (Sennrich et al., 2016).
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_transformer.config import Search, UserError, logger
from keras_transformer.data import corpora, lines
from keras_transformer.data.texts import Pair, checked_texts
from keras_transformer.machine import files
from keras_transformer.run import Run, train
from keras_transformer.runs import layout
from keras_transformer.runs.run_config import begun_config, load_vocabulary
from keras_transformer.training import request
from keras_transformer.translation import unfinished
from keras_transformer.translation.display import SentenceDisplay


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
    teacher = teacher if isinstance(teacher, Run) else Run(teacher)
    given, begun = request.with_recipes(arguments), begun_config(run_dir)
    if not given.keys() & {"tokenizer", "init_from", "symbols"}:
        arguments["tokenizer"] = teacher.path / layout.TOKENIZER_FILE
        given = request.with_recipes(arguments)
    given.pop("run_dir", None)
    folder = pathlib.Path(run_dir, layout.DISTILLED)
    if not begun:
        _distil(teacher, folder, given)
    elif pathlib.Path(begun.corpus).name != layout.DISTILLED:
        raise UserError(
            "Expected a new `run_dir`, or one that began with distilled text, "
            f"received {run_dir}, which began with {begun.corpus}; choose "
            "another one."
        )
    # Its validation text is a split of the folder.
    given |= {"corpus": folder, "validation_share": None}
    return train(run_dir, **given)


def _distil(
    teacher: Run, folder: pathlib.Path, arguments: dict[str, Any]
) -> None:
    """Write the corpus of a student; complete its symbols in `arguments`."""
    asked, run = request.understand(run_dir=folder, **arguments), teacher.config
    corpus, (split, validation) = asked.text, asked.run.splits
    wanted, own = ((x.source_lang, x.target_lang) for x in (corpus, run))
    if wanted != own:
        raise UserError(
            f"Expected a teacher of {' to '.join(wanted)}, received one of "
            f"{' to '.join(own)} in {teacher.path}; change one of the two."
        )
    copied = {validation, *({"test"} & {*corpus.splits})}
    others = {name: corpus.pairs(name, "validation_split") for name in copied}
    # The name of the folder to train on has no tags.
    vocabulary = load_vocabulary(teacher.path, run)
    request.check_symbols(corpora.tags_of(asked.run.corpus), vocabulary)
    search = dataclasses.replace(
        run.search, n_best=1, max_source_length=run.training.max_length
    )
    with request.log_shown(), layout.only_writer(folder.parent):
        texts = (source for source, _ in corpus.pairs(split, "train_split"))
        _make(folder, teacher, texts, search, split, others)
    if arguments.get("symbols") is not None:
        arguments["symbols"] = asked.run.symbols


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
    reverse = reverse if isinstance(reverse, Run) else Run(reverse)
    options.setdefault("max_source_length", reverse.config.longest_source)
    search = dataclasses.replace(reverse.config.search, **options)
    if isinstance(text, str | os.PathLike):
        texts = lines.read_texts(pathlib.Path(text))
    else:
        texts = checked_texts("text", text)
    with request.log_shown():
        folder = pathlib.Path(output)
        _make(folder, reverse, texts, search, "train", {}, parallel)
    return folder


def _make(
    folder: pathlib.Path,
    run: Run,
    read: Iterable[str],
    search: Search,
    split: str,
    others: Mapping[str, Iterable[Pair]],
    parallel: int | None = None,
) -> None:
    """Write a corpus of texts and their translations; copy the others."""
    texts = list(read)
    of_texts = hashlib.blake2b(json.dumps(texts).encode(), digest_size=16)
    origin = {"text": of_texts.hexdigest()}
    origin |= run.chosen().deciding(search)
    noted, path = json.dumps(origin), folder / "origin.json"
    if path.is_file() and path.read_text("utf-8") == noted:
        return
    if folder.exists():
        raise UserError(
            f"{folder} exists, and was made by another model, search or text; "
            "choose another place."
        )
    languages = run.config.source_lang, run.config.target_lang
    logger.info("Translating %d texts from %s to %s.", len(texts), *languages)
    with unfinished.unfinished(folder) as kept:
        translator, display = run.translator(), SentenceDisplay(len(texts))
        from keras_transformer.translation.text_batches import Batching

        batching = Batching(parallel=parallel, progress=display)

        def translated(chunk: list[str]) -> Iterator[bytes]:
            n_best, are_cut = translator.search_texts(chunk, search, batching)
            for (best, *_), is_cut in zip(n_best, are_cut, strict=True):
                yield _line("" if is_cut else best.text)

        with display:
            chunks = unfinished.chunks(texts)
            unfinished.write_chunks(kept, chunks, translated, origin, display)
        said = (line.decode().rstrip("\n") for line in kept.lines())
        pairs = [x for x in zip(texts, said, strict=True) if x[1].strip()]
        if not pairs:
            raise UserError(
                "Expected texts and translations, found only empty ones; give "
                "other texts, or train the model for longer."
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
            (made / path.name).write_text(noted)


def _line(text: str) -> bytes:
    return f"{lines.on_one_line(text)}\n".encode("utf-8", "replace")
