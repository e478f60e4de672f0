"""Corpora that models write: for a student, or of text translated back.

A teacher, one model or an ensemble, translates a training text once. A student
learns these translations more easily than those of people, so a smaller or
faster model comes closer to its teacher (Kim and Rush, 2016).

A model of the reverse direction translates text that has no translation. The
pairs have a machine's sentences as sources and real ones as targets (Sennrich
et al., 2016), and train a model beside real pairs.
"""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import sacrebleu

from keras_transformer.config import SettingError, UserError
from keras_transformer.data import folders, lines
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.languages import language_of, words_of
from keras_transformer.data.texts import checked_texts
from keras_transformer.machine import exhaustion, files
from keras_transformer.run import Run, train
from keras_transformer.runs import lock
from keras_transformer.runs.layout import DISTILLED, TOKENIZER_FILE
from keras_transformer.runs.run_config import begun_config, load_vocabulary
from keras_transformer.training.preparation import check_tags
from keras_transformer.training.request import log_shown, understand
from keras_transformer.translation.evaluation import (
    bleu_tokenizer,
)
from keras_transformer.translation.text_batches import Hypothesis
from keras_transformer.translation.translated_corpus import TranslatedCorpus
from keras_transformer.translation.translator import Translator, search_with

# Edunov et al. (2018): shares of words, and places.
_DROPPED = 0.1
_BLANKED = 0.1
_MOVED = 3
_BLANK = "_"

_LESS_MEMORY = "end other programs that need it"

logger = logging.getLogger("keras_transformer")


@exhaustion.explained(_LESS_MEMORY)
def distill(
    teacher: Run | str | os.PathLike,
    run_dir: str | os.PathLike,
    *,
    keep_originals: bool = False,
    closest: bool = False,
    **arguments: Any,
) -> Run:
    """Train a student on its teacher's translations of a training text.

    The teacher searches as its run says. Its translations are kept in
    `run_dir/distilled`, a corpus with the validation split and, if there is
    one, the split `test` of the original. Sources that are longer than the
    teacher reads are left out, and the log counts them. The same call again
    resumes after the last 1,000 texts that were translated.

    Example:
        teacher = kt.Run("runs/seed-1", ensemble=["runs/seed-2"])
        kt.distill(teacher, "runs/student", corpus="my-text", preset="tiny")

    Args:
        teacher: A run, or its directory.
        run_dir: The student's run directory.
        keep_originals: Whether the student learns the original translations
            too.
        closest: Whether to take the hypothesis of the teacher's beam that is
            closest to the original translation, by BLEU of the sentence, and
            not the one with the best score.
        **arguments: All other arguments of `train`. The vocabulary is the
            teacher's unless you give `tokenizer`, `init_from`, `symbols` or
            `normalization`.

    Returns:
        The student's run.

    Raises:
        UserError: If the request makes no sense, or the folder holds
            translations of another teacher, search or text.
    """
    if not isinstance(teacher, Run):
        teacher = Run(teacher)
    if pathlib.Path(run_dir).resolve() == teacher.path.resolve():
        raise UserError(
            "Expected another run_dir for the student than the teacher's, "
            f"received {run_dir} for both."
        )
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
    corpus = asked.open_text()
    if asked.strategy == "multiworker":
        raise UserError(
            "Distillation runs on one machine, but with `strategy` multiworker "
            "every worker would translate the corpus; distill on one and train "
            f"on its {DISTILLED} with all."
        )
    of_teacher = teacher.config
    languages = corpus.source_lang, corpus.target_lang
    if languages != (of_teacher.source_lang, of_teacher.target_lang):
        raise UserError(
            f"Expected a teacher of {languages[0]} to {languages[1]}, received "
            f"{of_teacher.source_lang} to {of_teacher.target_lang} in "
            f"{teacher.path}; choose another or change the languages."
        )
    # The name of the folder to train on has no tags.
    check_tags(asked.run.corpus, load_vocabulary(teacher.path))
    if arguments.get("symbols") is not None:
        arguments["symbols"] = asked.run.symbols
    splits = asked.run.splits
    corpus.find(splits[0], "train_split")
    corpus.find(splits[1], "validation_split")
    # Its validation text is a split of the folder then.
    of_student = {**arguments, "corpus": None, "validation_share": None}
    if begun:  # Which may refuse settings: before the work.
        understand(run_dir=run_dir, **of_student)
    with log_shown(), lock.only_writer(run_dir):
        _teach(teacher, corpus, splits, folder, keep_originals, closest)
    return train(run_dir, **{**of_student, "corpus": folder})


def with_vocabulary(teacher: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add the teacher's vocabulary unless the arguments choose another."""
    own = ("tokenizer", "init_from", "symbols", "normalization")
    if any(arguments.get(name) is not None for name in own):
        return arguments
    return {**arguments, "tokenizer": teacher.path / TOKENIZER_FILE}


def _teach(
    teacher: Run,
    corpus: Corpus,
    splits: tuple[str, str],
    folder: pathlib.Path,
    keep_originals: bool,
    closest: bool,
) -> None:
    """Write a corpus of the teacher's translations, unless it is there.

    The first of `splits` is translated, that of validation is copied.
    """
    split, *copied = splits
    of_teacher = teacher.config
    search = search_with(
        of_teacher.search,
        n_best=of_teacher.search.beam_size if closest else 1,
        max_source_length=of_teacher.training.max_length,
    )
    originals = list(corpus.pairs(split))
    sources = [source for source, _ in originals]
    identity = teacher.chosen().identity
    origin = _origin(
        teacher,
        teacher=identity,
        text=_checksum(itertools.chain.from_iterable(originals)),
        keep_originals=keep_originals,
        closest=closest,
    )
    made = TranslatedCorpus(folder, origin, search)
    if made.is_complete:
        return
    choose = _chooser(corpus.target_lang)

    def pick(number: int, found: Sequence[Hypothesis]) -> str:
        return choose(found, originals[number][1])

    load = functools.partial(_load, teacher, identity)
    made.translate(sources, len(sources), load, pick if closest else _best)
    written = {split: [*made.pairs(sources), *keep_originals * originals]}
    for name in {*copied, *({"test"} & {*corpus.splits})}:
        written[name] = list(corpus.pairs(name))
    for name, pairs in written.items():
        made.write(name, (corpus.source_lang, corpus.target_lang), pairs)
    made.complete()


def _chooser(
    target_lang: str,
) -> Callable[[Sequence[Hypothesis], str], str]:
    """Return a function that picks the hypothesis closest to an original."""
    tokenize = bleu_tokenizer(target_lang)
    bleu = sacrebleu.BLEU(effective_order=True, tokenize=tokenize)

    def choose(hypotheses: Sequence[Hypothesis], original: str) -> str:
        # Of equals, the first, which the teacher finds best.
        return max(
            (each.text for each in hypotheses),
            key=lambda text: bleu.sentence_score(text, [original]).score,
        )

    return choose


@exhaustion.explained(_LESS_MEMORY)
def backtranslate(
    reverse: Run | str | os.PathLike,
    text: str | os.PathLike | Iterable[str],
    output: str | os.PathLike,
    *,
    noise: bool = False,
    average: int | None = None,
    precision: str | None = None,
    shortlist: str | os.PathLike | None = None,
    parallel: int | None = None,
    **options: Any,
) -> pathlib.Path:
    """Make a corpus of text and its translations into the source language.

    The folder has the split `train` alone. The translations are its source
    side, the text is its target side. Texts that are blank, or longer than the
    run reads, are left out, and the log counts them. The same call again
    resumes after the last 1,000 texts that were translated.

    Example:
        kt.backtranslate("runs/de-en", "more.de", "backtranslated")
        kt.train("runs/en-de", corpus=["my-text", "backtranslated:0.5:<bt>"])

    Args:
        reverse: A run that translates from the target language into the source
            language, or its directory.
        text: A file in UTF-8, one text a line, plain or gzipped, or texts: in
            the language that `reverse` reads.
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
    if shortlist:
        lines.open_file(shortlist, "`shortlist`").close()
    reverse = reverse.using(
        average=average, precision=precision, shortlist=shortlist
    )
    if options.get("n_best", 1) != 1:
        raise SettingError(
            "n_best", "1, a source for each text", options["n_best"]
        )
    run, folder = reverse.config, pathlib.Path(os.path.abspath(output))
    lock_folder = folder.with_name(f"{folder.name}.lock")
    limit = {"max_source_length": run.longest_source}
    search = search_with(run.search, **{**limit, **options})
    if not isinstance(text, str | os.PathLike):
        text = list(checked_texts("text", text))  # It is opened twice.
    count, checksum, read = _open(text)
    identity = reverse.chosen().identity
    origin = _origin(reverse, model=identity, text=checksum, noise=noise)
    load = functools.partial(_load, reverse, identity)
    pick = functools.partial(_noised, run.target_lang) if noise else _best
    with log_shown(), lock.only_writer(lock_folder):
        made = TranslatedCorpus(folder, origin, search)
        if not made.is_complete:
            logger.info(
                "Reading text in %s, writing its translations into %s: pairs "
                "to train %s to %s.",
                *(run.source_lang, run.target_lang) * 2,
            )
            made.translate(read(), count, load, pick, parallel)
            if _open(text)[:2] != (count, checksum):
                raise UserError(
                    f"{text} changed while it was translated; remove "
                    f"{folder}.unfinished and begin again."
                )
            languages = run.source_lang, run.target_lang
            made.write("train", languages, made.pairs(read()))
            made.complete()
    # A process that was killed has left it.
    with contextlib.suppress(OSError):
        lock_folder.rmdir()
    return pathlib.Path(output)


def _origin(run: Run, **more: Any) -> dict[str, Any]:
    """Add to what translations are made of how the run multiplies."""
    words = run.weights.shortlist
    return {
        **more,
        "precision": run.weights.precision,
        "shortlist": words and files.checksum(words),
    }


def _load(run: Run, noted: Any) -> Translator:
    """Load a run, whose weights must be those that were noted."""
    translator = run.translator()
    if translator.weights.identity != noted:
        raise UserError(
            f"The weights in {run.path} changed before they were loaded; begin "
            "again when its training has ended."
        )
    return translator


def _best(number: int, found: Sequence[Hypothesis]) -> str:
    return found[0].text


def _noised(language: str, number: int, found: Sequence[Hypothesis]) -> str:
    return _with_noise(number, _best(number, found), language)


def _open(
    text: str | os.PathLike | Sequence[str],
) -> tuple[int, str, Callable[[], Iterable[str]]]:
    """Return the number of texts, their checksum, and what reads them."""
    if isinstance(text, str | os.PathLike):
        path = pathlib.Path(text)
        lines.open_file(path, "`text`").close()
        count = folders.count_lines(path)
        read = functools.partial(folders.read_texts, path)
    else:
        texts = list(checked_texts("text", text))
        count, read = len(texts), functools.partial(iter, texts)
    if not count:
        raise UserError("Expected texts as `text`, received none.")
    return count, _checksum(read()), read


def _checksum(texts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(f"{text}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _with_noise(number: int, text: str, language: str) -> str:
    """Drop, blank and move words; a text always keeps one.

    The draws depend on the text's number alone.
    """
    random = np.random.default_rng(number)
    spans = words_of(text, language)
    words = np.array([text[start:end] for start, end in spans], object)
    draws = random.random(len(words))
    words[draws < _DROPPED + _BLANKED] = _BLANK
    kept = words[draws >= _DROPPED]
    if not len(kept):
        return text
    # No word passes one that is more than `_MOVED` places away.
    places = np.arange(len(kept)) + random.random(len(kept)) * (_MOVED + 1)
    space = " " if language_of(language).has_spaces else ""
    return space.join(kept[np.argsort(places, kind="stable")])
