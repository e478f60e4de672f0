"""Checkpoints: save, list, resume and average (section 6.1).

A checkpoint is a folder `checkpoints/step-000001200` of a run directory:

    model.weights.h5   Keras's own format: `model.load_weights` reads it
    training.npz       the optimizer's variables and the dropout seeds
    state.json         update count, seconds of training, checksums

It is written under a temporary name and renamed, so it is whole or absent.
"""

import contextlib
import dataclasses
import errno
import json
import logging
import os
import pathlib
import re
import shutil
import zlib
from collections.abc import Iterable

import keras
import numpy as np

from keras_transformer import config
from keras_transformer.config import UserError
from keras_transformer.model import Transformer

FOLDER = "checkpoints"
AVERAGED_FILE = "averaged.weights.h5"
_WEIGHTS_FILE = "model.weights.h5"
_TRAINING_FILE = "training.npz"
_STATE_FILE = "state.json"

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a training has come.

    Attributes:
        step: Optimizer updates done. Each uses one batch of the endless data
            order, so this is the place in the data too.
        seconds: Time spent training, over all sessions.
    """

    step: int = 0
    seconds: float = 0.0


def list_checkpoints(run_dir: str | os.PathLike) -> list[pathlib.Path]:
    """The run's checkpoints, oldest first.

    Args:
        run_dir: The run directory.

    Returns:
        Paths of their folders; empty where there is none.
    """
    folder = pathlib.Path(run_dir) / FOLDER
    found = [
        path
        for path in folder.glob("step-*")
        if re.fullmatch(r"step-\d+", path.name)
    ]
    return sorted(found, key=_step_of)


def save_checkpoint(
    run_dir: str | os.PathLike,
    model: keras.Model,
    progress: Progress,
    keep: int = 10,
) -> pathlib.Path:
    """Write a checkpoint and remove all but the newest `keep`.

    Args:
        run_dir: The run directory.
        model: A compiled model; its optimizer and seeds are saved too.
        progress: What `restore_checkpoint` will return.
        keep: How many checkpoints stay, at least 1.

    Returns:
        The path of the new checkpoint's folder.
    """
    folder = pathlib.Path(run_dir) / FOLDER
    final = folder / f"step-{progress.step:09d}"
    partial = folder / f".partial-{final.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _check_space(model, partial)
        with _without_optimizer(model):
            model.save_weights(partial / _WEIGHTS_FILE)
        np.savez(partial / _TRAINING_FILE, **_training_arrays(model))
        state = {
            **dataclasses.asdict(progress),
            "files": {
                name: _checksum(partial / name)
                for name in (_WEIGHTS_FILE, _TRAINING_FILE)
            },
        }
        (partial / _STATE_FILE).write_text(json.dumps(state, indent=2))
        for path in partial.iterdir():
            _flush_to_disk(path)
        if final.exists():  # A restart from an older one came by here again.
            shutil.rmtree(final)
        partial.rename(final)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for old in list_checkpoints(run_dir)[:-keep]:
        shutil.rmtree(old)
    return final


def restore_checkpoint(
    run_dir: str | os.PathLike, model: keras.Model
) -> Progress:
    """Set model, optimizer and seeds to the newest undamaged checkpoint.

    Args:
        run_dir: The run directory.
        model: A compiled model with a built optimizer.

    Returns:
        The checkpoint's progress; all zeros where there is no checkpoint.

    Raises:
        UserError: If there are checkpoints and all of them are damaged.
    """
    if not list_checkpoints(run_dir):
        return Progress()
    path, state = newest_undamaged(run_dir, 1)[0]
    for later in list_checkpoints(run_dir):
        if _step_of(later) > _step_of(path):  # Damaged: out of the count.
            later.rename(later.with_name(f".damaged-{later.name}"))
    with _without_optimizer(model):
        model.load_weights(path / _WEIGHTS_FILE)
    with np.load(path / _TRAINING_FILE) as arrays:
        for name, variable in _training_variables(model).items():
            variable.assign(arrays[name])
    fields = {field.name for field in dataclasses.fields(Progress)}
    return Progress(**{name: state[name] for name in fields})


def load_model(run_dir: str | os.PathLike, average: int = 5) -> Transformer:
    """Build a run's model with the average of its newest checkpoints.

    Args:
        run_dir: The run directory.
        average: Checkpoints to average, at least 1. Where there are fewer,
            all are taken, with a word on the log.

    Returns:
        The model, in float32 and without an optimizer.

    Raises:
        UserError: If `run_dir` is not a run directory, or has no checkpoint
            that can be read.
    """
    run = config.RunConfig.load(run_dir)
    if average < 1:
        raise UserError(
            f"Expected at least 1 checkpoint to average, received {average}."
        )
    if not list_checkpoints(run_dir):
        raise UserError(
            f"{run_dir} has no checkpoint yet; run train.py --run-dir "
            f"{run_dir} until it has written one."
        )
    paths = [path for path, _ in newest_undamaged(run_dir, average)]
    if len(paths) < average:
        logger.warning(
            "Averaging %d checkpoints instead of %d: %s has no more.",
            len(paths),
            average,
            run_dir,
        )
    model = Transformer(**dataclasses.asdict(run.model))
    average_weights(model, paths)
    return model


def average_weights(
    model: keras.Model, paths: Iterable[str | os.PathLike]
) -> None:
    """Set a model's weights to the mean of some checkpoints' (section 6.1).

    Args:
        model: A built model of the checkpoints' shape.
        paths: Checkpoint folders, at least one.
    """
    sums, count = None, 0
    for path in paths:
        model.load_weights(pathlib.Path(path) / _WEIGHTS_FILE)
        weights = [weight.astype("float64") for weight in model.get_weights()]
        sums = (
            weights
            if sums is None
            else [a + b for a, b in zip(sums, weights, strict=True)]
        )
        count += 1
    model.set_weights(
        [
            (total / count).astype(weight.dtype)
            for total, weight in zip(sums, model.weights, strict=True)
        ]
    )


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves every so many minutes or updates, and when training ends.

    Args:
        run_dir: The run directory.
        progress: Called without arguments, tells the `Progress` to save.
        minutes: Minutes between checkpoints.
        steps: Updates between checkpoints; overrules the minutes.
        keep: How many checkpoints stay.
    """

    def __init__(self, run_dir, progress, minutes, steps, keep) -> None:
        super().__init__()
        self.run_dir = run_dir
        self.progress = progress
        self.minutes = minutes
        self.steps = steps
        self.keep = keep
        self.saved = progress()

    def on_train_batch_end(self, batch, logs=None):
        now = self.progress()
        if self.steps:
            due = now.step - self.saved.step >= self.steps
        else:
            due = now.seconds - self.saved.seconds >= 60 * self.minutes
        if due:
            self.save(now)

    def on_train_end(self, logs=None):
        now = self.progress()
        if now.step > self.saved.step:
            self.save(now)

    def save(self, now):
        path = save_checkpoint(self.run_dir, self.model, now, self.keep)
        logger.info("Wrote %s", path)
        self.saved = now


def _step_of(path):
    return int(path.name.removeprefix("step-"))


def _training_variables(model):
    """Optimizer variables and dropout seeds, by their place in the model."""
    # Keras's own paths count the models of a process.
    optimizer = {
        f"optimizer/{i}": variable
        for i, variable in enumerate(model.optimizer.variables)
    }
    seeds = {
        f"seed/{i}": generator.state
        for i, generator in enumerate(_seed_generators(model))
    }
    return {**optimizer, **seeds}


def _seed_generators(model):
    return [
        layer.seed_generator
        for layer in model._flatten_layers()
        if hasattr(layer, "seed_generator")
    ]


def _check_space(model, folder):
    """Fail before the first byte: HDF5 may crash the process on a full disk."""
    variables = [*model.weights, *model.optimizer.variables]
    needed = sum(
        int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize for v in variables
    )
    if shutil.disk_usage(folder).free < 1.1 * needed:
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.parent)
        )


@contextlib.contextmanager
def _without_optimizer(model):
    """Keep the optimizer, which `training.npz` holds, out of a weights file."""
    optimizer = getattr(model, "optimizer", None)
    model.optimizer = None
    try:
        yield
    finally:
        model.optimizer = optimizer


def _training_arrays(model):
    return {
        name: keras.ops.convert_to_numpy(variable)
        for name, variable in _training_variables(model).items()
    }


def newest_undamaged(
    run_dir: str | os.PathLike, count: int
) -> list[tuple[pathlib.Path, dict]]:
    """Find the newest checkpoints whose files are as they were written.

    Args:
        run_dir: The run directory.
        count: How many at most.

    Returns:
        Pairs of a checkpoint's path and its `state.json`, oldest first.

    Raises:
        UserError: If there are checkpoints and all of them are damaged.
    """
    found = []
    for path in reversed(list_checkpoints(run_dir)):
        state, damage = _read_state(path)
        if damage:
            logger.warning(
                "Skipping the damaged checkpoint %s (%s); the one before it "
                "is used.",
                path,
                damage,
            )
            continue
        found.append((path, state))
        if len(found) == count:
            break
    if not found:
        raise UserError(
            f"Every checkpoint in {pathlib.Path(run_dir) / FOLDER} is "
            "damaged; restore one from a copy, or train in a new directory."
        )
    return found[::-1]


def _read_state(path):
    """The checkpoint's state and, if it is damaged, in what way."""
    try:
        state = json.loads((path / _STATE_FILE).read_text())
        Progress(state["step"], state["seconds"])
        for name, expected in state["files"].items():
            if _checksum(path / name) != expected:
                return state, f"{name} has another checksum"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"{type(error).__name__}: {error}"
    return state, None


def _checksum(path):
    """CRC-32 of a file, read in pieces."""
    checksum = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _flush_to_disk(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
