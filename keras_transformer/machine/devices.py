"""What TensorFlow computes on, and what it leaves idle."""

import contextlib
import logging
import math
import os
import pathlib
import re
import shutil
from typing import Any

from keras_transformer.machine import extras
from keras_transformer.settings import whole_number

logger = logging.getLogger("keras_transformer")

# Each search holds the keys and values of a batch of its own, 0.8 GB for base:
# all together have this width, and so at most about 3 GB.
TOTAL_WIDTH = 2_048
# Up to here several searches are no slower than one where each of them uses all
# cores: `benchmarks/decoding.md`.
NARROW = 256
# Fewer texts than these are searched faster together by operators of several
# threads.
FEWEST = 16

# What the driver of an NVIDIA card brings; where Linux runs inside Windows,
# there is only the program.
DRIVER = (
    pathlib.Path("/proc/driver/nvidia/version"),
    pathlib.Path("/dev/nvidia0"),
)
PROGRAM = "nvidia-smi"
# Where Linux lists what a processor has, and what multiplies bfloat16.
PROCESSORS = pathlib.Path("/proc/cpuinfo")
BFLOAT16_FLAGS = {"amx_bf16", "avx512_bf16"}
# Of how many microseconds a container may compute in how many (cgroup v2).
QUOTA = pathlib.Path("/sys/fs/cgroup/cpu.max")
# By which a user tells TensorFlow how many threads an operator may have.
THREADS = "TF_NUM_INTRAOP_THREADS"


def let_memory_grow() -> None:
    """Take memory of the GPUs as it is needed, not all at once.

    So that an evaluation fits in beside a training. Without effect where they
    are in use already.
    """
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        # In use, or divided into logical devices.
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.experimental.set_memory_growth(gpu, True)


def cores() -> int:
    """Cores of the processor that this process may use.

    A container's quota of processor time counts as so many whole cores,
    rounded up.
    """
    count = _schedulable_cores()
    # Only a container has it; what cannot be read is no reason to end.
    with contextlib.suppress(OSError, ValueError):
        quota, period = QUOTA.read_text().split()
        if quota != "max":
            count = min(count, math.ceil(int(quota) / int(period)))
    return count


def threads() -> int:
    """Threads on which TensorFlow runs a single operator."""
    import tensorflow as tf

    asked = os.environ.get(THREADS, "")
    return (
        tf.config.threading.get_intra_op_parallelism_threads()
        or (int(asked) if asked.isdecimal() else 0)
        or _schedulable_cores()  # TensorFlow knows of no quota.
    )


def share_cores(searches: int) -> None:
    """Give each of so many searches at a time its part of the cores.

    Without effect with a GPU, where `TF_NUM_INTRAOP_THREADS` says how many
    threads an operator has, or after TensorFlow's first operator, since its
    threads exist from then on.
    """
    import tensorflow as tf

    if THREADS in os.environ:
        return
    if not tf.config.list_physical_devices("GPU"):
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(
                max(1, cores() // searches)
            )


def log_devices() -> None:
    """Say what there is to compute on, and warn of a card that lies idle."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        logger.info("GPUs: %s.", ", ".join(map(_describe, gpus)))
        return
    logger.info("No GPU: computing on %d CPU cores.", cores())
    # Empty or -1: somebody does not want it.
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if has_nvidia_driver() and not hidden:
        logger.warning(
            "This machine has an NVIDIA card, but TensorFlow sees none: "
            "install CUDA with %s, and see that nvidia-smi lists the card (in "
            "a container, start that with its GPUs).",
            extras.install_command("gpu"),
        )


def warn_of_slow_bfloat16() -> None:
    """Say so where bfloat16 is slower than float32.

    Of a processor that does not list what it has nothing is known.
    """
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU") or not PROCESSORS.exists():
        return
    flags = re.findall(r"^flags\s*:(.*)", PROCESSORS.read_text(), re.MULTILINE)
    if flags and not BFLOAT16_FLAGS.intersection(flags[0].split()):
        logger.warning(
            "This processor does not multiply bfloat16 (it lists none of %s): "
            "float32 is faster here.",
            ", ".join(sorted(BFLOAT16_FLAGS)),
        )


def has_nvidia_driver() -> bool:
    """Whether the driver of an NVIDIA card is here."""
    return any(path.exists() for path in DRIVER) or bool(shutil.which(PROGRAM))


def _schedulable_cores() -> int:
    """Cores on which this process may run at all."""
    if hasattr(os, "sched_getaffinity"):  # Not on macOS.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _describe(gpu: Any) -> str:
    """Such as "NVIDIA H200 (compute capability 9.0)"."""
    import tensorflow as tf

    details = tf.config.experimental.get_device_details(gpu)
    name = details.get("device_name", gpu.name)
    if "compute_capability" not in details:
        return name
    major, minor = details["compute_capability"]
    return f"{name} (compute capability {major}.{minor})"


def searches(
    asked: int | None,
    cores: int,
    d_model: int,
    threads: int = 1,
    texts: int | None = None,
) -> int:
    """Choose how many searches run at the same time.

    As many as there are cores where each has one thread, which is the fastest
    at every width measured. Wide models whose operators have more threads than
    that have searches for the cores alone.

    Args:
        asked: The number that somebody wants; None for the best.
        cores: Of the processor, for this process.
        d_model: The model's width.
        threads: On which an operator runs.
        texts: To translate; None where nobody knows.

    Raises:
        SettingError: If `asked` is no number, or below 1.
    """
    if asked is None:
        most = cores if d_model <= NARROW else cores // threads
        if threads > 1 and texts is not None:
            most = min(most, texts // FEWEST)
        return max(1, min(most, TOTAL_WIDTH // d_model))
    return whole_number("parallel", asked)
