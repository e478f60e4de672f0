import dataclasses
import logging
import shutil

import h5py
import keras
import numpy as np
import pytest

from keras_transformer import checkpoints, config
from keras_transformer.checkpoints import Progress
from keras_transformer.config import UserError
from keras_transformer.distribution import ExactTransformer
from keras_transformer.losses import SmoothedCrossEntropy

MODEL = config.ModelConfig(
    vocab_size=23,
    num_layers=1,
    d_model=6,
    num_heads=2,
    key_dim=3,
    value_dim=5,
    ffn_dim=7,
    dropout=0.2,
)


def make_model(seed):
    keras.utils.set_random_seed(seed)
    model = ExactTransformer(**dataclasses.asdict(MODEL))
    model.compile(
        keras.optimizers.Adam(0.01),
        SmoothedCrossEntropy(0.1),
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def train(model, steps):
    random = np.random.default_rng(11)
    source, target = random.integers(4, 23, (2, 5 * steps, 7))
    target_in = np.concatenate([np.full((5 * steps, 1), 2), target[:, :-1]], 1)
    model.fit(
        (source, target_in), target, batch_size=5, shuffle=False, verbose=0
    )


def everything(model):
    """All that decides how a training goes on."""
    seeds = [
        layer.seed_generator.state
        for layer in model._flatten_layers()
        if hasattr(layer, "seed_generator")
    ]
    assert len(seeds) == 2 + 2 + 3  # Dropouts: embeddings, encoder, decoder.
    state = [*model.variables, *model.optimizer.variables, *seeds]
    return [np.array(variable) for variable in state]


@pytest.fixture
def run_dir(tmp_path):
    """A run directory with three checkpoints of other weights each."""
    preset = config.PRESETS["tiny"]
    config.RunConfig(
        preset="tiny",
        corpus="demo",
        source_lang="en",
        target_lang="de",
        train_split="train",
        validation_split="val",
        requested_vocab_size=23,
        model=MODEL,
        training=preset.training,
    ).save(tmp_path)
    for step in (1, 2, 3):
        checkpoints.save_checkpoint(
            tmp_path, make_model(seed=step), Progress(step)
        )
    return tmp_path


def test_a_restored_model_goes_on_exactly_like_the_saved_one(tmp_path):
    model = make_model(seed=1)
    train(model, steps=2)
    checkpoints.save_checkpoint(tmp_path, model, Progress(2, 3.5))
    restored = make_model(seed=2)
    progress = checkpoints.restore_checkpoint(tmp_path, restored)
    train(model, steps=2)
    train(restored, steps=2)

    assert progress == Progress(2, 3.5)
    for one, other in zip(everything(model), everything(restored), strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_a_checkpoint_training_starts_at_nothing(tmp_path):
    model = make_model(seed=1)
    assert checkpoints.restore_checkpoint(tmp_path, model) == Progress(0, 0.0)


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    model = make_model(seed=1)
    for step in (5, 10, 100, 20):
        checkpoints.save_checkpoint(tmp_path, model, Progress(step), keep=3)
    names = [path.name for path in checkpoints.list_checkpoints(tmp_path)]
    assert names == ["step-000000010", "step-000000020", "step-000000100"]


def test_a_write_that_fails_leaves_nothing_and_hides_nothing(
    run_dir, monkeypatch
):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save_checkpoint(run_dir, make_model(4), Progress(4))
    names = {path.name for path in (run_dir / "checkpoints").iterdir()}
    assert names == {"step-000000001", "step-000000002", "step-000000003"}


def test_too_little_space_is_noticed_before_anything_is_written(
    run_dir, monkeypatch
):
    free = shutil.disk_usage(run_dir)._replace(free=100)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda path: free)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save_checkpoint(run_dir, make_model(4), Progress(4))
    assert len(list((run_dir / "checkpoints").iterdir())) == 3


def test_the_optimizer_is_written_once(run_dir):
    with h5py.File(
        run_dir / "checkpoints" / "step-000000003" / "model.weights.h5"
    ) as file:
        assert "optimizer" not in file
        assert "embedding" in file


def test_a_half_written_folder_is_no_checkpoint(run_dir):
    (run_dir / "checkpoints" / ".partial-step-000000009").mkdir()
    assert [p.name for p in checkpoints.list_checkpoints(run_dir)][-1] == (
        "step-000000003"
    )


def test_the_average_is_the_mean_of_the_newest(run_dir):
    model = checkpoints.load_model(run_dir, average=2)
    two, three = (make_model(seed).get_weights() for seed in (2, 3))
    for mean, a, b in zip(model.get_weights(), two, three, strict=True):
        np.testing.assert_allclose(mean, (a + b) / 2, atol=1e-7)


def test_fewer_checkpoints_than_asked_are_averaged_with_a_word(run_dir, caplog):
    with caplog.at_level(logging.WARNING):
        model = checkpoints.load_model(run_dir, average=5)
    assert "Averaging 3 checkpoints instead of 5" in caplog.text
    expected = np.mean(
        [make_model(seed).get_weights()[0] for seed in (1, 2, 3)], axis=0
    )
    np.testing.assert_allclose(model.get_weights()[0], expected, atol=1e-7)


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
    model = make_model(seed=9)
    with caplog.at_level(logging.WARNING):
        progress = checkpoints.restore_checkpoint(run_dir, model)
    assert progress.step == 2
    # Out of the way, so that it neither counts nor stands for the newest.
    assert [p.name[-1] for p in checkpoints.list_checkpoints(run_dir)] == [
        "1",
        "2",
    ]
    assert "damaged checkpoint" in caplog.text
    assert "step-000000003" in caplog.text
    np.testing.assert_array_equal(
        model.get_weights()[0], make_model(seed=2).get_weights()[0]
    )


def test_a_truncated_checkpoint_is_damaged_too(run_dir):
    path = run_dir / "checkpoints" / "step-000000003" / "model.weights.h5"
    path.write_bytes(path.read_bytes()[:1000])
    progress = checkpoints.restore_checkpoint(run_dir, make_model(seed=9))
    assert progress.step == 2


def test_nothing_but_damaged_checkpoints_is_an_error(run_dir):
    for path in (run_dir / "checkpoints").glob("*/state.json"):
        path.unlink()
    with pytest.raises(UserError, match="Every checkpoint in .* is damaged"):
        checkpoints.restore_checkpoint(run_dir, make_model(seed=9))


def test_a_directory_that_is_no_run_is_an_error(tmp_path):
    with pytest.raises(UserError, match="Expected a run directory"):
        checkpoints.load_model(tmp_path / "nowhere")


def test_a_run_without_checkpoints_is_an_error(run_dir):
    for path in checkpoints.list_checkpoints(run_dir):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    with pytest.raises(UserError, match="has no checkpoint yet"):
        checkpoints.load_model(run_dir)


def test_averaging_nothing_is_an_error(run_dir):
    with pytest.raises(UserError, match="at least 1 .* received 0"):
        checkpoints.load_model(run_dir, average=0)
