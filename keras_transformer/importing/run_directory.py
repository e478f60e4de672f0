"""Makes a run directory of a model that another system has trained.

It holds `config.json`, `tokenizer.model` and `final.weights.h5`. That is all
that the other verbs need of a finished run.
"""

import dataclasses
import json
import os
import pathlib
import re

import numpy as np
import tensorflow as tf

from keras_transformer.config import UserError, logger
from keras_transformer.data.languages import is_code
from keras_transformer.importing import marian, opennmt
from keras_transformer.importing.imported import Imported
from keras_transformer.importing.source_files import read_bytes, refusing
from keras_transformer.machine import extras, files
from keras_transformer.model import Transformer
from keras_transformer.runs import layout
from keras_transformer.runs.averaging import check_size
from keras_transformer.runs.run_config import RunConfig, checksum_of

# Files by which a format is known, and its reader.
_READERS = (
    ({opennmt.CHECKPOINT}, opennmt.read),
    ({marian.CONFIG, marian.SAFETENSORS}, marian.read_hugging_face),
    ({marian.CONFIG, marian.PICKLE}, marian.read_hugging_face),
    ({marian.DECODER}, marian.read),
)


def import_run(
    directory: str | os.PathLike,
    run_dir: str | os.PathLike,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> pathlib.Path:
    """Turn a model that another system has trained into a run directory.

    Args:
        directory: Folder of its files, as Hugging Face, Marian or OpenNMT-tf
            writes them.
        run_dir: The new run directory; must be empty or not exist.
        source_lang: Language code of the source side; by default as
            tokenizer_config.json or the name of the folder says.
        target_lang: The same of the target side.

    Returns:
        The path of the run directory.
    """
    path, directory = pathlib.Path(run_dir), pathlib.Path(directory)
    is_empty = path.is_dir() and not any(path.iterdir())
    if os.path.lexists(path) and not is_empty:
        raise UserError(
            f"{path} exists already and is left as it is; choose another "
            "`run_dir` or remove it."
        )
    with refusing(directory, "a whole model", tf.errors.OpError):
        imported = read(directory)
        if not (source_lang and target_lang):
            found = _languages(directory)
            source_lang = source_lang or found[0]
            target_lang = target_lang or found[1]
        # With a recipe for fine-tuning.
        run = RunConfig.from_preset(
            "base",
            corpus=directory.resolve().name,
            source_lang=source_lang,
            target_lang=target_lang,
            **dataclasses.asdict(imported.model),
        )
        model = _build(imported)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as partial:
        partial.mkdir()
        model.save_weights(partial / layout.FINAL_FILE)
        imported.tokenizer.save(partial / layout.TOKENIZER_FILE)
        known = checksum_of(imported.tokenizer)
        run = dataclasses.replace(run, vocabulary=known, is_imported=True)
        run.save(partial)
    logger.info("Imported %s into %s.", directory, path)
    return path


def read(folder: pathlib.Path) -> Imported:
    """Read a model that another system has trained."""
    if not folder.is_dir():
        raise UserError(
            f"Expected a model's folder, found none at {folder}; check where "
            "it is."
        )
    names = {path.name for path in folder.iterdir() if path.is_file()}
    for known, reader in _READERS:
        if known <= names:
            return reader(folder)
    raise UserError(
        f"Expected in {folder} the files of a model, found neither "
        "model.safetensors or pytorch_model.bin beside a config.json (Hugging "
        "Face), nor decoder.yml (Marian), nor checkpoint (OpenNMT-tf); "
        "fairseq, OpenNMT-py and CTranslate2 are not read."
    )


def _languages(folder: pathlib.Path) -> tuple[str, str]:
    """Read the languages of both sides, or find them in `opus-mt-en-de`."""
    path, name = folder / "tokenizer_config.json", folder.resolve().name
    said = json.loads(read_bytes(path)) if path.exists() else {}
    if all(is_code(said.get(f"{side}_lang")) for side in ("source", "target")):
        return said["source_lang"], said["target_lang"]
    named = re.search(r"opus-mt-(?:tc-[a-z]+-)?([a-z]+)-([a-z]+)$", name)
    if named:
        return named[1], named[2]
    raise UserError(
        f"The files of {name} do not tell its languages; give `source_lang` "
        "and `target_lang`."
    )


def _build(imported: Imported) -> Transformer:
    """Build the model and give it the weights, all of them."""
    size = sum(array.nbytes for array in imported.weights.values())
    check_size(imported.model, size, "the file of weights")
    extras.check_keras()
    model = Transformer(**dataclasses.asdict(imported.model), dtype="float32")
    for variable in model.weights:
        # Without the name of the model, which Keras numbers.
        name = variable.path.partition("/")[2]
        array = np.asarray(imported.weights[name], "float32")
        if array.shape != (shape := tuple(variable.shape)):
            raise UserError(
                f"The weights {name} have the shape {array.shape}, settings "
                f"ask for {shape}; give those that came with the weights."
            )
        if not np.isfinite(array).all():
            why = f"The weights {name} hold NaN or infinity; fetch them again."
            raise UserError(why)
        variable.assign(array)
    return model
