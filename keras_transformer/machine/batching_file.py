"""TensorFlow Serving's batching file: an export's, read by our server too."""

import dataclasses
import os
import pathlib
import re

from keras_transformer.config import UserError
from keras_transformer.settings import nearest

BATCHING_FILE = "batching_parameters.txt"

_TEXT = """\
# For tensorflow_model_server --enable_batching --batching_parameters_file.
# The most texts in a batch, and so in a request. The warm-up of the versions
# here has batches as large: lower it only together with a new version.
max_batch_size {{ value: {max_batch_size} }}
# How long a text waits for company; a translation takes much longer.
batch_timeout_micros {{ value: {batch_timeout_micros} }}
# Batches translated at the same time, though each alone uses every core: on two
# cores two give 20 to 40 % more translations a second than one. With a small
# model they give 90 % more if this is the number of cores and each operator has
# one thread (TensorFlow Serving: --tensorflow_intra_op_parallelism=1).
num_batch_threads {{ value: {num_batch_threads} }}
# Batches that may wait; beyond, a client hears at once that we are busy.
max_enqueued_batches {{ value: {max_enqueued_batches} }}
# Deliberately without allowed_batch_sizes: TensorFlow Serving would pad batches
# and translate the padding.
"""


@dataclasses.dataclass(frozen=True)
class Batching:
    """The parameters of the file that matter here, as `_TEXT` explains them."""

    max_batch_size: int = 32
    batch_timeout_micros: int = 5_000
    num_batch_threads: int = 2
    max_enqueued_batches: int = 16

    def as_text(self) -> str:
        """Write TensorFlow Serving's `BatchingParameters` as text."""
        return _TEXT.format(**dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Batching":
        """Read a file; missing parameters have their defaults."""
        return cls(**read_batching(path))


def read_batching(path: str | os.PathLike) -> dict[str, int]:
    """Read the fields of `Batching` that a file has.

    Raises:
        UserError: If it cannot be read, holds none of them, misspells one, or
            has a number below 1 (or a time below 0).
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"Expected the batching parameters in {path}, cannot read "
            f"them ({type(error).__name__}); name another file."
        ) from None
    known = [field.name for field in dataclasses.fields(Batching)]
    text = re.sub("#.*", "", text)
    values = {}
    for name, value in re.findall(r"\b(\w+)\s*:?\s*{([^}]*)}", text):
        number = re.fullmatch(r"\s*value\s*:\s*(-?\d+)\s*", value)
        if name in known and number:
            values[name] = int(number[1])
            if values[name] < (name != "batch_timeout_micros"):
                raise UserError(
                    f"Expected {name} of at least 1 in {path}, found "
                    f"{number[1]}."
                )
        elif name in known or nearest(name, known):
            raise UserError(
                f"Expected NAME {{ value: N }} in {path}, found {name} "
                f"{{{value}}}{nearest(name, known)}; correct it."
            )
    if not values:
        raise UserError(
            f"Expected batching parameters such as max_batch_size {{ value: "
            f"32 }} in {path}, found none; name another file."
        )
    return values
