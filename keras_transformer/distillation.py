"""Trains a student on its teacher's translations (Kim and Rush, 2016).

A teacher, one model or an ensemble, translates the training text once. A
student learns these translations more easily than those of people, so a smaller
or faster model comes closer to its teacher.
"""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import sacrebleu

from keras_transformer.config import UserError
from keras_transformer.data.corpus import Corpus, Pair
from keras_transformer.run import Run, log_shown, train
from keras_transformer.runs import lock
from keras_transformer.runs.layout import DISTILLED, TOKENIZER_FILE
from keras_transformer.runs.vocabulary import load_vocabulary
from keras_transformer.training.preparation import check_tags
from keras_transformer.training.request import Asked
from keras_transformer.translation.display import SentenceDisplay
from keras_transformer.translation.translated_corpus import TranslatedCorpus
from keras_transformer.translation.translator import Hypothesis


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
    # The name of the folder to train on has no tags.
    check_tags(asked.run.corpus, load_vocabulary(teacher.path))
    if arguments.get("symbols") is not None:
        arguments["symbols"] = asked.run.symbols
    folder = asked.path / DISTILLED
    splits = asked.run.train_split, asked.run.validation_split
    asked.corpus.find(splits[0], "train_split")
    asked.corpus.find(splits[1], "validation_split")
    with log_shown(), lock.only_writer(asked.path):
        _translate(
            teacher, asked.corpus, splits, folder, keep_originals, closest
        )
    # Its validation text is a split of the folder now.
    arguments["validation_share"] = None
    return train(run_dir, **{**arguments, "corpus": folder})


def _translate(
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
    made = TranslatedCorpus(
        folder,
        {
            "teacher": teacher.card().weights,
            "text": corpus.fingerprint(split),
            "keep_originals": keep_originals,
            "closest": closest,
        },
    )
    if made.is_complete:
        return
    originals = list(corpus.pairs(split))
    made.translate(
        originals, len(originals), lambda: _translating(teacher, closest)
    )
    sources = [source for source, _ in originals]
    distilled = [*zip(sources, made.translations(), strict=True)]
    written = {split: distilled + (originals if keep_originals else [])}
    for name in {*copied, *({"test"} & {*corpus.splits})}:
        written[name] = list(corpus.pairs(name))
    for name, pairs in written.items():
        made.write(f"{name}.{corpus.source_lang}", (pair[0] for pair in pairs))
        made.write(f"{name}.{corpus.target_lang}", (pair[1] for pair in pairs))
    made.complete()


def _translating(
    teacher: Run, closest: bool
) -> Callable[[Sequence[Pair], SentenceDisplay], list[str]]:
    """Load the teacher; return the function that translates sources."""
    translator = teacher.translator()
    longest = teacher.config.training.max_length

    bleu = sacrebleu.BLEU(effective_order=True)

    def nearest(hypotheses: Sequence[Hypothesis], original: str) -> str:
        # Of equals, the first, which the teacher finds best.
        return max(
            (each.text for each in hypotheses),
            key=lambda text: bleu.sentence_score(text, [original]).score,
        )

    def translate(
        pairs: Sequence[Pair], progress: SentenceDisplay
    ) -> list[str]:
        sources, originals = zip(*pairs, strict=True)
        how: dict[str, Any] = dict(max_source_length=longest, progress=progress)
        if not closest:
            return translator.translate(sources, split_sentences=False, **how)
        found = translator.translate(
            sources, n_best=translator.search.beam_size, **how
        )
        return [*map(nearest, found, originals)]

    return translate
