"""The workers of a training on several machines, as `TF_CONFIG` lists them.

This module does not need TensorFlow, so a mistake shows before workers wait.
"""

import contextlib
import dataclasses
import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from keras_transformer.config import UserError

# Job names, in the order of the workers.
JOBS = ("chief", "worker")

# Seconds between two reports on missing workers.
PATIENCE = 10.0

EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a training, as `TF_CONFIG` lists them.

    Attributes:
        tasks: Job and index of each, such as `("worker", 0)`; the first is
            the chief.
        addresses: `host:port` of each.
        index: The number of this process among them.
    """

    tasks: tuple[tuple[str, int], ...]
    addresses: tuple[str, ...]
    index: int

    @classmethod
    def from_tf_config(cls, text: str) -> "Cluster":
        """Read `TF_CONFIG`.

        Raises:
            UserError: If it describes no cluster with a place for this
                process.
        """
        fields = _parse(text)
        jobs = {job: fields["cluster"].get(job, []) for job in JOBS}
        tasks = tuple((job, i) for job in JOBS for i in range(len(jobs[job])))
        addresses = tuple(address for job in JOBS for address in jobs[job])
        for address in addresses:
            if not _is_address(address):
                raise _wrong("addresses of the form host:port", address)
            if addresses.count(address) > 1:
                raise _wrong("an address for each worker", f"{address} twice")
        task = fields["task"]
        job, index = task.get("type"), task.get("index")
        if job not in JOBS:
            raise _wrong("the task's type to be worker or chief", f"{job!r}")
        if (job, index) not in tasks or isinstance(index, bool):
            raise _wrong(
                f"the task's index to be one of the {len(jobs[job])} "
                f"{job} addresses, counted from 0",
                f"{index!r}",
            )
        return cls(tasks, addresses, tasks.index((job, index)))

    def describe(self, index: int) -> str:
        """Name a worker and its address."""
        job, number = self.tasks[index]
        return f"{job} {number} at {self.addresses[index]}"

    def gather(self, report: Callable[[str], None]) -> None:
        """Wait until every other worker has answered once.

        This is in Python, because TensorFlow's own wait ignores signals and
        blocks other threads.

        Args:
            report: Receives the missing workers every `PATIENCE` seconds.

        Raises:
            UserError: If this process cannot listen at its own address.
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
    """Count the workers that `TF_CONFIG` lists; 1 if it lists none.

    Raises:
        UserError: As in `Cluster.from_tf_config`.
    """
    text = os.environ.get("TF_CONFIG", "")
    return len(Cluster.from_tf_config(text).tasks) if text else 1


def _wrong(expected: str, received: str) -> UserError:
    return UserError(
        f"Expected in TF_CONFIG {expected}, received {received}; it looks "
        f"like {EXAMPLE}."
    )


def _parse(text: str) -> dict[str, Any]:
    """Read the fields of `TF_CONFIG`, and check their form."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise _wrong("JSON", f"{text[:60]!r} ({error})") from None
    if not isinstance(fields, dict):
        raise _wrong("an object", f"{text[:60]!r}")
    cluster, task = fields.get("cluster"), fields.get("task")
    if not isinstance(cluster, dict) or not any(map(cluster.get, JOBS)):
        raise _wrong("a cluster with a list of workers", f"{cluster!r}")
    for job, addresses in cluster.items():
        if job not in JOBS:
            raise _wrong("workers and at most a chief", f"the job {job!r}")
        if not isinstance(addresses, list):
            raise _wrong(f"a list of {job} addresses", f"{addresses!r}")
    if len(cluster.get("chief", [])) > 1:
        raise _wrong("at most one chief", f"{len(cluster['chief'])}")
    if not isinstance(task, dict):
        raise _wrong("a task that says which worker this is", f"{task!r}")
    return fields


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
