"""Prepares the run directory of a training: vocabulary and records."""

import contextlib
import dataclasses
import json
import pathlib
import random
import time

from keras_transformer import __version__
from keras_transformer.config import UserError, logger
from keras_transformer.data import inspection
from keras_transformer.data.corpora import Corpus
from keras_transformer.data.records import RECORDS_FILE, TokenisedCorpus
from keras_transformer.data.texts import Pair
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files
from keras_transformer.runs import averaging, layout
from keras_transformer.runs.checkpoints import list_checkpoints
from keras_transformer.runs.run_config import (
    RunConfig,
    checksum_of,
    load_tokenizer,
    load_vocabulary,
)
from keras_transformer.training import request
from keras_transformer.training.building import Training, plan_batches
from keras_transformer.training.display import heartbeat
from keras_transformer.training.request import Session
from keras_transformer.training.validation import validation_batches

VALIDATION_SAMPLE = 200  # sentences


def prepare(session: Session) -> Training:
    """Write the files that a training needs, or open those of a begun run.

    What a process that was killed or refused has left is made again, until the
    run has begun.
    """
    run_dir = session.run_dir
    folders = layout.CHECKPOINTS, layout.LOGS, layout.RECORDS
    files.remove_leftovers(run_dir, *(run_dir / name for name in folders))
    run, tokenizer = prepare_vocabulary(session, run_dir)
    recipe = run.training
    with heartbeat("Preparing the token records"):
        train, validation = (
            records_of(session, run, tokenizer, split) for split in run.splits
        )
    with heartbeat("Planning the batches"):
        plan = plan_batches(train, recipe)
    run = fitted(session, run, len(plan))
    if run.plan not in (None, known := plan.checksum()):
        _warn_of_other_batches(run, run_dir)
    machine = {"strategy": session.strategy, "minutes": session.minutes}
    for name, last in (run.machine or {}).items():
        if (now := machine.get(name)) != last:
            said = "The last session had `%s` %s, this one has %s."
            logger.info(said, name, last or "no limit", now or "no limit")
    run = dataclasses.replace(run, plan=known, machine=machine)
    logger.info(
        "%s: %d training pairs in %d batches, %d pairs dropped as longer than "
        "%d tokens, %d as empty. %s: %d pairs to validate on.",
        run.corpus,
        len(train),
        len(plan),
        train.dropped,
        recipe.max_length,
        train.empty,
        run.validation_split,
        len(validation),
    )
    batches = validation_batches(validation, run)
    watched = _watched(run, session)
    run.save(run_dir)
    session = dataclasses.replace(session, run=run)
    return Training(session, tokenizer, plan, batches, watched)


def fitted(session: Session, run: RunConfig, epoch: int) -> RunConfig:
    """Fit a new fine-tuning, where nothing is given, to updates of an epoch.

    Its rate begins where that of its source ended.
    """
    if not run.initial or layout.has_begun(session.run_dir):
        return run
    given, recipe = session.settings, run.training
    source_dir = run.initial["run_dir"]
    source = RunConfig.load(source_dir).training
    result = averaging.final_result(source_dir)
    made = result.step if result and result.step else source.steps
    steps = given.get("steps", min(made, 100 * epoch))
    every, warmup = max(steps // 30, 1), max(steps // 10, 1)
    chosen = {"steps": steps, "patience": 5}
    chosen["validation_steps"] = min(recipe.validation_steps, every)
    if not {"warmup_steps", "learning_rate_scale"} & given.keys():
        scale = source.learning_rate_scale * (warmup / made) ** 0.5
        chosen |= {"warmup_steps": warmup, "learning_rate_scale": scale}
    known = {name: given[name] for name in chosen.keys() & given.keys()}
    training = dataclasses.replace(recipe, **{**chosen, **known})
    return dataclasses.replace(run, training=training)


def read_prepared(session: Session) -> Training:
    """Read, as another worker, what the chief has prepared."""
    run_dir = session.run_dir
    for _ in range(300):  # A shared folder may show it late.
        if (run_dir / layout.CONFIG_FILE).exists():
            break
        time.sleep(0.2)
    else:
        raise UserError(
            f"Found no {layout.CONFIG_FILE} of the chief in {run_dir}; "
            "`run_dir` must be on a file system that all workers share."
        )
    run = RunConfig.load(run_dir)
    records = TokenisedCorpus.load(run_dir / layout.RECORDS / run.train_split)
    plan = plan_batches(records, run.training)
    # The chief alone counts the minutes, and has the callbacks.
    own = dataclasses.replace(session, run=run, minutes=None, callbacks=())
    return Training(own, load_vocabulary(run_dir, run), plan)


def check_beginning(session: Session) -> None:
    """Refuse at once a training that would fail after an hour."""
    run, run_dir = session.run, session.run_dir
    if layout.has_begun(run_dir):
        return
    corpus = session.text
    for flag in ("train_split", "validation_split"):
        with heartbeat(f"Reading the text of {getattr(run, flag)}"):
            corpus.pairs(getattr(run, flag), flag)
    vocabulary = run_dir / layout.TOKENIZER_FILE
    if (run_dir / layout.CONFIG_FILE).exists():
        RunConfig.load(run_dir)  # Another program's is not overwritten.
    elif vocabulary.exists() or list_checkpoints(run_dir):
        raise UserError(
            f"{run_dir} has a vocabulary or checkpoints but no "
            f"{layout.CONFIG_FILE} that describes them; restore the file, or "
            "choose another `run_dir`."
        )


def prepare_vocabulary(
    session: Session, run_dir: pathlib.Path, corpus: Corpus | None = None
) -> tuple[RunConfig, Tokenizer]:
    """Learn the vocabulary, take over the one given, or load the run's own.

    It is written to `run_dir`, and learnt from `corpus` instead of the text of
    the training if that is given.

    Returns:
        The run, with the vocabulary's real size, and the tokenizer.
    """
    run, given = session.run, session.tokenizer
    if given is not None and not isinstance(given, Tokenizer):
        given = load_tokenizer(given)
    if layout.has_begun(session.run_dir):
        tokenizer = load_vocabulary(session.run_dir)
        if given and given.model != tokenizer.model:
            raise UserError(
                f"{session.run_dir} was trained with another vocabulary than "
                "the `tokenizer` given; leave that out, or give another "
                "`run_dir`."
            )
        return run, tokenizer
    if run.initial:
        given = _vocabulary_of_initial(run, given)
    corpus = corpus or session.text
    run = dataclasses.replace(run, text=corpus.state_of(*run.splits))
    if given:
        run = dataclasses.replace(run, requested_vocab_size=given.vocab_size)
        request.check_symbols(request.own_symbols(run), given)
    run_dir.mkdir(parents=True, exist_ok=True)
    for header in (run_dir / layout.RECORDS).glob(f"*/{RECORDS_FILE}"):
        files.remove(header.parent)  # Made with another vocabulary.
    run.save(run_dir)  # First: a vocabulary without it is not ours.
    path = run_dir / layout.TOKENIZER_FILE
    if given:
        logger.info("Taking a vocabulary of %d pieces.", given.vocab_size)
        given.save(path)
        tokenizer = given
    else:
        size = run.model.vocab_size
        logger.info("Training a vocabulary of %d pieces.", size)
        with heartbeat("Training the vocabulary"):
            sentences = corpus.sentences(run.train_split)
            symbols = run.symbols or ()
            tokenizer = Tokenizer.train(
                sentences, size, path, symbols, in_pairs=True
            )
    model = dataclasses.replace(run.model, vocab_size=tokenizer.vocab_size)
    known = checksum_of(tokenizer)
    return dataclasses.replace(run, model=model, vocabulary=known), tokenizer


def _vocabulary_of_initial(
    run: RunConfig, given: Tokenizer | None
) -> Tokenizer:
    """Take the vocabulary of `init_from`, unless another one is given."""
    source = pathlib.Path(run.initial["run_dir"])  # type: ignore[index]
    begun = RunConfig.load(source)
    averaging.choose(source, begun)  # Refuses one without weights.
    if given:
        return given
    vocabulary = load_vocabulary(source, begun).with_symbols(run.symbols or ())
    own = request.own_symbols(run)
    return vocabulary.with_symbols(request.lacking_symbols(own, vocabulary))


def records_of(
    session: Session, run: RunConfig, tokenizer: Tokenizer, split: str
) -> TokenisedCorpus:
    """Open the records of a split to train or to validate on, or make them."""
    path = session.run_dir / layout.RECORDS / split
    if path.exists():
        try:
            return TokenisedCorpus.load(path)
        except UserError as error:
            logger.warning("Making token records again: %s", error)
    corpus = session.text
    pairs = corpus.pairs(split)
    if split != run.train_split:  # None is dropped; a long one is cut later.
        return TokenisedCorpus.build(pairs, tokenizer, path)
    looking = inspection.Inspection(corpus, run.held_out)
    longest = run.training.max_length
    made = TokenisedCorpus.build(looking.watch(pairs), tokenizer, path, longest)
    for said in looking.advice(made.dropped):
        logger.warning(said)
    return made


def _warn_of_other_batches(run: RunConfig, run_dir: pathlib.Path) -> None:
    why = "its token records were made again from a text that has changed"
    if run.version != __version__:
        why = f"version {run.version} planned those and this is {__version__}"
    logger.warning(
        "%s goes on with other batches than it began with, since %s, so it "
        "will not end with the weights of an uninterrupted training.",
        run_dir,
        why,
    )


def _watched(run: RunConfig, session: Session) -> list[Pair]:
    """Choose the pairs to watch BLEU on, once; a begun run has them."""
    folder = session.run_dir / layout.RECORDS
    if layout.has_begun(session.run_dir):
        with contextlib.suppress(OSError, ValueError, TypeError):
            text = (folder / layout.WATCHED_FILE).read_text("utf-8")
            return [(source, target) for source, target in json.loads(text)]
    pairs = list(session.text.pairs(run.validation_split))
    random.Random(run.training.seed).shuffle(pairs)
    del pairs[VALIDATION_SAMPLE:]
    files.write_text(folder / layout.WATCHED_FILE, json.dumps(pairs))
    return pairs
