"""Places the replicas: on one device, one machine, or several machines.

Every machine runs the same command with its own `TF_CONFIG`. The run directory
is on a file system that all share: the first worker, the chief, alone writes
there, and the others read what it has prepared. If one is lost, the others end;
started again, all resume from the last checkpoint.
"""

import contextlib
import functools
import json
import os
import re
import signal
import zlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from keras_transformer.config import JobError, UserError, logger
from keras_transformer.machine import extras

Task = tuple[str, int]  # Such as `("worker", 0)`.

# One a process: a second one would number its collectives from the start, and
# TensorFlow would take them for those of the first.
_mirrored = functools.cache(tf.distribute.MirroredStrategy)
# TensorFlow's errors if another worker has gone.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnavailableError,
)


def read_cluster(text: str) -> tuple[dict[Task, str], Task]:
    """Read `TF_CONFIG`: what each worker is called, by task, and our task."""
    try:
        fields = json.loads(text)
        own = fields["task"]["type"], fields["task"]["index"]
        addresses = {
            (job, i): address
            for job in ("chief", "worker")
            for i, address in enumerate(fields["cluster"].get(job, []))
        }
        if not (
            all(re.fullmatch(r".+:\d+", x) for x in addresses.values())
            and len({*addresses.values()}) == len(addresses)
            and own in addresses
            and ("chief", 1) not in addresses
        ):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(
            "Expected TF_CONFIG to list an address, host:port, for each worker "
            "and at most one chief, and to name one of them as the task, "
            f"received {text!r}; it looks like "
            '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
            '"task": {"type": "worker", "index": 0}}.'
        ) from None
    return {x: f"{x[0]} {x[1]} at {addresses[x]}" for x in addresses}, own


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Choose the place of the replicas, and wait for other workers, if any.

    Call it before TensorFlow computes anything. It returns the same strategy
    each time in a process. `auto` takes what is there; a cluster of one worker,
    which some platforms set, is this machine.
    """
    extras.check_keras()
    text = os.environ.get("TF_CONFIG", "")
    if name == "multiworker" or (name == "auto" and text):
        if len(read_cluster(text)[0]) > 1:
            return _join(text)
        name = "auto"
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return _mirrored()
    return tf.distribute.get_strategy()


@functools.cache
def _join(text: str) -> tf.distribute.Strategy:
    """Join the other workers, and wait for them."""
    workers, own = read_cluster(text)
    logger.info("%s waits for all %d workers.", workers[own], len(workers))
    try:
        with _signals_end_the_process():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise UserError(
            f"Could not join the other workers ({error}): call `train` before "
            "TensorFlow computes anything, and give `tokenizer` as a path."
        ) from None
    except tf.errors.OpError as error:
        reason = str(error).splitlines()[0]
        raise JobError(
            f"{workers[own]} could not join the other workers ({reason}); "
            "check if its port is free, then start the same command again on "
            "every machine."
        ) from None


@contextlib.contextmanager
def _signals_end_the_process() -> Iterator[None]:
    """Let signals end the process while TensorFlow waits and Python cannot."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, signal.SIG_DFL) for n in numbers}
    try:
        yield
    finally:
        # TensorFlow sets its own handler, which swallows SIGTERM.
        for number, handler in before.items():
            signal.signal(number, handler)


def are_several(strategy: tf.distribute.Strategy) -> bool:
    """Return whether replicas are in other processes too."""
    count = strategy.num_replicas_in_sync
    return count > 1 and count > len(strategy.extended.worker_devices)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether this process is the chief, which writes."""
    return strategy.extended.should_checkpoint


def sum_of(strategy: tf.distribute.Strategy, number: int) -> int:
    """Wait until every worker has asked; return the sum of their numbers."""
    if not are_several(strategy):
        return number
    total = strategy.reduce("SUM", tf.constant(float(number)), axis=None)
    return round(float(total))


def meet(strategy: tf.distribute.Strategy) -> None:
    """Wait until every worker has reached this call."""
    if are_several(strategy):
        with _signals_end_the_process():
            sum_of(strategy, 0)


@contextlib.contextmanager
def chief_first(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Let the others enter the block when the chief has left it."""
    if not is_chief(strategy):
        meet(strategy)
    yield
    if is_chief(strategy):
        meet(strategy)


def check_alike(strategy: tf.distribute.Strategy, **facts: Any) -> None:
    """Refuse, on every worker, what others have read or made otherwise."""
    said = ", ".join(f"{name} {value}" for name, value in facts.items())
    mine = tf.constant([zlib.crc32(said.encode())], tf.int64)
    if are_several(strategy) and len({*strategy.gather(mine, 0).numpy()}) > 1:
        raise UserError(
            f"Expected the same on every worker, here it is {said}; put "
            "`run_dir` on a file system that all workers share, and give them "
            "the same packages."
        )


def share_rows(
    strategy: tf.distribute.Strategy, endless: tf.data.Dataset
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Share the rows of every batch over all replicas.

    Every worker has the same endless dataset. Each of n replicas gets every
    n-th row of a batch, or no row if it has too few.
    """
    count = strategy.num_replicas_in_sync
    if count == 1:
        return endless

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local = count // context.num_input_pipelines
        first = context.input_pipeline_id * local

        def parts(*batch: Any) -> tf.data.Dataset:
            return tf.data.Dataset.range(first, first + local).map(
                lambda i: tf.nest.map_structure(lambda x: x[i::count], batch)
            )

        # Known to be endless, or every step would ask all for another batch.
        return endless.flat_map(parts).repeat().prefetch(2 * local)

    return strategy.distribute_datasets_from_function(of_worker)


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Wait for all at the end; report a lost worker as a `JobError`."""
    try:
        yield
        meet(strategy)
    except _LOST as error:
        if not are_several(strategy):
            raise
        workers, own = read_cluster(os.environ["TF_CONFIG"])
        named = re.findall(r"/job:(\w+)/(?:\w+:\d+/)?task:(\d+)", str(error))
        tasks = {(job, int(i)) for job, i in named} & workers.keys() - {own}
        lost = " and ".join(workers[task] for task in sorted(tasks))
        raise JobError(
            f"Lost {lost or 'a worker'}: its process ended or its machine no "
            "longer answers. Solve what its log names, if anything; then start "
            "the same command again on every machine: it goes on from there."
        ) from None
    # One that ended as soon as all have met would seem lost to another that has
    # not heard of it yet. So all meet a second time, which may fail.
    with contextlib.suppress(*_LOST):
        meet(strategy)
