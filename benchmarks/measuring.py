"""What the programs of this folder share: flags, processes, memory, tables.

As a program it runs a command and prints what that took:
python benchmarks/measuring.py COMMAND.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
from typing import Any, NamedTuple

QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


def parser_of(text: str) -> argparse.ArgumentParser:
    """Make a parser whose help is a module's docstring, line by line."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


class Timed(NamedTuple):
    """What a process took, and what it printed."""

    seconds: float
    megabytes: float  # At its peak.
    output: str


def timed(command: list, **options: Any) -> Timed:
    """Run a process to its end; a failure ends this program.

    Another, small process starts it: the peak memory of a process counts what
    its parent had when it began.

    Args:
        command: Anything that has a text.
        **options: As for `subprocess.run`.
    """
    done = subprocess.run(
        [sys.executable, __file__, *map(str, command)],
        capture_output=True,
        text=True,
        **{"env": QUIET, **options},
    )
    if done.returncode:
        sys.exit(f"{command} failed: {done.stderr}")
    return Timed(**json.loads(done.stdout))


def json_of(*command: Any) -> Any:
    """Run a program of Python's; return the JSON of its last line."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env=QUIET,
    )
    return json.loads(done.stdout.splitlines()[-1])


def memory(field: str, pid: int | str = "self") -> int:
    """Read a size of a process, such as VmRSS or its peak VmHWM, in bytes.

    It is 0 once the process has ended.
    """
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"{field}:\s+(\d+) kB", text)
    return 1024 * int(found[1]) if found else 0


def forget_peak() -> None:
    """Set this process's VmHWM back to what is resident now."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def print_head(*columns: Any) -> None:
    """Begin a table in Markdown."""
    print_row(*columns)
    print("| --- " * len(columns) + "|", flush=True)


def print_row(*cells: Any) -> None:
    """Print a row of a table in Markdown."""
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def subplots(*shape: int, **options: Any) -> tuple:
    """Do what `plt.subplots` does, for a picture that goes to a file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(*shape, layout="tight", **options)


if __name__ == "__main__":
    begun = time.perf_counter()
    ended = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps(Timed(took, peak, ended.stdout)._asdict()))
    sys.exit(ended.returncode)
