"""What the package says of the devices; GPUs are made up."""

import types

import pytest
import tensorflow as tf

from keras_transformer.commands import command_line
from keras_transformer.machine import devices

GPUS = [
    types.SimpleNamespace(name=f"/physical_device:GPU:{i}", device_type="GPU")
    for i in range(2)
]


@pytest.fixture
def machine(monkeypatch):
    """Sets what TensorFlow sees."""

    def make(gpus=()):
        def listed(kind):
            return list(gpus) if kind == "GPU" else []

        monkeypatch.setattr(tf.config, "list_physical_devices", listed)

    return make


def said(caplog):
    caplog.clear()
    with caplog.at_level("INFO", "keras_transformer"):
        devices.log_devices()
    return [(record.levelname, record.message) for record in caplog.records]


def test_commands_let_the_memory_of_all_gpus_grow(machine, monkeypatch):
    machine(GPUS)
    grown = []
    monkeypatch.setattr(
        tf.config.experimental,
        "set_memory_growth",
        lambda gpu, yes: grown.append((gpu, yes)),
    )
    command_line.quiet_tensorflow()
    assert grown == [(gpu, True) for gpu in GPUS]


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """Sets the cores that Linux schedules on, and the quota of their time."""
    path = tmp_path / "cpu.max"
    monkeypatch.setattr(devices, "QUOTA", path)

    def make(cores, quota=None):
        monkeypatch.setattr(
            devices.os, "sched_getaffinity", lambda _: range(cores), False
        )
        if quota:
            path.write_text(quota)

    return make


@pytest.mark.parametrize(
    "quota, cores",
    [(None, 12), ("max 100000\n", 12), ("250000 100000\n", 3)],
)
def test_a_container_has_the_cores_of_its_quota(
    machine, processor, caplog, quota, cores
):
    machine()
    processor(12, quota)
    assert devices.cores() == cores
    message = f"No GPU: computing on {cores} CPU cores."
    assert said(caplog) == [("INFO", message)]


# What the kernel says of a processor, which of its instructions are used, and
# the precisions that it does not multiply.
NEITHER = ["bfloat16", "int8"]
PROCESSORS = [
    ("flags\t: avx512f avx512bw avx512dq avx512vl", ["AVX-512"], NEITHER),
    ("flags\t: avx512_vnni avx512bw avx512dq", ["VNNI"], ["bfloat16"]),
    ("flags : avx2 avx512f", [], NEITHER),
    ("flags : fpu avx512f avx512_bf16", [], ["int8"]),
    ("Features : asimd", [], []),
]


@pytest.mark.parametrize("flags, instructions, slow", PROCESSORS)
def test_what_a_processor_has_and_does_not_multiply_is_known(
    machine, tmp_path, monkeypatch, caplog, flags, instructions, slow
):
    machine()
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(devices, "PROCESSORS", path)
    path.write_text(f"processor : 0\n{flags}\n")

    assert list(filter(devices.has, devices.INSTRUCTIONS)) == instructions
    for precision in ("float32", "bfloat16", "int8"):
        devices.warn_of_slow(precision)
    assert {x.levelname for x in caplog.records} <= {"WARNING"}
    assert [text.partition(" (")[0] for text in caplog.messages] == [
        f"This processor does not multiply {precision}" for precision in slow
    ]
    # With a GPU its processor does not matter.
    machine(GPUS)
    caplog.clear()
    devices.warn_of_slow("int8")
    assert not caplog.messages
