"""Stands for Slurm's `srun`: starts the tasks of a step on this machine.

FAKE_SLURM is a folder; the tasks log to TASK.log there, and TASK.pid tells
their process. A signal goes on to all tasks, as Slurm sends it. SLURM_NTASKS
tells their number.
"""

import os
import pathlib
import signal
import subprocess
import sys

folder = pathlib.Path(os.environ["FAKE_SLURM"])
number = int(os.environ["SLURM_NTASKS"])
command = sys.argv[1:]
while command[0].startswith("--"):
    del command[0]
tasks = []
# No signal may come between a start and its note.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.signal(
    signal.SIGTERM, lambda number, _: [t.send_signal(number) for t in tasks]
)
for i in range(number):
    step = {
        "SLURM_PROCID": str(i),
        "SLURM_STEP_NODELIST": "n1",
        "SLURM_STEP_TASKS_PER_NODE": str(number),
    }
    with open(folder / f"{i}.log", "a") as log:
        tasks.append(
            subprocess.Popen(
                command,
                env={**os.environ, **step},
                stderr=log,
                preexec_fn=lambda: signal.pthread_sigmask(
                    signal.SIG_UNBLOCK, {signal.SIGTERM}
                ),
            )
        )
    (folder / f"{i}.pid").write_text(str(tasks[-1].pid))
(folder / "srun.pid").write_text(str(os.getpid()))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
sys.exit(max(abs(task.wait()) for task in tasks))
