"""Programs of this folder, each in a fresh process that ends well."""

import os
import subprocess
import sys

from project_table import ROOT


def run_program(name, *argv, **environment):
    """Run it with arguments; returns what it wrote to stdout and stderr."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / name, *map(str, argv)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **environment,
        },
    )
    return done.stdout, done.stderr
