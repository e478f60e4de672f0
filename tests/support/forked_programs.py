"""Runs programs that need TensorFlow without importing it again for each.

Python's "forkserver" imports the package once, and forks for every program.
"""

import gc
import multiprocessing
import os
import runpy
import signal
import sys

from project_table import ROOT

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["keras_transformer.training.loop"])


class Program:
    """A program in a process of its own.

    Args:
        script: Path below the project's folder, where the program runs.
        *arguments: What is in `sys.argv` after it.
        log: A file for what it writes to stderr.
        **environment: More variables than this process has.
    """

    def __init__(self, script, *arguments, log=None, **environment):
        arguments = [str(argument) for argument in arguments]
        self._process = FORKS.Process(
            target=_run,
            args=(script, arguments, log, {**os.environ, **environment}),
            # It ends if the tests do.
            daemon=True,
        )
        self._process.start()

    def wait(self, timeout=None):
        """Return the exit code, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError(f"still running after {timeout} s")
        return self._process.exitcode


def _run(script, arguments, log, environment):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    if log:
        os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
    # A shell has tests that it runs in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = ROOT / script
    sys.path[:0] = [str(path.parent), str(ROOT)]
    sys.argv = [script, *arguments]
    gc.set_threshold(50_000, 10, 10)  # As verbs have it.
    runpy.run_path(str(path), run_name="__main__")
