"""The course of a training: prepare, restore, fit, finish.

The chief does all of it; other workers take part in the steps alone. The run
directory is what they have in common.
"""

import contextlib
import logging
import os
import pathlib
import resource
import signal
import threading
from collections.abc import Iterator

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.data import batching
from keras_transformer.data.corpus import Corpus, Pair
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files
from keras_transformer.runs import (
    averaging,
    checkpoints,
    history,
    layout,
    lock,
)
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig, begun_config
from keras_transformer.runs.vocabulary import load_vocabulary
from keras_transformer.training import workers
from keras_transformer.training.building import local_copy, restore_model
from keras_transformer.training.cluster import count_workers
from keras_transformer.training.finishing import finish
from keras_transformer.training.fitting import (
    fit,
    fit_beside_chief,
    gradients_forgotten,
)
from keras_transformer.training.planning import (
    choose_lengths,
    compiles,
    plan_batches,
    warn_of_warm_up,
)
from keras_transformer.training.preparation import (
    CHANGEABLE,
    check_beginning,
    prepare_data,
    prepare_tokenizer,
    take_vocabulary,
)
from keras_transformer.training.request import Session
from keras_transformer.training.validation import Validator

# Of this process, whose seeds a training sets.
_training = threading.Lock()

logger = logging.getLogger("keras_transformer")


def train(
    run: RunConfig,
    run_dir: pathlib.Path,
    session: Session,
    corpus: Corpus,
    tokenizer: Tokenizer | str | os.PathLike | None = None,
) -> signal.Signals | None:
    """Train, or go on training, on this machine or as one of several.

    Args:
        run: What is asked for.
        run_dir: Where it goes, or has begun.
        session: How this session trains.
        corpus: The corpus that `run` names.
        tokenizer: A vocabulary made elsewhere, or its file; None to learn
            one.

    Returns:
        The signal that ended it, or None where it has come to its end.

    Raises:
        UserError: If the request makes no sense with what is there.
        JobError: If the training cannot go on.
    """
    if isinstance(tokenizer, Tokenizer) and count_workers() > 1:
        raise UserError(
            "Expected the path of a vocabulary where there are several "
            "workers, which must meet before TensorFlow computes anything; "
            "save the tokenizer and pass its file."
        )
    strategy = workers.make_strategy(session.strategy)
    with (
        _only_training(),
        workers.one_fate(strategy),
        gradients_forgotten(),
    ):
        run, tokenizer = take_vocabulary(run, tokenizer)
        if workers.is_chief(strategy):
            check_beginning(run, run_dir, corpus)
            with lock.only_writer(run_dir):
                stopped = _train(
                    run, run_dir, session, corpus, tokenizer, strategy
                )
        else:
            stopped = _train_beside_chief(run, run_dir, session, strategy)
        workers.meet(strategy)  # Or who ends first would seem lost.
    return stopped


@contextlib.contextmanager
def _only_training() -> Iterator[None]:
    """Keep another thread's training from drawing of the same seeds."""
    if not _training.acquire(blocking=False):
        raise UserError(
            "Expected one training at a time in a process, since its seeds "
            "are the process's, received a second one; wait for the end of "
            "the first, or start another process."
        )
    try:
        yield
    finally:
        _training.release()


def _train(
    run: RunConfig,
    run_dir: pathlib.Path,
    session: Session,
    corpus: Corpus,
    tokenizer: Tokenizer | None,
    strategy: tf.distribute.Strategy,
) -> signal.Signals | None:
    """Train on this machine, or as the chief of several."""
    run = choose_lengths(run, begun_config(run_dir), compiles(session.xla))
    if _is_slim(run, run_dir):
        return None
    run, tokenizer, plan, batches, sample = _prepare(
        run, run_dir, corpus, tokenizer
    )
    workers.meet(strategy)  # The others read what is written now.
    model, average, start = restore_model(run, run_dir, session, strategy)
    warn_of_warm_up(run.training, run.training.steps)
    replicas = strategy.num_replicas_in_sync
    logger.info(
        "%s: %s parameters, %d replica%s.",
        run.preset,
        f"{model.count_params():,}",
        replicas,
        "s" if replicas > 1 else "",
    )
    judged = local_copy(run) if workers.are_several(strategy) else model
    validator = Validator(
        judged,
        tokenizer,
        batches,
        sample,
        run.training.max_length,
        run.search.max_extra_length,
    )
    if _is_finished(run, run_dir, session, start):
        logger.info(
            "%s is finished: %d updates in %.1f minutes. More --steps or "
            "--minutes would go on.",
            run_dir,
            start.step,
            start.seconds / 60,
        )
    else:
        if start.step:
            logger.info("Resuming after update %d.", start.step)
        stopped = fit(
            run,
            run_dir,
            model,
            average,
            plan,
            tokenizer,
            validator,
            start,
            session,
        )
        if stopped:
            logger.info("Stopped; the same command goes on from here.")
            return stopped
        ended = checkpoints.step_of(checkpoints.list_checkpoints(run_dir)[-1])
        if ended < run.training.steps:
            warn_of_warm_up(run.training, ended)
    finish(run, run_dir, validator, model.get_weights())
    logger.info(
        "Peak memory: %.1f GB.",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )
    return None


def _prepare(
    run: RunConfig,
    run_dir: pathlib.Path,
    corpus: Corpus,
    tokenizer: Tokenizer | None,
) -> tuple[
    RunConfig, Tokenizer, batching.BatchPlan, tf.data.Dataset, list[Pair]
]:
    """Write what a training needs; of a wrong request nothing stays."""
    files.remove_leftovers(
        run_dir,
        run_dir / layout.CHECKPOINTS,
        run_dir / layout.LOGS,
        run_dir / layout.RECORDS,
    )
    before = set(run_dir.iterdir())
    try:
        run, tokenizer = prepare_tokenizer(run, run_dir, corpus, tokenizer)
        run, plan, batches, sample = prepare_data(
            run, run_dir, corpus, tokenizer
        )
        run.save(run_dir)
    except UserError:
        for path in set(run_dir.iterdir()) - before:
            files.remove(path)
        raise
    return run, tokenizer, plan, batches, sample


def _is_slim(run: RunConfig, run_dir: pathlib.Path) -> bool:
    """Say so where a finished run has no checkpoints to go on from."""
    if not averaging.is_slim(run_dir):
        return False
    run.resume(RunConfig.load(run_dir), CHANGEABLE, run_dir)  # That it is it.
    logger.info(
        "%s is finished. Its checkpoints are gone, so that it cannot go on; "
        "--init-from starts another run from its weights.",
        run_dir,
    )
    return True


def _is_finished(
    run: RunConfig, run_dir: pathlib.Path, session: Session, start: Progress
) -> bool:
    """Whether there is nothing left to train."""
    if session.minutes and start.seconds >= 60 * session.minutes:
        return True
    if start.step >= run.training.steps:
        return True
    target = run.training.target_bleu
    return target is not None and any(
        row["step"] == start.step and row.get("validation_bleu", -1) >= target
        for row in history.read_history(run_dir)
    )


def _train_beside_chief(
    run: RunConfig,
    run_dir: pathlib.Path,
    session: Session,
    strategy: tf.distribute.Strategy,
) -> signal.Signals | None:
    """Train as another worker than the chief, which alone writes."""
    workers.meet(strategy)  # The chief has prepared the run directory.
    workers.wait_for_file(run_dir / layout.CONFIG_FILE)
    saved = RunConfig.load(run_dir)
    run = choose_lengths(run, saved, compiles(session.xla))
    run = run.resume(saved, CHANGEABLE, run_dir)
    records = batching.TokenisedCorpus.load(
        run_dir / layout.RECORDS / run.train_split
    )
    plan = plan_batches(records, run.training, load_vocabulary(run_dir))
    model, average, start = restore_model(run, run_dir, session, strategy)
    if _is_finished(run, run_dir, session, start):
        return None
    return fit_beside_chief(run, model, average, plan, start)
