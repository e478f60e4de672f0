"""What the package says of the devices; GPUs are made up."""

import pytest
import tensorflow as tf

from keras_transformer.commands import command_line
from keras_transformer.machine import devices

GPUS = ["GPU:0", "GPU:1"]


def test_commands_let_the_memory_of_all_gpus_grow(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: GPUS)
    grown = []
    monkeypatch.setattr(
        tf.config.experimental,
        "set_memory_growth",
        lambda gpu, yes: grown.append((gpu, yes)),
    )
    command_line.quiet_tensorflow()
    assert grown == [(gpu, True) for gpu in GPUS]


@pytest.mark.parametrize(
    "quota, cores",
    [("", 12), ("max 100000\n", 12), ("250000 100000\n", 3)],
)
def test_a_container_has_the_cores_of_its_quota(
    tmp_path, monkeypatch, caplog, quota, cores
):
    caplog.set_level("INFO", "keras_transformer")
    path = tmp_path / "cpu.max"
    path.write_text(quota)
    monkeypatch.setattr(devices, "QUOTA", path)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _: range(12))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])
    assert devices.cores() == cores
    devices.log_devices()
    assert caplog.messages == [f"No GPU: computing on {cores} CPU cores."]


@pytest.mark.parametrize(
    "flags, instructions",
    [
        ("flags\t: avx512f avx512bw avx512dq avx512vl", ["AVX-512"]),
        ("flags\t: avx512_vnni avx512bw avx512dq", ["VNNI"]),
        ("flags : avx2 avx512f", []),
        ("Features : asimd", []),
    ],
)
def test_the_instructions_of_a_processor_are_known(
    tmp_path, monkeypatch, flags, instructions
):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(devices, "PROCESSORS", path)
    path.write_text(f"processor : 0\n{flags}\n")
    assert list(filter(devices.has, devices.INSTRUCTIONS)) == instructions
