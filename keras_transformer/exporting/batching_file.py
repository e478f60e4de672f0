"""TensorFlow Serving's batching file, which `serve` reads too."""

import os
import pathlib
import re

from keras_transformer.config import UserError

BATCHING_FILE = "batching_parameters.txt"
MAX_BATCH_SIZE = 32

_TEXT = """\
# For tensorflow_model_server --enable_batching --batching_parameters_file.
# The most texts in a batch, and so in a request. The warm-up of the versions
# here has batches as large: lower it only together with a new version.
max_batch_size { value: SIZE }
# How long a text waits for company; a translation takes much longer.
batch_timeout_micros { value: 5000 }
# Batches translated at the same time, though each alone uses every core: on two
# cores two give 20 to 40 % more translations a second than one. With a small
# model they give 90 % more if this is the number of cores and each operator has
# one thread (TensorFlow Serving: --tensorflow_intra_op_parallelism=1).
num_batch_threads { value: 2 }
# Batches that may wait; beyond, a client hears at once that we are busy.
max_enqueued_batches { value: 16 }
# Deliberately without allowed_batch_sizes: TensorFlow Serving would pad batches
# and translate the padding.
"""
_KNOWN = re.findall(r"^(\w+) {", _TEXT, re.MULTILINE)


def batching_text(max_batch_size: int = MAX_BATCH_SIZE) -> str:
    """Write TensorFlow Serving's `BatchingParameters` as text."""
    return _TEXT.replace("SIZE", str(max_batch_size))


def read_batching(path: str | os.PathLike) -> dict[str, int]:
    """Read the parameters of `batching_text` that are there."""
    text = pathlib.Path(path).read_text("utf-8", "replace")
    values = {}
    text = re.sub("#.*", "", text)
    for name, value in re.findall(r"\b(\w+)\s*:?\s*{([^}]*)}", text):
        if name not in _KNOWN:
            continue  # Another of TensorFlow Serving's.
        number = re.fullmatch(r"\s*value\s*:\s*(\d+)\s*", value)
        values[name] = int(number[1]) if number else -1
        least = int(name != "batch_timeout_micros")
        if values[name] < least:
            raise UserError(
                f"Expected NAME {{ value: N }} in {path}, with N of at least "
                f"{least}, found {name} {{{value}}}; correct it."
            )
    if not values:
        raise UserError(
            f"Expected batching parameters such as max_batch_size {{ value: "
            f"32 }} in {path}, found none; name another file."
        )
    return values
