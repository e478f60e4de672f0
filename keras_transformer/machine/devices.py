"""The devices that TensorFlow computes on, and the end of memory or disk."""

import contextlib
import math
import os
import pathlib
import re
import resource
from collections.abc import Iterator

from keras_transformer.config import JobError, logger
from keras_transformer.machine import extras, files

# Each search holds the keys and values of its own batch, 0.8 GB for base. This
# bounds the width of all together, and so their memory to about 3 GB.
TOTAL_WIDTH = 2_048
# Up to this width several searches that all use every core are no slower than
# one: `benchmarks/decoding.md`.
NARROW = 256
# Fewer texts than this are faster in one search whose operators have several
# threads.
FEWEST = 16

# Linux's list of a processor's features.
PROCESSORS = pathlib.Path("/proc/cpuinfo")
# What an operator may need, by its usual name: all features of one of the sets.
INSTRUCTIONS = {
    "AVX-512": [{"avx512f", "avx512bw", "avx512dq", "avx512vl"}],
    "VNNI": [{"amx_int8"}, {"avx512_vnni"}, {"avx_vnni"}],
}
# A container's processor time and its period, in microseconds (cgroup v2).
QUOTA = pathlib.Path("/sys/fs/cgroup/cpu.max")
# The variable that tells TensorFlow how many threads an operator may have.
THREADS = "TF_NUM_INTRAOP_THREADS"
_EXHAUSTED = 8  # TensorFlow's code of full memory.
_NO_MEMORY = ("out of memory", "out_of_memory", "alloc_failed")  # CUDA's words.


def let_memory_grow() -> None:
    """Take the GPUs' memory as it is needed: several programs then fit."""
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        # It is in use, or divided into logical devices.
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.experimental.set_memory_growth(gpu, True)


def cores() -> int:
    """Count the cores of the processor that this process may use."""
    count = len(os.sched_getaffinity(0))
    # Only a container has a quota.
    with contextlib.suppress(OSError, ValueError):
        quota, period = QUOTA.read_text().split()
        if quota != "max":
            count = min(count, math.ceil(int(quota) / int(period)))
    return count


def threads() -> int:
    """Count the threads on which TensorFlow runs a single operator."""
    import tensorflow as tf

    asked = os.environ.get(THREADS, "")
    return (
        tf.config.threading.get_intra_op_parallelism_threads()
        or (int(asked) if asked.isdecimal() else 0)
        or len(os.sched_getaffinity(0))  # TensorFlow ignores the quota.
    )


def share_cores(searches: int) -> None:
    """Give each of several simultaneous searches its share of the cores.

    This has no effect with a GPU, or after TensorFlow's first operator.
    """
    import tensorflow as tf

    if THREADS not in os.environ and not tf.config.list_physical_devices("GPU"):
        share = max(1, cores() // searches)
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(share)


def log_devices() -> None:
    """Log the devices to compute on."""
    import tensorflow as tf

    if gpus := tf.config.list_physical_devices("GPU"):
        about = tf.config.experimental.get_device_details
        names = [about(gpu).get("device_name", gpu.name) for gpu in gpus]
        logger.info("GPUs: %s.", ", ".join(names))
    else:
        logger.info("No GPU: computing on %d CPU cores.", cores())


def peak_memory() -> float:
    """Return the most bytes that a GPU, or else this process, had in use."""
    import tensorflow as tf

    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def has(instructions: str) -> bool:
    """Return whether the processor is known to have such `INSTRUCTIONS`."""
    # Except on Linux nothing is known.
    text = PROCESSORS.read_text() if PROCESSORS.exists() else ""
    flags = re.search(r"^flags\s*:(.*)", text, re.MULTILINE)
    listed = {*flags[1].split()} if flags else set()
    return any(needed <= listed for needed in INSTRUCTIONS[instructions])


def searches(
    cores: int, d_model: int, threads: int = 1, texts: int | None = None
) -> int:
    """Choose how many searches run at the same time.

    With one thread each, as many searches as cores are fastest at every width
    measured. Wide models whose operators have more `threads` get fewer, so that
    their threads fit the cores, and so do a few texts.
    """
    most = cores if d_model <= NARROW else cores // threads
    if threads > 1 and texts is not None:
        most = min(most, texts // FEWEST)
    return max(1, min(most, TOTAL_WIDTH // d_model))


@contextlib.contextmanager
def explained(
    less: str, place: str | os.PathLike | None = None
) -> Iterator[None]:
    """Turn an error of full memory or a full disk into one sentence.

    `less` is advice on using less memory, the end of a sentence; `place` is
    named if an error of a full disk names no file.
    """
    try:
        yield
    except ImportError as error:
        raise extras.missing_keras(error) or error from None
    except Exception as error:
        code = getattr(error, "error_code", None)  # TensorFlow's.
        said = f"{getattr(error, 'strerror', None) or ''} {error}"
        # Libraries pass the system's words on; h5py's may be a RuntimeError.
        is_known = code is not None or isinstance(error, OSError | RuntimeError)
        reasons = [x for x in map(os.strerror, files.FULL) if x in said]
        if is_known and reasons:
            name = getattr(error, "filename", None) or place
            raise JobError(
                f"{f'{name}: ' if name else ''}{reasons[0]}; free space or "
                "choose a place that can be written, then run the same command "
                "again."
            ) from error
        # If a driver finds no memory, TensorFlow calls it an internal error.
        lacks_memory = any(x in said.lower() for x in _NO_MEMORY)
        is_full = code is not None and lacks_memory
        if is_full or code == _EXHAUSTED or isinstance(error, MemoryError):
            # The error's first line has the device.
            text = str(getattr(error, "message", error)).strip()
            text = text[max(text.find("OOM when"), 0) :].partition("\n")[0]
            where = f" ({text.partition(' [Op:')[0]})" if text else ""
            raise JobError(f"Out of memory{where}; {less}.") from error
        raise
