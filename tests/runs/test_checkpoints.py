"""Checkpoints, and averages of them."""

import dataclasses
import logging
import re
import shutil
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from sample_runs import fit_tiny_model, make_tiny_model, tiny_run

from keras_transformer.config import UserError
from keras_transformer.machine import files
from keras_transformer.runs import averaging, checkpoints
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import building


def everything(model):
    """All that decides how a training goes on."""
    # Dropouts: embeddings, encoder, decoder.
    assert len(model.variables) - len(model.weights) == 2 + 2 + 3
    state = [*model.variables, *model.optimizer.variables]
    return [np.array(variable) for variable in state]


@pytest.fixture
def run_dir(tmp_path):
    """A run directory with three checkpoints of other weights each."""
    return shutil.copytree(tiny_run(), tmp_path / "run")


def test_a_restored_model_goes_on_exactly_like_the_saved(tmp_path):
    models = model, restored = [make_tiny_model(seed) for seed in (1, 2)]
    for each in models:
        each.run_eagerly = True  # Tracing would take longer.
    fit_tiny_model(model, steps=2)
    checkpoints.save_checkpoint(tmp_path, model, Progress(2, 3.5))
    progress = checkpoints.restore_checkpoint(tmp_path, restored)
    assert progress == Progress(2, 3.5)
    for each in models:
        fit_tiny_model(each, steps=2)
    np.testing.assert_equal(*map(everything, models))


def test_no_average_has_a_temporary_checkpoint(tmp_path, monkeypatch):
    model = make_tiny_model(seed=1)
    for step, is_temporary in ((3, False), (5, True)):
        checkpoints.save_checkpoint(
            tmp_path, model, Progress(step), is_temporary=is_temporary
        )
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt = mock.Mock(side_effect=KeyboardInterrupt)
        patch.setattr(files, "remove", interrupt)
        checkpoints.save_checkpoint(tmp_path, model, Progress(7))

    assert checkpoints.restore_checkpoint(tmp_path, model).step == 7

    left = map(checkpoints.step_of, checkpoints.list_checkpoints(tmp_path))
    assert list(left) == [3, 7]


def test_a_checkpoint_begins_only_where_it_has_room(tmp_path, monkeypatch):
    # HDF5 may crash the process on a full disk.
    model = make_tiny_model(seed=1)
    checkpoints.save_best(tmp_path, model, Progress(3))
    size = sum(file.stat().st_size for file in tmp_path.rglob("*"))
    free = shutil.disk_usage(tmp_path)._replace(free=size)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda path: free)
    with pytest.raises(OSError, match="No space left on device: .*checkpoints"):
        checkpoints.save_best(tmp_path, model, Progress(5))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize(
    "file", ["model.weights.h5", "training.npz", "state.json"]
)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    run_dir, caplog, file
):
    damaged = run_dir / "checkpoints" / "step-000000003" / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    model = make_tiny_model(seed=9)
    with caplog.at_level(logging.WARNING):
        progress = checkpoints.restore_checkpoint(run_dir, model)
    assert progress.step == 2
    # Out of the way, so that it neither counts nor stands for the newest.
    kept = map(checkpoints.step_of, checkpoints.list_checkpoints(run_dir))
    assert [*kept] == [1, 2]
    for part in ("damaged checkpoint", "step-000000003", "so results may diff"):
        assert part in caplog.text
    np.testing.assert_array_equal(
        model.get_weights()[0], make_tiny_model(seed=2).get_weights()[0]
    )


def test_a_step_that_is_damaged_again_is_put_aside_again(run_dir):
    damaged = run_dir / "checkpoints" / "step-000000003"
    aside = shutil.copytree(
        damaged, damaged.with_name(f".damaged-{damaged.name}")
    )
    (aside / "of-before").touch()
    (damaged / "training.npz").write_bytes(b"")
    assert checkpoints.restore_checkpoint(run_dir, make_tiny_model(9)).step == 2
    assert aside.exists() and not (aside / "of-before").exists()


def test_a_checkpoint_without_its_optimizer_is_an_older_one(tmp_path, caplog):
    """A kill, or a copy of a backup over a run, leaves such a one anywhere."""
    model = make_tiny_model(seed=1)
    folder = tmp_path / "checkpoints"
    for step in range(1, 8):
        checkpoints.save_checkpoint(tmp_path, model, Progress(step), keep=5)
    whole = ["model.weights.h5", "state.json", "training.npz"]
    for step in (3, 4, 5, 6, 7):
        files_of = sorted((folder / f"step-{step:09d}").iterdir())
        names = [path.name for path in files_of]
        assert names == whole[: 2 + (step > 5)]
    (folder / "step-000000007" / "training.npz").unlink()
    assert checkpoints.restore_checkpoint(tmp_path, model).step == 6
    assert "step-000000007 (training.npz is missing)" in caplog.text
    checkpoints.save_checkpoint(tmp_path, model, Progress(8), keep=5)
    found = checkpoints.newest_undamaged(tmp_path, 5)
    assert [state["step"] for _, state in found] == [3, 4, 5, 6, 8]


def test_nothing_but_damaged_checkpoints_is_an_error(run_dir):
    for path in (run_dir / "checkpoints").glob("*/state.json"):
        path.unlink()
    with pytest.raises(UserError, match=re.escape(str(run_dir))):
        checkpoints.restore_checkpoint(run_dir, make_tiny_model(seed=9))


def test_as_many_checkpoints_as_the_recipe_says_are_averaged(run_dir, caplog):
    with caplog.at_level(logging.WARNING):
        model, chosen = averaging.load(run_dir)
    assert [name[-1] for name in chosen.checkpoints] == ["1", "2", "3"]
    assert "3 of the last 5 checkpoints" in caplog.text
    for found, *each in zip(
        model.get_weights(),
        *(make_tiny_model(seed).get_weights() for seed in (1, 2, 3)),
        strict=True,
    ):
        np.testing.assert_allclose(found, np.mean(each, axis=0), atol=1e-7)


def test_a_number_in_the_configuration_does_not_fill_the_memory(run_dir):
    run = RunConfig.load(run_dir)
    chosen = averaging.choose(run_dir, run)
    model = dataclasses.replace(run.model, d_model=1 << 20)
    run = dataclasses.replace(run, model=model)
    with pytest.raises(UserError, match="too small"):
        chosen.load(run)
    # A training that goes on.
    with pytest.raises(UserError, match="too small"):
        building.build_model(SimpleNamespace(run=run, run_dir=run_dir))
