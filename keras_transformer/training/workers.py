"""Places the replicas: on one device, one machine, or several machines.

Every machine runs the same command with its own `TF_CONFIG`. The run directory
is on a file system that all share: the first worker, the chief, alone writes
there, and the others read what it has prepared. If one is lost, the others end;
started again, all resume from the last checkpoint.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
import signal
import zlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from keras_transformer.config import JobError, UserError
from keras_transformer.machine import extras
from keras_transformer.replicas import local_values

JOBS = ("chief", "worker")  # In the order of the workers.
EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
# TensorFlow's errors if another worker has gone.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnavailableError,
)

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a training, as `TF_CONFIG` lists them, chief first."""

    addresses: dict[tuple[str, int], str]  # `host:port` by task.
    own: tuple[str, int]  # The task of this process, such as `("worker", 0)`.

    @classmethod
    def from_tf_config(cls, text: str) -> "Cluster":
        """Read `TF_CONFIG`, and refuse one that has no place for us."""
        try:
            fields = json.loads(text)
            addresses = {
                (job, i): address
                for job in JOBS
                for i, address in enumerate(fields["cluster"].get(job, []))
            }
            own = fields["task"]["type"], fields["task"]["index"]
            known = {*addresses.values()}
            is_right = (
                all(re.fullmatch(r".+:\d+", address) for address in known)
                and len(known) == len(addresses)
                and own in addresses
                and ("chief", 1) not in addresses
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            is_right = False
        if not is_right:
            raise UserError(
                "Expected TF_CONFIG to list an address, host:port, for each "
                "worker and at most one chief, and to name one of them as the "
                f"task, received {text!r}; it looks like {EXAMPLE}."
            )
        return cls(addresses, own)

    def describe(self, task: tuple[str, int]) -> str:
        """Name a worker and its address."""
        return f"{task[0]} {task[1]} at {self.addresses[task]}"


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Choose the place of the replicas, and wait for other workers, if any.

    Call it before TensorFlow computes anything. It returns the same strategy
    each time in a process. `auto` takes what is there; a cluster of one worker,
    which some platforms set, is this machine.
    """
    extras.check_keras()
    text = os.environ.get("TF_CONFIG", "")
    if name == "multiworker" or (name == "auto" and text):
        cluster = Cluster.from_tf_config(text)
        if len(cluster.addresses) > 1:
            return _join(text)
        name = "auto"
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return _mirrored()
    return tf.distribute.get_strategy()


@functools.cache
def _mirrored() -> tf.distribute.Strategy:
    # A second strategy in a process would number its collectives from the
    # start, and TensorFlow would take them for those of the first.
    return tf.distribute.MirroredStrategy()


@functools.cache
def _join(text: str) -> tf.distribute.Strategy:
    """Join the other workers, and wait for them."""
    cluster = Cluster.from_tf_config(text)
    own, count = cluster.describe(cluster.own), len(cluster.addresses)
    logger.info("This is %s, waiting for all %d workers.", own, count)
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
            f"{own} could not join the other workers ({reason}); check if its "
            "port is free, then start the same command again on every machine."
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
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    # Not in a cluster of one worker.
    return strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether this process is the chief, which writes."""
    return strategy.extended.should_checkpoint


def sum_of(strategy: tf.distribute.Strategy, number: int) -> int:
    """Wait until every worker has asked; return the sum of their numbers."""
    if not are_several(strategy):
        return number
    mine = tf.constant(float(number))
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, mine, axis=None)
    return round(float(local_values(strategy, total)))


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


def end_together(strategy: tf.distribute.Strategy) -> None:
    """Wait until every worker has reached this call, and may end its process.

    If one ended as soon as all have met, another that has not heard of it yet
    would report it as lost. So all meet a second time, which may fail.
    """
    meet(strategy)
    with contextlib.suppress(*_LOST):
        meet(strategy)


def check_alike(strategy: tf.distribute.Strategy, **facts: Any) -> None:
    """Refuse, on every worker, what others have read or made otherwise."""
    if not are_several(strategy):
        return
    said = ", ".join(f"{name} {value}" for name, value in facts.items())
    mine = tf.constant([zlib.crc32(said.encode())], tf.int64)
    if len({*strategy.gather(mine, axis=0).numpy().tolist()}) > 1:
        raise UserError(
            f"Expected the same on every worker, here it is {said}; put "
            "`run_dir` on a file system that all workers share, and give them "
            "the same packages."
        )


def share_rows(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Share the rows of every batch over all replicas.

    Every worker has the same dataset. Each of n replicas gets every n-th row of
    a batch, or no row if it has too few.
    """
    if strategy.num_replicas_in_sync == 1:
        return dataset
    return strategy.distribute_datasets_from_function(
        functools.partial(_rows_of_worker, dataset)
    )


def _rows_of_worker(
    dataset: tf.data.Dataset, context: tf.distribute.InputContext
) -> tf.data.Dataset:
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    first = context.input_pipeline_id * local

    def parts(*batch: Any) -> tf.data.Dataset:
        return tf.data.Dataset.range(first, first + local).map(
            lambda number: tf.nest.map_structure(
                lambda ids: ids[number::replicas], batch
            )
        )

    shared = dataset.flat_map(parts)
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        # Otherwise every step would ask all workers for another batch.
        endless = tf.data.INFINITE_CARDINALITY
        shared = shared.apply(tf.data.experimental.assert_cardinality(endless))
    return shared.prefetch(2 * local)


@contextlib.contextmanager
def lost_worker_told(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Report a lost worker as a `JobError`."""
    try:
        yield
    except _LOST as error:
        if not are_several(strategy):
            raise
        cluster = Cluster.from_tf_config(os.environ["TF_CONFIG"])
        named = re.findall(r"/job:(\w+)/(?:\w+:\d+/)?task:(\d+)", str(error))
        tasks = {(job, int(i)) for job, i in named} - {cluster.own}
        lost = sorted(tasks & cluster.addresses.keys())
        raise JobError(
            f"Lost {' and '.join(map(cluster.describe, lost)) or 'a worker'}: "
            "its process ended or its machine no longer answers. If its log "
            "names a problem, solve that; then start the same command again on "
            "every machine: it goes on at the last checkpoint."
        ) from None
