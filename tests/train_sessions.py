"""Train toy runs in sessions, all but the last of which a signal ends.

A program of its own, since logical devices must be set before TensorFlow
starts and a session shall die as processes do. It imports TensorFlow once and
forks for every session: python tests/train_sessions.py PLAN.json

PLAN.json is a list of runs: {"run_dir": R, "replicas": 2, "argv": [...],
"ends": [...]}. Each end sends a signal to a session of its own:

    signal    its number
    after     text in a path of the run directory: operations on files count
              from the first whose path holds it
    event     operations to count before the signal
    delay     seconds to wait then, to meet what is no operation on files

After the last end comes a session without one. R.json gets the sessions'
outcomes, R.log their logs.
"""

import json
import os
import pathlib
import sys
import threading
import time
import traceback

import keras_transformer.training.loop  # noqa: F401  Once for all.
from keras_transformer import config, presets
from keras_transformer.__main__ import main as command_line

# Operations on files that Python reports (PEP 578).
OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")

TOY = presets.Preset(
    config.ModelConfig(
        vocab_size=290,
        num_layers=1,
        d_model=14,
        num_heads=2,
        key_dim=7,
        value_dim=5,
        ffn_dim=17,
    ),
    config.TrainingConfig(
        steps=29,
        batch_tokens=89,
        warmup_steps=5,
        checkpoint_steps=3,
        keep_checkpoints=3,
        average=3,
        validation_steps=29,
    ),
)


def end_early(run_dir, number, after="", event=0, delay=0.0):
    """Let a signal come at some operation on the run directory's files."""
    operations = None

    def notice(name, args):
        nonlocal operations
        paths = [str(x) for x in args if isinstance(x, str | os.PathLike)]
        paths = [path for path in paths if path.startswith(run_dir)]
        if name not in OPERATIONS or not paths:
            return
        if operations is None and any(after in path for path in paths):
            operations = 0
        elif operations is not None:
            operations += 1
        if operations == event:
            threading.Thread(target=strike).start() if delay else strike()

    def strike():
        time.sleep(delay)
        os.kill(os.getpid(), number)

    sys.addaudithook(notice)


def session(run_dir, replicas, argv, end):
    """Train in this process, which has not started TensorFlow yet."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * replicas,
    )
    presets.PRESETS = {**presets.PRESETS, "toy": TOY}
    if end:
        end_early(run_dir, end.pop("signal"), **end)
    return command_line(
        ["train", "--preset", "toy", "--run-dir", run_dir, *argv]
    )


def fork(log, *args):
    """Run a session in a process of its own; return how it ended."""
    process = os.fork()
    if not process:
        code = 1
        try:
            os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
            code = session(*args)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def main(plan):
    for run in json.loads(pathlib.Path(plan).read_text()):
        run_dir = pathlib.Path(run["run_dir"])
        sessions = []
        for end in [*run["ends"], None]:
            log = run_dir.with_suffix(".log")
            code = fork(log, str(run_dir), run["replicas"], run["argv"], end)
            kept = [str(p.relative_to(run_dir)) for p in run_dir.rglob("*")]
            sessions.append({"code": code, "files": kept})
        run_dir.with_suffix(".json").write_text(json.dumps(sessions))


if __name__ == "__main__":
    main(sys.argv[1])
