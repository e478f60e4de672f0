"""Trains a student on its teacher's translations (Kim and Rush, 2016).

A teacher, one model or an ensemble, translates the training text once. A
student learns these translations more easily than those of people, so a smaller
or faster model comes closer to its teacher.
"""

import itertools
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import sacrebleu

from keras_transformer.config import UserError
from keras_transformer.data import lines
from keras_transformer.data.corpus import Corpus, Pair
from keras_transformer.machine import files
from keras_transformer.run import Run, log_shown, train
from keras_transformer.runs import lock
from keras_transformer.runs.layout import DISTILLED, TOKENIZER_FILE
from keras_transformer.training.request import Asked
from keras_transformer.translation.display import SentenceDisplay
from keras_transformer.translation.translator import Translator

# Pairs that are translated before they are written.
CHUNK = 1_000
_ORIGIN = "origin.json"

logger = logging.getLogger("keras_transformer")


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
    one, the split `test` of the original. The same call again resumes after the
    last 1,000 texts that were translated.

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
            teacher's unless you give `tokenizer`, `init_from` or `symbols`.

    Returns:
        The student's run.

    Raises:
        UserError: If the request makes no sense, or the folder holds
            translations of another teacher or text.
    """
    if not isinstance(teacher, Run):
        teacher = Run(teacher)
    if pathlib.Path(run_dir).resolve() == teacher.path.resolve():
        raise UserError(
            "Expected another run_dir for the student than the teacher's, "
            f"received {run_dir} for both."
        )
    own = (arguments.get(x) for x in ("tokenizer", "init_from", "symbols"))
    if all(vocabulary is None for vocabulary in own):
        arguments["tokenizer"] = teacher.path / TOKENIZER_FILE
    asked = Asked.understand(run_dir=run_dir, **arguments)
    if asked.session.strategy == "multiworker":
        raise UserError(
            "Expected one machine, since each would translate the whole text, "
            "received `strategy` multiworker; distill on one and train on its "
            f"{DISTILLED} with all."
        )
    of_teacher = teacher.config
    languages = asked.corpus.source_lang, asked.corpus.target_lang
    if languages != (of_teacher.source_lang, of_teacher.target_lang):
        raise UserError(
            f"Expected a teacher of {languages[0]} to {languages[1]}, received "
            f"{of_teacher.source_lang} to {of_teacher.target_lang} in "
            f"{teacher.path}; choose another or change the languages."
        )
    folder = asked.path / DISTILLED
    with log_shown(), lock.only_writer(asked.path):
        work = _Distillation(
            teacher,
            asked.corpus,
            asked.run.train_split,
            asked.run.validation_split,
            folder,
        )
        work.finish(keep_originals, closest)
    # Its validation text is a split of the folder now.
    arguments["validation_share"] = None
    return train(run_dir, **{**arguments, "corpus": folder})


class _Distillation:
    """The teacher's translations of a corpus, in a folder.

    Until they are complete, they grow in `FOLDER.unfinished`.

    Args:
        teacher: The teacher.
        corpus: The corpus.
        train_split: Its split to translate.
        validation_split: Its split to copy.
        folder: The folder to write.

    Raises:
        UserError: If the corpus lacks a split.
    """

    def __init__(
        self,
        teacher: Run,
        corpus: Corpus,
        train_split: str,
        validation_split: str,
        folder: pathlib.Path,
    ) -> None:
        self._teacher = teacher
        self._corpus = corpus
        self._train_split = train_split
        corpus.find(train_split, "train_split")
        corpus.find(validation_split, "validation_split")
        self._copied = {validation_split} | ({"test"} & {*corpus.splits})
        self._folder = folder
        self._growing = folder.with_name(f"{folder.name}.unfinished")

    def finish(self, keep_originals: bool, closest: bool) -> None:
        """Write what the folder lacks."""
        origin = {
            "teacher": self._teacher.card().weights,
            "text": self._corpus.fingerprint(self._train_split),
            "keep_originals": keep_originals,
            "closest": closest,
        }
        for folder in (self._folder, self._growing):
            if folder.exists() and _origin_of(folder) != origin:
                raise UserError(
                    f"{folder} holds translations of another teacher or text, "
                    "or made otherwise; remove it or choose another run_dir."
                )
        if self._folder.exists():
            return
        if not self._growing.exists():
            with files.whole(self._growing) as made:
                made.mkdir()
                (made / _ORIGIN).write_text(json.dumps(origin, indent=2))
        originals = list(self._corpus.pairs(self._train_split))
        sources = [source for source, _ in originals]
        growing = self._growing / "translations.txt"
        translations = self._translate(growing, originals, closest)
        distilled = [*zip(sources, translations, strict=True)]
        if keep_originals:
            distilled += originals
        self._write(self._train_split, distilled)
        for split in self._copied:
            self._write(split, list(self._corpus.pairs(split)))
        files.give_name(self._growing, self._folder)
        (self._folder / growing.name).unlink()

    def _translate(
        self, path: pathlib.Path, pairs: Sequence[Pair], closest: bool
    ) -> list[str]:
        """Append the translations that a file lacks; return all.

        Raises:
            UserError: If all are empty.
        """
        with open(path, "a+b") as file:
            done = _cut_to_chunks(file, len(pairs))
            if done < len(pairs):
                self._append_translations(file, pairs, done, closest)
            file.seek(0)
            translations = list(lines.read_lines(file, str(path)))
        if not any(translations):
            raise UserError(
                f"Expected translations by {self._teacher}, received empty "
                "ones alone; train the teacher for longer, and remove "
                f"{self._growing}."
            )
        return translations

    def _append_translations(
        self,
        file: BinaryIO,
        pairs: Sequence[Pair],
        done: int,
        closest: bool,
    ) -> None:
        translator = self._teacher.translator()
        logger.info(
            "Translating %d of %d texts.", len(pairs) - done, len(pairs)
        )
        with SentenceDisplay(len(pairs), done=done) as display:
            how = dict(
                max_source_length=self._teacher.config.training.max_length,
                progress=display,
            )
            for start in range(done, len(pairs), CHUNK):
                chunk = pairs[start : start + CHUNK]
                _append(file, _translations(translator, chunk, closest, how))
                file.flush()
                os.fsync(file.fileno())
                display.end_chunk(len(chunk))

    def _write(self, split: str, pairs: Sequence[Pair]) -> None:
        """Write both sides of a split."""
        languages = self._corpus.source_lang, self._corpus.target_lang
        for side, language in enumerate(languages):
            path = self._growing / f"{split}.{language}"
            with files.open_whole(path) as file:
                _append(file, (pair[side] for pair in pairs))


def _origin_of(folder: pathlib.Path) -> Any:
    try:
        return json.loads((folder / _ORIGIN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _cut_to_chunks(file: BinaryIO, total: int) -> int:
    """Cut a file after its last whole chunk; return its number of lines.

    So the chunks of a run that was killed are those of one that was not, and
    so are the roundings in a batch.
    """
    file.seek(0)
    ends = list(itertools.accumulate(len(line) for line in file))
    count = len(ends)
    if count < total:
        count -= count % CHUNK
    file.truncate(ends[count - 1] if count else 0)
    return count


def _append(file: BinaryIO, texts: Iterable[str]) -> None:
    file.writelines(f"{lines.on_one_line(text)}\n".encode() for text in texts)


def _translations(
    translator: Translator,
    pairs: Sequence[Pair],
    closest: bool,
    how: dict[str, Any],
) -> list[str]:
    """Translate the sources of pairs."""
    sources = [source for source, _ in pairs]
    if not closest:
        return translator.translate(sources, split_sentences=False, **how)
    found = translator.translate(
        sources, n_best=translator.search.beam_size, **how
    )
    # Of equals, the first, which the teacher finds best.
    bleu = sacrebleu.BLEU(effective_order=True)
    return [
        max(
            (each.text for each in hypotheses),
            key=lambda text: bleu.sentence_score(text, [original]).score,
        )
        for hypotheses, (_, original) in zip(found, pairs, strict=True)
    ]
