"""How a model is exported, and what TensorFlow Serving reads beside it.

`docs/reference/saved_model.md` says what each file does. A warm-up request that
is larger than the batching file allows would keep a version from loading, so a
new version adapts to the files that are there. Without
`tensorflow-serving-api`, which defines the messages, there is no warm-up.
"""

import dataclasses
import itertools
import logging
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from google.protobuf import text_encoding

from keras_transformer.config import (
    EXPORT_PRECISIONS,
    Search,
    SettingError,
    UserError,
)
from keras_transformer.exporting.batching_file import (
    BATCHING_FILE,
    MAX_BATCH_SIZE,
    batching_text,
    read_batching,
)
from keras_transformer.machine import extras, files
from keras_transformer.settings import check_settings, setting, whole_number

MODELS_FILE = "models.config"
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"

# The language does not matter, the lengths do.
SHORT_TEXT = "Where is the nearest station?"
LONG_TEXT = " ".join([SHORT_TEXT] * 12)

_MODELS = """\
# For tensorflow_model_server --model_config_file, with this folder mounted at
# base_path. The highest version is served unless model_version_policy says
# otherwise.
model_config_list {
  config {
    name: "NAME"
    base_path: "/models/NAME"
    model_platform: "tensorflow"
  }
}
"""

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class Export:
    """How a model is exported, from the flags to the files."""

    version: int = setting(1, "number of this export")
    search: Search | None = setting(
        None, "how its signatures search", flag=False
    )
    precision: str | None = setting(
        None,
        "how weights are stored; float16 (half the size) computes in float32; "
        "bfloat16 (half) and int8 (a quarter) also multiply in that type, "
        "which is faster where the processor can",
        choices=EXPORT_PRECISIONS,
    )
    portable: bool = setting(
        False,
        "use only operators that every TensorFlow has, for GPUs and processors "
        "other than x86-64; slower, and not with int8",
    )
    name: str | None = setting(
        None,
        "what TensorFlow Serving calls the model; if not given, the name of "
        "the folder",
    )
    max_batch_size: int | None = setting(
        None,
        "texts that TensorFlow Serving translates together; if not given, 32, "
        "or what batching_parameters.txt in the folder says",
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def planned(self, output: str | os.PathLike) -> "Export":
        """Fill in name and size, and refuse what cannot be, before any work."""
        version_path(output, self.version)
        if pathlib.Path(output).is_file():
            expected = "a folder, or a path that is not there"
            raise SettingError("output", expected, str(output))
        name = model_name(output, self.name)
        size = self.max_batch_size or MAX_BATCH_SIZE
        batching = pathlib.Path(output) / BATCHING_FILE
        if batching.is_file():
            size = read_batching(batching).get("max_batch_size", size)
        return dataclasses.replace(self, name=name, max_batch_size=size)

    def write_warmup(
        self,
        saved_model: str | os.PathLike,
        signatures: Mapping[str, Sequence[str]],
    ) -> None:
        """Put three requests for each signature into a SavedModel."""
        try:
            module = "tensorflow_serving.apis.prediction_log_pb2"
            messages = extras.needs(module, "serving")
        except UserError as error:
            logger.warning("Leaving out the warm-up requests: %s", error)
            return
        import tensorflow as tf

        texts = itertools.cycle([SHORT_TEXT, LONG_TEXT])
        full = list(itertools.islice(texts, self.max_batch_size))
        path = pathlib.Path(saved_model) / WARMUP_FILE
        path.parent.mkdir()
        with tf.io.TFRecordWriter(str(path)) as writer:
            for (signature, inputs), batch in itertools.product(
                signatures.items(), ([SHORT_TEXT], [LONG_TEXT], full)
            ):
                log = messages.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = self.name
                request.model_spec.signature_name = signature
                for name in inputs:
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(batch))
                writer.write(log.SerializeToString())

    def write_configs(self, output: pathlib.Path) -> None:
        """Write the two configuration files; keep existing ones."""
        size = self.max_batch_size or MAX_BATCH_SIZE
        texts = {
            BATCHING_FILE: batching_text(size),
            MODELS_FILE: models_config(str(self.name)),
        }
        for file, text in texts.items():
            if (output / file).exists():
                said = "Kept %s: what it says counts, not the arguments."
                logger.info(said, output / file)
            else:
                files.write_text(output / file, text)


def models_config(name: str) -> str:
    """Write TensorFlow Serving's `ModelServerConfig` as text."""
    return _MODELS.replace("NAME", text_encoding.CEscape(name, True))


def version_path(output: str | os.PathLike, version: int) -> pathlib.Path:
    """Return `output/version`, free, where TensorFlow Serving looks for it."""
    path = pathlib.Path(output) / str(whole_number("version", version))
    if os.path.lexists(path):
        raise UserError(
            f"{path} exists already and is left as it is; choose another "
            "version, which servers will notice."
        )
    return path


def model_name(folder: str | os.PathLike, name: str | None = None) -> str:
    """Return a model's name for clients, by default that of its folder."""
    name = os.path.basename(os.path.abspath(folder)) if name is None else name
    if not name or re.search("[/:]", name):
        raise UserError(
            f"Expected a model name without / and :, received {name!r}; give "
            "one with `name`."
        )
    return name


# The settings that have flags.
EXPORT = dataclasses.fields(Export)
