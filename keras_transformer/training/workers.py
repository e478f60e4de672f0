"""Places the replicas: on one device, one machine, or several machines.

Every machine runs the same command with the same arguments and its own
`TF_CONFIG`. The run directory is on a file system that all share. Only the
chief, the first worker, writes.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import re
import signal
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from keras_transformer.config import JobError, UserError
from keras_transformer.machine import extras
from keras_transformer.replicas import local_values, sum_over_replicas

JOBS = ("chief", "worker")  # In the order of the workers.
PATIENCE = 10.0  # Seconds between two reports on missing workers.
EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a training, as `TF_CONFIG` lists them, chief first."""

    tasks: tuple[tuple[str, int], ...]  # Such as `("worker", 0)`.
    addresses: tuple[str, ...]  # `host:port`
    index: int  # Of this process among them.

    @classmethod
    def from_tf_config(cls, text: str) -> "Cluster":
        """Read `TF_CONFIG`, and refuse one that has no place for us."""
        try:
            fields = json.loads(text)
            jobs = {job: [*found] for job, found in fields["cluster"].items()}
            task = fields["task"]["type"], fields["task"]["index"]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _wrong("a cluster and a task", f"{text[:60]!r}") from None
        if jobs.keys() - {*JOBS} or len(jobs.get("chief", [])) > 1:
            raise _wrong("workers and at most one chief", f"{jobs}")
        tasks = tuple((x, i) for x in JOBS for i in range(len(jobs.get(x, []))))
        addresses = [address for x in JOBS for address in jobs.get(x, [])]
        for address in addresses:
            if not _is_address(address):
                raise _wrong("addresses of the form host:port", address)
            if addresses.count(address) > 1:
                raise _wrong("an address for each worker", f"{address} twice")
        if task not in tasks:
            raise _wrong("the task to be one of the cluster's", f"{task}")
        return cls(tasks, tuple(addresses), tasks.index(task))

    def describe(self, index: int) -> str:
        """Name a worker and its address."""
        job, number = self.tasks[index]
        return f"{job} {number} at {self.addresses[index]}"

    def gather(self, report: Callable[[str], None]) -> None:
        """Wait for every other worker; now and then `report` those missing.

        TensorFlow's own wait ignores signals and blocks other threads.
        """
        missing = [i for i in range(len(self.tasks)) if i != self.index]
        spoke = time.monotonic()
        with self._listen() as listener:
            while missing := [
                i for i in missing if not _answers(self.addresses[i])
            ]:
                if time.monotonic() - spoke >= PATIENCE:
                    report(", ".join(map(self.describe, missing)))
                    spoke = time.monotonic()
                _let_in(listener)

    def _listen(self) -> socket.socket:
        """Open the socket at which the others find this worker."""
        address = self.addresses[self.index]
        host, port = address.rsplit(":", 1)
        both = socket.has_dualstack_ipv6()
        try:
            socket.getaddrinfo(host, port)
            return socket.create_server(
                ("", int(port)),
                family=socket.AF_INET6 if both else socket.AF_INET,
                dualstack_ipv6=both,
            )
        except socket.gaierror:
            raise UserError(
                f"TF_CONFIG says that this worker is at {address}, but "
                f"{host} is not known here; fix the name or the task's index."
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise UserError(
                f"TF_CONFIG says that this worker listens at {address}, but "
                f"it cannot ({reason}); end the process that uses the port, or "
                "choose another one."
            ) from None


def count_workers() -> int:
    """Count the workers that `TF_CONFIG` lists; 1 if it lists none."""
    text = os.environ.get("TF_CONFIG", "")
    return len(Cluster.from_tf_config(text).tasks) if text else 1


def _wrong(expected: str, received: str) -> UserError:
    return UserError(
        f"Expected in TF_CONFIG {expected}, received {received}; it looks "
        f"like {EXAMPLE}."
    )


def _is_address(address: object) -> bool:
    if not isinstance(address, str):
        return False
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 2**16


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=3):
            return True
    except OSError:
        return False


def _let_in(listener: socket.socket) -> None:
    """Accept connections for a second, or they would fill the queue."""
    until = time.monotonic() + 1.0
    while (left := until - time.monotonic()) > 0:
        listener.settimeout(left)
        with contextlib.suppress(TimeoutError):
            listener.accept()[0].close()


# TensorFlow's errors if another worker has gone.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnavailableError,
)

logger = logging.getLogger("keras_transformer")


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Choose the place of the replicas, and wait for other workers, if any.

    Call it before TensorFlow computes anything. It returns the same strategy
    each time in a process. `auto` takes what is there; a cluster of one worker,
    which some platforms set, is this machine.
    """
    extras.check_keras()
    text = os.environ.get("TF_CONFIG", "")
    if name == "multiworker" and not text:
        raise UserError(
            "Expected TF_CONFIG to list the workers for `strategy` "
            f"multiworker, found it empty; it looks like {EXAMPLE}."
        )
    if name == "multiworker" or (name == "auto" and text):
        cluster = Cluster.from_tf_config(text)
        if len(cluster.tasks) > 1:
            return _join(cluster)
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
def _join(cluster: Cluster) -> tf.distribute.Strategy:
    """Join the other workers."""
    logger.info(
        "This is %s, of %d workers.",
        cluster.describe(cluster.index),
        len(cluster.tasks),
    )
    cluster.gather(lambda missing: logger.info("Waiting for %s.", missing))
    try:
        with _signals_end_the_process():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise JobError(
            f"Could not join the other workers ({reason}); start the same "
            "command again on every machine."
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


def meet(strategy: tf.distribute.Strategy) -> None:
    """Wait until every worker has reached this call."""
    if are_several(strategy):
        with _signals_end_the_process():
            zero = tf.constant(0)
            strategy.reduce(tf.distribute.ReduceOp.SUM, zero, axis=None)


def end_together(strategy: tf.distribute.Strategy) -> None:
    """Wait until every worker has reached this call, and may end its process.

    If one ended as soon as all have met, another that has not heard of it yet
    would report it as lost. So all meet a second time, which may fail.
    """
    meet(strategy)
    with contextlib.suppress(*_LOST):
        meet(strategy)


def vote_of(strategy: tf.distribute.Strategy) -> Callable[[bool], bool] | None:
    """Make a function, for all workers to call: whether any says True.

    It is None if there are no other workers.
    """
    if not are_several(strategy):
        return None

    @tf.function(autograph=False)
    def count(vote: tf.Tensor) -> tf.Tensor:
        # `identity` places it; an argument of a graph has no place.
        votes = strategy.run(lambda: sum_over_replicas(tf.identity(vote)))
        return local_values(strategy, votes)

    return lambda vote: bool(count(tf.constant(float(vote))) > 0)


def wait_for_file(path: pathlib.Path, seconds: float = 60.0) -> None:
    """Wait for a file of the chief: a shared folder may show it late."""
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until:
            raise UserError(
                f"Expected the chief's {path} within {seconds:.0f} seconds, "
                "found none; `run_dir` must be on a file system that all "
                "workers share."
            )
        time.sleep(0.2)


def check_alike(
    strategy: tf.distribute.Strategy, update: int, arguments: Mapping[str, Any]
) -> None:
    """Refuse, on every worker, to start after another update or otherwise."""
    facts = {"update": update, **arguments}
    mine = [zlib.crc32(str(value).encode()) for value in facts.values()]
    # (workers, facts)
    found = strategy.gather(tf.constant([mine], tf.int64), axis=0).numpy()
    differ = [
        f"{name} {value}"
        for (name, value), column in zip(facts.items(), found.T, strict=True)
        if len({*column.tolist()}) > 1
    ]
    if not differ:
        return
    way_on = "give all of them the same arguments and packages"
    if len({*found[:, 0].tolist()}) > 1:
        way_on = "`run_dir` must be on a file system that all workers share"
    raise UserError(
        f"Expected the same on every worker, here it is {', '.join(differ)}; "
        f"{way_on}."
    )


@contextlib.contextmanager
def lost_worker_told(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Report a lost worker as a `JobError`."""
    try:
        yield
    except _LOST as error:
        if not are_several(strategy):
            raise
        raise JobError(
            f"Lost {_named(error.message)}: its process ended or its machine "
            "no longer answers. If its log names a problem, solve that; then "
            "start the same command again on every machine: it goes on at the "
            "last checkpoint."
        ) from None


def _named(message: str) -> str:
    """Describe the workers that an error message names."""
    cluster = Cluster.from_tf_config(os.environ["TF_CONFIG"])
    pattern = r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)"
    named = {(job, int(i)) for job, i in re.findall(pattern, message)}
    found = [
        cluster.describe(i)
        for i, task in enumerate(cluster.tasks)
        if task in named and i != cluster.index
    ]
    return " and ".join(found) or "another worker"
