"""Python programs, each in a fresh process."""

import os
import subprocess
import sys

from project_table import ROOT

SUPPORT = ROOT / "tests" / "support"


def python(*argv, cwd=ROOT, check=True, **environment):
    """Run Python with these arguments; it must end well, unless told not to."""
    ours = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, *map(str, argv)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **ours, **environment},
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def run_program(name, *argv):
    """Run one of this folder; returns what it wrote to stdout."""
    return python(SUPPORT / name, *argv).stdout
