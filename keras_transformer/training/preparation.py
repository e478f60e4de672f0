"""Prepares the run directory of a training: vocabulary and records."""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import random
from collections.abc import Iterator

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.data import batching, inspection
from keras_transformer.data.corpus import Corpus, Pair
from keras_transformer.data.mixture import tags_of
from keras_transformer.data.paired_tokenizer import load_tokenizer
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files
from keras_transformer.runs import layout
from keras_transformer.runs.checkpoints import list_checkpoints
from keras_transformer.runs.run_config import RunConfig, begun_config
from keras_transformer.runs.vocabulary import checksum_of, load_vocabulary
from keras_transformer.training.building import check_initial, initial_record
from keras_transformer.training.display import heartbeat, log_count
from keras_transformer.training.planning import plan_batches
from keras_transformer.training.validation import validation_batches
from keras_transformer.translation.evaluation import longest_source

logger = logging.getLogger("keras_transformer")
VALIDATION_SAMPLE = 200  # sentences
# A few thousand sentences in large batches would be mostly padding.
VALIDATION_TOKENS = 4_096
# Fields of a recipe that a resumed run may change: they affect how long it
# trains and what it keeps, not the result.
CHANGEABLE = (
    "steps",
    "average",
    "checkpoint_minutes",
    "checkpoint_steps",
    "keep_checkpoints",
    "validation_steps",
    "target_bleu",
    "patience",
    "patience_on",
)


def prepare(
    run: RunConfig,
    run_dir: pathlib.Path,
    corpus: Corpus,
    tokenizer: Tokenizer | None,
) -> tuple[
    RunConfig, Tokenizer, batching.BatchPlan, tf.data.Dataset, list[Pair]
]:
    """Write the files that a training needs.

    A refusal leaves what was made of the text, for the next request to take.
    The arguments are those of `loop.train`, with the tokenizer read.

    Returns:
        The run, completed from the text, its vocabulary, and the others as in
        `prepare_data`.

    Raises:
        UserError: If the request does not fit the run directory.
    """
    files.remove_leftovers(
        run_dir,
        run_dir / layout.CHECKPOINTS,
        run_dir / layout.LOGS,
        run_dir / layout.RECORDS,
    )
    run, tokenizer = prepare_tokenizer(run, run_dir, corpus, tokenizer)
    run, plan, validation, sample = prepare_data(
        run, run_dir, corpus, tokenizer
    )
    run.save(run_dir)
    return run, tokenizer, plan, validation, sample


def check_beginning(
    run: RunConfig, run_dir: pathlib.Path, corpus: Corpus
) -> None:
    """Refuse at once a training that would fail after an hour.

    Raises:
        UserError: If the corpus lacks a split, or `run_dir` cannot be a run.
    """
    is_new = not layout.has_begun(run_dir)
    for split, flag in (
        (run.train_split, "train_split"),
        (run.validation_split, "validation_split"),
    ):
        corpus.find(split, flag)
        if is_new:  # Otherwise the fingerprint shows that the text is good.
            with heartbeat(f"Reading the text of {split}"):
                corpus.pairs(split, flag)
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(
            f"Expected a directory as `run_dir`, received {run_dir}, which is "
            "a file; choose another name."
        )
    has_config = (run_dir / layout.CONFIG_FILE).exists()
    if not has_config and list_checkpoints(run_dir):
        raise UserError(
            f"{run_dir} has checkpoints but no {layout.CONFIG_FILE} that "
            "describes them; restore the file, or choose another `run_dir`."
        )


def take_vocabulary(
    run: RunConfig, tokenizer: Tokenizer | str | os.PathLike | None
) -> tuple[RunConfig, Tokenizer | None]:
    """Read a vocabulary made elsewhere, and note its size in the run.

    Raises:
        UserError: If there is no such file, or it cannot be used.
    """
    if tokenizer is None:
        return run, None
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = load_tokenizer(tokenizer)
    size = tokenizer.vocab_size
    return dataclasses.replace(run, requested_vocab_size=size), tokenizer


def prepare_tokenizer(
    run: RunConfig,
    run_dir: pathlib.Path,
    corpus: Corpus,
    given: Tokenizer | None = None,
) -> tuple[RunConfig, Tokenizer]:
    """Train the vocabulary, take over the one given, or load the run's own.

    Returns:
        The run, with the vocabulary's real size, and the tokenizer.

    Raises:
        UserError: If the run was trained with another one.
    """
    path = run_dir / layout.TOKENIZER_FILE
    if saved := begun_config(run_dir):
        check_initial(run, saved, run_dir)
        run = run.resume(saved, CHANGEABLE, run_dir)
        tokenizer = load_vocabulary(run_dir)
        if given and given.model != tokenizer.model:
            raise UserError(
                f"{run_dir} was trained with another vocabulary than the "
                "`tokenizer` given; give the same, or choose another `run_dir`."
            )
        return run, tokenizer
    run_dir.mkdir(parents=True, exist_ok=True)
    made_for = None
    if run.initial:
        source = pathlib.Path(run.initial["run_dir"])
        given = load_vocabulary(source)
        run = dataclasses.replace(run, initial=initial_record(source))
        split = RunConfig.load(source).train_split
        with contextlib.suppress(UserError, OSError):  # It may have none.
            made_for = TokenisedCorpus.load(source / layout.RECORDS / split)
    if given:
        tokenizer = given
        check_tags(run.corpus, tokenizer)
        inspection.warn_of_misfit(
            corpus.pairs(run.train_split),
            tokenizer,
            made_for,
            (run.source_lang, run.target_lang),
        )
        tokenizer.save(path)
    else:
        tokenizer = _learn_vocabulary(run, run_dir, corpus)
    model = dataclasses.replace(run.model, vocab_size=tokenizer.vocab_size)
    return dataclasses.replace(run, model=model), tokenizer


def check_tags(corpus: str, tokenizer: Tokenizer) -> None:
    """Refuse a vocabulary that would spell the tags of a mixture.

    Raises:
        UserError: If it lacks one of them.
    """
    tags = tags_of(corpus)
    pieces = tags and tokenizer.pieces(range(tokenizer.vocab_size))
    for tag in tags:
        if tag not in pieces:
            raise UserError(
                f"Expected a vocabulary with the piece {tag}, a tag in "
                "`corpus`, received one without; leave the tag out, or learn a "
                "new vocabulary."
            )


def _learn_vocabulary(
    run: RunConfig, run_dir: pathlib.Path, corpus: Corpus
) -> Tokenizer:
    """Train the vocabulary, or load it if a killed process has trained it."""
    path = run_dir / layout.TOKENIZER_FILE
    size = run.model.vocab_size
    remembered = Remembered(run_dir)
    with heartbeat(f"Reading the text of {run.train_split}"):
        fingerprint = remembered.fingerprint(corpus, run.train_split, None)
    symbols = run.symbols or ()
    normalization = run.training.normalization
    made_of = " ".join([fingerprint, str(normalization), *symbols])
    if path.exists():
        tokenizer = Tokenizer.load(path)
        noted = [size, made_of, checksum_of(tokenizer)]
        if remembered.notes.get("vocabulary") == noted:
            logger.info("Taking the vocabulary that is there already.")
            return tokenizer
    logger.info("Training a vocabulary of %d pieces.", size)
    with heartbeat("Training the vocabulary"):
        tokenizer = Tokenizer.train(
            corpus.sentences(run.train_split),
            *(size, path, symbols, normalization),
        )
    remembered.notes["vocabulary"] = [size, made_of, checksum_of(tokenizer)]
    remembered.save()
    return tokenizer


def prepare_records(
    run: RunConfig, run_dir: pathlib.Path, corpus: Corpus, tokenizer: Tokenizer
) -> tuple[RunConfig, TokenisedCorpus, TokenisedCorpus]:
    """Tokenise the corpus unless that is done.

    Returns:
        The run with the fingerprints of its text, and the records to train on
        and to validate on.

    Raises:
        UserError: If the text is not the one that the run began with.
    """
    roles = {"train": run.train_split, "validation": run.validation_split}
    known = run.fingerprints or {}
    remembered = Remembered(run_dir)
    with heartbeat("Checking that the text is the same"):
        found = {
            role: remembered.fingerprint(corpus, split, known.get(role))
            for role, split in roles.items()
        }
    run = run.with_fingerprints(found, run_dir)
    run = dataclasses.replace(run, vocabulary=checksum_of(tokenizer))
    remembered.save()
    looking = inspection.Inspection(corpus)
    with heartbeat("Preparing the token records"):
        train, validation = (
            TokenisedCorpus.build(
                looking.watch(_pairs(corpus, split))
                if role == "train"
                else _pairs(corpus, split),
                tokenizer,
                run_dir / layout.RECORDS / split,
                # Never drop a validation sentence; a long one is cut below.
                max_length=run.training.max_length if role == "train" else None,
                fingerprint=f"{found[role]} {run.vocabulary}",
                progress=log_count(f"pairs of {split} tokenised"),
            )
            for role, split in roles.items()
        )
    # Nothing was read if the records were there.
    if advice := looking.findings().advice(train.dropped):
        logger.warning(advice)
    return run, train, validation


def prepare_data(
    run: RunConfig, run_dir: pathlib.Path, corpus: Corpus, tokenizer: Tokenizer
) -> tuple[RunConfig, batching.BatchPlan, tf.data.Dataset, list[Pair]]:
    """Tokenise the corpus unless that is done, and plan the batches.

    Returns:
        The run as in `prepare_records`, the training plan, the validation
        batches, and the pairs to watch BLEU on.
    """
    run, train, validation = prepare_records(run, run_dir, corpus, tokenizer)
    recipe = run.training
    with heartbeat("Planning the batches"):
        plan = plan_batches(train, recipe, tokenizer)
    _describe(run, plan, len(validation))
    batches = validation_batches(
        validation,
        min(recipe.batch_tokens, VALIDATION_TOKENS),
        longest_source(recipe.max_length),
        run.validation_split,
        run.search.max_extra_length,
    )
    return run, plan, batches, _watched(run, run_dir, corpus)


def _watched(run: RunConfig, run_dir: pathlib.Path, corpus: Corpus) -> list:
    """Choose the pairs to watch BLEU on; a resumed run reads no text."""
    remembered, seed = Remembered(run_dir), run.training.seed
    chosen_from = [(run.fingerprints or {}).get("validation"), seed]
    try:
        known, pairs = remembered.notes["watched"]
    except (KeyError, ValueError, TypeError):
        known = None
    if known != chosen_from:
        pairs = list(corpus.pairs(run.validation_split))
        random.Random(seed).shuffle(pairs)
        del pairs[VALIDATION_SAMPLE:]
        remembered.notes["watched"] = [chosen_from, pairs]
        remembered.save()
    return [(source, target) for source, target in pairs]


def _pairs(corpus: Corpus, split: str) -> Iterator[Pair]:
    """Read the pairs of a split, checking it only when the first is needed."""
    yield from corpus.pairs(split)


def _describe(run: RunConfig, plan: batching.BatchPlan, validated: int) -> None:
    train = plan.corpus
    largest = max(b * max(s, t) for b, s, t in plan.shapes())
    logger.info(
        "%s: %d training pairs in %d batch%s of up to %d tokens a side, "
        "padding %.1f %%; %d pairs dropped as longer than %d tokens, %d as "
        "empty.",
        run.corpus,
        len(train),
        len(plan),
        "es" if len(plan) > 1 else "",
        largest,
        100 * plan.padding_waste(),
        train.dropped,
        run.training.max_length,
        train.empty,
    )
    held_out = run.training.validation_share is not None
    logger.info(
        "%s: %d pairs to validate on%s.",
        run.validation_split,
        validated,
        f", held out of {run.train_split}" if held_out else "",
    )
    if largest > run.training.batch_tokens:
        logger.warning(
            "Some pairs are longer than `batch_tokens` %d: each is a batch of "
            "its own.",
            run.training.batch_tokens,
        )


class Remembered:
    """The notes of a run directory: what its text and vocabulary were.

    Attributes:
        notes: Under `text SPLIT`, the state of the files and the fingerprint;
            under `watched`, the fingerprint, the seed and the pairs to watch;
            under `vocabulary`, the size asked for, the fingerprint,
            normalization and symbols it was made of, and its checksum. `save`
            writes new ones.
    """

    def __init__(self, run_dir: pathlib.Path) -> None:
        self.path = run_dir / layout.RECORDS / layout.REMEMBERED_FILE
        try:
            self.notes = dict(json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            self.notes = {}
        self._read = dict(self.notes)

    def fingerprint(self, corpus: Corpus, split: str, known: str | None) -> str:
        """Fingerprint a split; read it unless it is `known` and unchanged."""
        name = f"text {split}"
        stamp = corpus.fingerprint_stamp(split)
        if known is not None and self.notes.get(name) == [stamp, known]:
            return known
        fingerprint = corpus.fingerprint(split)
        if stamp is not None and stamp == corpus.fingerprint_stamp(split):
            self.notes[name] = [stamp, fingerprint]
        return fingerprint

    def save(self) -> None:
        """Write the notes, if there are new ones."""
        if self.notes != self._read:
            self.path.parent.mkdir(exist_ok=True)
            files.write_text(self.path, json.dumps(self.notes, indent=2))
