"""Train a toy run in a session that a signal may end.

A program of its own, since logical devices must be set before TensorFlow
starts and a session shall die as processes do:
train_session.py REPLICAS END RUN_DIR ARGUMENTS...

END is JSON: `null`, or an object with

    number    the number of the signal
    after     text in a path of the run directory: operations on files count
              from the first whose path holds it
    event     operations to count before the signal
    delay     seconds to wait then, to meet what is no operation on files
"""

import json
import os
import sys
import threading
import time

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
        checkpoint_every="3",
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


def main(replicas, end, run_dir, *argv):
    from local_workers import split_processor

    split_processor(int(replicas))
    presets.PRESETS = {**presets.PRESETS, "toy": TOY}
    if how := json.loads(end):
        end_early(run_dir, **how)
    return command_line(
        ["train", "--preset", "toy", "--run-dir", run_dir, *argv]
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
