"""Writes what TensorFlow Serving reads: warm-up, batching, names.

    OUTPUT/models.config               which model is served, and from where
    OUTPUT/batching_parameters.txt     how requests are put together
    OUTPUT/VERSION/assets.extra/tf_serving_warmup_requests

TensorFlow Serving runs the first requests of a new version slowly, so it plays
the warm-up requests before it lets anybody else in. They pass through the same
batching as all others: one that is larger than the batching file allows would
keep the version from loading. Once they exist, both files belong to the
operator, and a new version adapts to them.

The package tensorflow-serving-api defines the messages; the extra `serving`
installs it. Without it an export leaves out the warm-up requests and
`models.config`, and says so.
"""

import dataclasses
import itertools
import logging
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from google.protobuf import text_encoding, text_format

from keras_transformer.config import UserError
from keras_transformer.machine import extras, files
from keras_transformer.machine.batching_file import (
    BATCHING_FILE,
    Batching,
    read_batching,
)
from keras_transformer.settings import whole_number

MODELS_FILE = "models.config"
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"

# The language does not matter, the lengths do.
SHORT_TEXT = "Where is the nearest station?"
LONG_TEXT = (
    "When the last train of the evening had left without us, we walked along "
    "the river to the small hotel beside the old bridge, where a friendly "
    "young man gave us two rooms on the second floor, a late supper and a map "
    "of the town, and told us that the first train of the morning would leave "
    "at a quarter past six from the other platform."
)

_MODELS = """\
# For tensorflow_model_server --model_config_file, with this folder mounted at
# base_path. The highest version is served unless model_version_policy says
# otherwise.
"""

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class ServingKit:
    """The files of one export; `plan` makes it.

    Attributes:
        name: Name of the model, as clients ask for it.
        max_batch_size: Texts in the largest batch of the server.
    """

    name: str
    max_batch_size: int

    @classmethod
    def plan(
        cls,
        output: str | os.PathLike,
        name: str | None = None,
        max_batch_size: int | None = None,
    ) -> "ServingKit":
        """Find out whether the kit can be written, before any work is done.

        Args:
            output: Folder of all versions; need not exist.
            name: Name of the model; by default the folder's name.
            max_batch_size: Texts in a batch, at least 1; by default what the
                batching file of `output` says, or 32 where there is none.

        Raises:
            UserError: If the name cannot be part of a URL, or it or the size
                differs from that in the files of `output`, or the size is
                below 1.
        """
        models = pathlib.Path(output) / MODELS_FILE
        if name is not None and models.is_file():
            names = re.findall(
                r'\bname\s*:\s*"(.*)"', models.read_text("utf-8", "replace")
            )
            if text_encoding.CEscape(name, True) not in names:
                raise UserError(
                    f"{models} names {' and '.join(names) or 'no model'}, this "
                    f"command says {name}; leave out `name` or change the file."
                )
        name = files.model_name(output, name)
        path = pathlib.Path(output) / BATCHING_FILE
        kept = None
        if path.is_file():
            kept = read_batching(path).get("max_batch_size")
            if kept is None:
                raise UserError(
                    f"Expected max_batch_size {{ value: N }} in {path}, found "
                    "none; add it or remove the file."
                )
        if max_batch_size is None:
            max_batch_size = kept or Batching().max_batch_size
        max_batch_size = whole_number("max_batch_size", max_batch_size)
        if kept not in (None, max_batch_size):
            raise UserError(
                f"{path} has max_batch_size {kept}, this command says "
                f"{max_batch_size}; leave out `max_batch_size` or change the "
                "file."
            )
        if error := _missing():
            logger.warning(
                "Leaving out %s and the warm-up requests: %s",
                MODELS_FILE,
                error,
            )
        return cls(name, max_batch_size)

    def write_warmup(
        self,
        saved_model: str | os.PathLike,
        signatures: Mapping[str, Sequence[str]],
    ) -> None:
        """Put the warm-up requests into a SavedModel.

        For each signature they are a short text, a long one and a full batch.

        Args:
            saved_model: Its folder, not yet where a server could see it.
            signatures: For each signature the names of its inputs, all of
                them string `(B,)`.
        """
        if _missing():
            return
        prediction_log_pb2 = _messages("apis.prediction_log_pb2")
        full = itertools.islice(
            itertools.cycle([SHORT_TEXT, LONG_TEXT]), self.max_batch_size
        )
        batches = [SHORT_TEXT], [LONG_TEXT], list(full)
        path = pathlib.Path(saved_model) / WARMUP_FILE
        path.parent.mkdir()
        with tf.io.TFRecordWriter(str(path)) as writer:
            for (signature, inputs), texts in itertools.product(
                signatures.items(), batches
            ):
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = self.name
                request.model_spec.signature_name = signature
                for name in inputs:
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(texts))
                writer.write(log.SerializeToString())

    def write_configs(self, output: str | os.PathLike) -> None:
        """Write the two configuration files; keep existing ones."""
        texts = {BATCHING_FILE: self.batching_parameters}
        if not _missing():
            texts[MODELS_FILE] = self.models_config
        for file, text in texts.items():
            path = pathlib.Path(output) / file
            if path.exists():
                logger.info("Kept %s as it is", path)
                continue
            files.write_text(path, text())

    def batching_parameters(self) -> str:
        """Write TensorFlow Serving's `BatchingParameters` as text."""
        return Batching(max_batch_size=self.max_batch_size).as_text()

    def models_config(self) -> str:
        """Write TensorFlow Serving's `ModelServerConfig` as text."""
        messages = _messages("config.model_server_config_pb2")
        config = messages.ModelServerConfig()
        config.model_config_list.config.add(
            name=self.name,
            base_path=f"/models/{self.name}",
            model_platform="tensorflow",
        )
        return _MODELS + text_format.MessageToString(config)


def _messages(module: str) -> Any:
    """Import a module of TensorFlow Serving's messages."""
    return extras.needs(f"tensorflow_serving.{module}", "serving")


def _missing() -> UserError | None:
    """Say why the messages are missing, if they are."""
    try:
        _messages("apis.prediction_log_pb2")
    except UserError as error:
        return error
    return None
