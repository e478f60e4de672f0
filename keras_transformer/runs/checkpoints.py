"""Saves, lists and restores checkpoints.

A checkpoint is a folder `checkpoints/step-000001200` of a run directory:

    model.weights.h5   Keras's own format: `model.load_weights` reads it
    training.npz       the optimizer's variables and the dropout seeds
    state.json         a `Progress`, and checksums

Older ones, without training.npz, are kept for averages. With `patience`,
`checkpoints/best-000001200` holds the weights of the best validation, also
without it.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformer.config import UserError, logger
from keras_transformer.machine import files
from keras_transformer.replicas import seeds_of
from keras_transformer.runs.layout import CHECKPOINTS, list_checkpoints, step_of

WEIGHTS_FILE = "model.weights.h5"
RESUMABLE = 2  # Newest ones with training.npz: twice the size of the weights.
_TRAINING_FILE = "training.npz"
_STATE_FILE = "state.json"


class Standing(NamedTuple):
    """The result of the validations up to an update, for `patience`."""

    best: int | None = None  # The update of the best one, if there is one.
    value: float = 0.0  # Its figure.
    waited: int = 0  # How many came after it.
    on: str = "loss"  # What is compared; or "bleu".
    # Of the best. It decides among equal BLEU, unless it was not noted.
    loss: float = 0.0


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a training, and what was measured of it there."""

    # Batches trained on: the place in the endless data order. It is also the
    # number of updates, except those that float16 had to skip.
    step: int = 0
    seconds: float = 0.0  # Time spent training, over all sessions.
    figures: Mapping[str, float] | None = None  # Of a validation here.
    standing: Standing | None = None  # None before the first validation.

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Progress":
        """Read it from a `state.json`."""
        names = {field.name for field in dataclasses.fields(cls)}
        known = {name: state[name] for name in names & state.keys()}
        if known.get("standing"):
            known["standing"] = Standing(*known["standing"])
        return cls(**known)


def save_checkpoint(
    run_dir: str | os.PathLike,
    model: keras.Model,
    progress: Progress,
    keep: int = 10,
    is_temporary: bool = False,
) -> pathlib.Path:
    """Write a checkpoint; remove temporary ones, and all but `keep` others."""
    # A restart from an older one may reach this step again, and replace it.
    path = pathlib.Path(run_dir) / CHECKPOINTS / f"step-{progress.step:09d}"
    _write(path, model, progress, _training_variables(model), is_temporary)
    _remove_temporary(run_dir, path)
    kept = list_checkpoints(run_dir)
    for old in kept[:-keep]:
        files.remove(old)
    for old in kept[-keep:-RESUMABLE]:
        (old / _TRAINING_FILE).unlink(missing_ok=True)
    return path


def note(run_dir: str | os.PathLike, progress: Progress) -> None:
    """Write what was measured at an update into its checkpoint, if any."""
    folder = pathlib.Path(run_dir) / CHECKPOINTS
    path = folder / f"step-{progress.step:09d}" / _STATE_FILE
    if path.exists():
        state = files.from_json(path.read_text())
        state |= dataclasses.asdict(progress)
        files.write_text(path, files.to_json(state))


def save_best(
    run_dir: str | os.PathLike, model: keras.Model, progress: Progress
) -> None:
    """Write validated weights, which do not count as a checkpoint."""
    path = pathlib.Path(run_dir) / CHECKPOINTS / f"best-{progress.step:09d}"
    _write(path, model, progress, {}, is_temporary=False)


def forget_best(run_dir: str | os.PathLike, standing: Standing) -> None:
    """Remove weights that neither the end nor a resumed session needs."""
    needed = {standing.best}
    for path in list_checkpoints(run_dir)[-RESUMABLE:]:
        needed.add((_read_state(path).get("standing") or [None])[0])
    for path in list_checkpoints(run_dir, "best"):
        if step_of(path) not in needed:
            files.remove(path)


def find_best(
    run_dir: str | os.PathLike, standing: Standing | None
) -> tuple[pathlib.Path, Progress] | None:
    """Find the weights of the best validation, unless they are damaged."""
    for path in list_checkpoints(run_dir, "best"):
        if standing and step_of(path) == standing.best:
            if not _damage(path):
                return path, Progress.of(_read_state(path))
            logger.warning("Skipping the best weights, damaged: %s.", path)
    return None


def _write(
    path: pathlib.Path,
    model: keras.Model,
    progress: Progress,
    variables: Mapping[str, keras.Variable],
    is_temporary: bool,
) -> None:
    """Write weights, `training.npz` of any variables, and `state.json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as partial:
        partial.mkdir()
        _check_space([*model.weights, *variables.values()], partial)
        with _without_optimizer(model):
            model.save_weights(partial / WEIGHTS_FILE)
        if variables:
            arrays = {
                name: keras.ops.convert_to_numpy(variable)
                for name, variable in variables.items()
            }
            np.savez(partial / _TRAINING_FILE, **arrays)
        written = sorted(partial.iterdir())
        state = {
            **dataclasses.asdict(progress),
            "is_passing": is_temporary,
            "files": {file.name: files.checksum(file) for file in written},
        }
        (partial / _STATE_FILE).write_text(files.to_json(state))


def restore_checkpoint(
    run_dir: str | os.PathLike, model: keras.Model
) -> Progress:
    """Set model, built optimizer and seeds to the newest undamaged checkpoint.

    Without any, the progress is all zeros; a `UserError` if all are damaged.
    """
    if not list_checkpoints(run_dir):
        return Progress()
    path, state = newest_undamaged(run_dir, 1, needed=_TRAINING_FILE)[0]
    for other in list_checkpoints(run_dir):
        if step_of(other) > step_of(path):  # It is damaged.
            files.give_name(other, other.with_name(f".damaged-{other.name}"))
    _remove_temporary(run_dir, path)
    with _without_optimizer(model):
        model.load_weights(path / WEIGHTS_FILE)
    with np.load(path / _TRAINING_FILE) as arrays:
        for name, variable in _training_variables(model).items():
            variable.assign(arrays[name])
    return Progress.of(state)


def _training_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Collect optimizer variables and dropout seeds, by place."""
    kinds = {"optimizer": model.optimizer.variables, "seed": seeds_of(model)}
    # Keras's own paths depend on the number of models in the process.
    return {
        f"{kind}/{i}": variable
        for kind, variables in kinds.items()
        for i, variable in enumerate(variables)
    }


def _check_space(
    variables: Iterable[keras.Variable], folder: pathlib.Path
) -> None:
    """Fail before the first byte: HDF5 may crash the process on a full disk."""
    # HDF5 adds some 2.5 kB to every variable.
    sizes = (np.prod(v.shape) * np.dtype(v.dtype).itemsize for v in variables)
    needed = sum(1.1 * size + 4096 for size in sizes)
    if shutil.disk_usage(folder).free < needed:
        reason = os.strerror(errno.ENOSPC)
        raise OSError(errno.ENOSPC, reason, str(folder.parent))


@contextlib.contextmanager
def _without_optimizer(model: keras.Model) -> Iterator[None]:
    """Keep the optimizer, which `training.npz` holds, out of a weights file."""
    optimizer = getattr(model, "optimizer", None)
    model.optimizer = None
    try:
        yield
    finally:
        model.optimizer = optimizer


def newest_undamaged(
    run_dir: str | os.PathLike, count: int, needed: str = WEIGHTS_FILE
) -> list[tuple[pathlib.Path, dict[str, Any]]]:
    """Find the newest whole checkpoints and their states, oldest first."""
    undamaged: list[tuple[pathlib.Path, dict[str, Any]]] = []
    for path in reversed(list_checkpoints(run_dir)):
        damage = _damage(path)
        if not damage and not (path / needed).exists():
            damage = f"{needed} is missing"
        if not damage:
            undamaged.append((path, _read_state(path)))
        elif path.exists():
            logger.warning(
                "Skipping the damaged checkpoint %s (%s); the one before it "
                "is used, so results may differ from before.",
                path,
                damage,
            )
        if len(undamaged) == count:
            break
    if not undamaged:
        raise UserError(
            f"Every {needed} in {run_dir}/{CHECKPOINTS} is damaged; restore "
            "one from a copy, or train in a new directory."
        )
    return undamaged[::-1]


def _read_state(path: pathlib.Path) -> dict[str, Any]:
    """Return a checkpoint's state; an empty one if it cannot be read."""
    try:
        return files.from_json((path / _STATE_FILE).read_text())
    except (OSError, ValueError, TypeError):
        return {}


def _damage(path: pathlib.Path) -> str | None:
    """Say in what way a checkpoint is damaged, if it is."""
    state = _read_state(path)
    if state.get("step") != step_of(path):
        return f"{_STATE_FILE} is damaged or of another step"
    for name, expected in state.get("files", {}).items():
        file = path / name
        if name == _TRAINING_FILE and not file.exists():
            continue  # As older checkpoints are, on purpose.
        if not file.exists() or files.checksum(file) != expected:
            return f"{name} is missing or has another checksum"
    return None


def _remove_temporary(run_dir: str | os.PathLike, newest: pathlib.Path) -> None:
    """Remove temporary checkpoints before the newest: no average has them."""
    for old in list_checkpoints(run_dir):
        if old != newest and _read_state(old).get("is_passing"):
            files.remove(old)
