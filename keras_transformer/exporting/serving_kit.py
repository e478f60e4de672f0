"""How a model is exported, and what TensorFlow Serving reads beside it.

`docs/reference/saved_model.md` says what each file does. Without
`tensorflow-serving-api`, which defines the messages, there is no warm-up.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from keras_transformer.config import (
    SEARCH_PRECISIONS,
    Search,
    SettingError,
    UserError,
    logger,
)
from keras_transformer.machine import extras
from keras_transformer.settings import Checked, setting

BATCHING_FILE = "batching_parameters.txt"
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"

# The language does not matter, the lengths do.
SHORT_TEXT = "Where is the nearest station?"
LONG_TEXT = " ".join([SHORT_TEXT] * 12)

BATCHING_TEXT = """\
# For tensorflow_model_server --enable_batching --batching_parameters_file.
# The most texts in a batch, and so in a request; the warm-up has two.
max_batch_size { value: 32 }
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
_KNOWN = re.findall(r"^(\w+) {", BATCHING_TEXT, re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Export(Checked):
    """How a model is exported, from the flags to the files."""

    version: int = setting(1, "number of this export")
    search: Search | None = setting(
        None, "how its signatures search", flag=False
    )
    precision: str | None = setting(
        None,
        "type of the weights and of the products with them; bfloat16 (half the "
        "size) and int8 (a quarter) are faster where the processor can",
        choices=SEARCH_PRECISIONS,
    )
    portable: bool = setting(
        False,
        "use only operators that every TensorFlow has, for GPUs and processors "
        "other than x86-64; slower, and not with int8",
    )

    def path(self, output: str | os.PathLike) -> pathlib.Path:
        """Return `output/version`, which is free, before any work."""
        if pathlib.Path(output).is_file():
            expected = "a folder, or a path that is not there"
            raise SettingError("output", expected, str(output))
        # Where TensorFlow Serving looks for it.
        path = pathlib.Path(output) / str(self.version)
        if os.path.lexists(path):
            why = "exists already and stays; choose another version"
            raise UserError(f"{path} {why}.")
        return path


# The settings that have flags.
EXPORT = dataclasses.fields(Export)


def write_warmup(
    saved_model: pathlib.Path, name: str, signatures: Mapping[str, Sequence]
) -> None:
    """Put three requests for each signature into a model's SavedModel."""
    try:
        module = "tensorflow_serving.apis.prediction_log_pb2"
        messages = extras.needs(module, "serving")
    except UserError as error:
        logger.warning("Leaving out the warm-up requests: %s", error)
        return
    import tensorflow as tf

    path = saved_model / WARMUP_FILE
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in signatures.items():
            for batch in [SHORT_TEXT], [LONG_TEXT], [SHORT_TEXT, LONG_TEXT]:
                log = messages.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = name
                request.model_spec.signature_name = signature
                for text in inputs:
                    request.inputs[text].CopyFrom(tf.make_tensor_proto(batch))
                writer.write(log.SerializeToString())


def read_batching(path: str | os.PathLike) -> dict[str, int]:
    """Read the parameters of `BATCHING_TEXT` that are in a file."""
    text = re.sub("#.*", "", pathlib.Path(path).read_text("utf-8", "replace"))
    values = {}
    for name, value in re.findall(r"\b(\w+)\s*:?\s*{([^}]*)}", text):
        if name not in _KNOWN:
            continue  # Another of TensorFlow Serving's.
        number = re.fullmatch(r"\s*value\s*:\s*(\d+)\s*", value)
        values[name] = int(number[1]) if number else -1
        least = int(name != "batch_timeout_micros")
        if values[name] < least:
            raise UserError(
                f"Expected {name} {{ value: N }}, N of at least {least}, in "
                f"{path}, found {name} {{{value}}}; correct it."
            )
    if not values:
        expected = f"Expected batching parameters in {path}"
        raise UserError(f"{expected}, found none; name another.")
    return values


def model_name(folder: str | os.PathLike, name: str | None = None) -> str:
    """Return a model's name for clients, by default that of its folder."""
    name = os.path.basename(os.path.abspath(folder)) if name is None else name
    if not name or re.search("[/:]", name):
        raise UserError(
            f"Expected a model name without / and :, received {name!r}; give "
            "one with `name`."
        )
    return name
