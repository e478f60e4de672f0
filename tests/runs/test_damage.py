"""A flipped bit, a cut and a missing file are told; no result is wrong.

More of a checkpoint: `test_checkpoints.py`; of token records:
`test_records.py`.
"""

import dataclasses
import random
import re
import shutil

import numpy as np
import pytest
from sample_runs import make_run, tiny_run

from keras_transformer.config import ModelConfig, UserError
from keras_transformer.machine import files
from keras_transformer.runs import averaging, checkpoints
from keras_transformer.runs.averaging import Chosen
from keras_transformer.runs.run_config import (
    RunConfig,
    checksum_of,
    load_vocabulary,
)


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def flips(path, count):
    """Flip some bits of a file, one at a time."""
    whole = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(whole)), count):
        flip(path, bit)
        yield bit
        path.write_bytes(whole)


def test_no_flipped_bit_of_the_configuration_is_believed(tmp_path):
    run = make_run(ModelConfig(dropout=0.25), initial={"run_dir": "Größe"})
    run.save(tmp_path)
    path = tmp_path / "config.json"
    whole = path.read_bytes()
    refused = 0
    for bit in flips(path, 200):
        try:
            assert RunConfig.load(tmp_path) == run, bit  # A space, perhaps.
        except UserError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 120  # The rest is layout.
    for length in range(0, len(whole) - 1, 29):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=re.escape(str(path))):
            RunConfig.load(tmp_path)


def test_no_flipped_bit_of_a_checkpoint_s_state_is_believed(tmp_path):
    run_dir = shutil.copytree(tiny_run(), tmp_path / "run")
    path = run_dir / "checkpoints" / "step-000000003" / "state.json"
    ((_, expected),) = checkpoints.newest_undamaged(run_dir, 1)
    assert expected["step"] == 3
    passed_over = 0
    for bit in flips(path, 300):
        ((found, state),) = checkpoints.newest_undamaged(run_dir, 1)
        if found == path.parent:  # A space, perhaps.
            assert {name: state[name] for name in expected} == expected, bit
        else:
            passed_over += 1
            assert state["step"] == 2
    assert passed_over > 150


@pytest.fixture(scope="module")
def finished(small_run, tmp_path_factory):
    """A finished run whose weights are those of its checkpoint."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    shutil.copytree(small_run, run_dir)
    known = checksum_of(load_vocabulary(run_dir))
    run = RunConfig.load(run_dir)
    dataclasses.replace(run, vocabulary=known).save(run_dir)
    path = run_dir / "final.weights.h5"
    averaging.load(run_dir, average=1)[0].save_weights(path)
    figures = {"loss": 2.5, "perplexity": 3.5, "token_accuracy": 0.5}
    Chosen(
        step=7,
        checkpoints=("step-000000007",),
        validation={"average": figures, "last": figures},
        checksum=files.checksum(path),
        run_dir=run_dir,
    ).save()
    return run_dir


@pytest.fixture
def run_dir(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def flip_one(path):
    flip(path, random.Random(1).randrange(8 * path.stat().st_size))


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("damage", [flip_one, cut])
def test_a_vocabulary_with_a_flipped_bit_or_cut_short_is_told(run_dir, damage):
    path = run_dir / "tokenizer.model"
    damage(path)
    with pytest.raises(UserError, match=re.escape(str(path))):
        load_vocabulary(run_dir)


@pytest.mark.parametrize("damage", [flip_one, cut])
def test_damaged_final_weights_are_told_with_a_way_out(run_dir, damage):
    expected = averaging.load(run_dir)[0].get_weights()
    damage(run_dir / "final.weights.h5")
    with pytest.raises(UserError, match="`average`"):
        averaging.load(run_dir)
    found = averaging.load(run_dir, average=1)[0].get_weights()
    np.testing.assert_equal(found, expected)
