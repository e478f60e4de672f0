"""Makes a run directory from an imported model.

It holds `config.json`, `tokenizer.model` and `final.weights.h5`. That is all
that the other verbs need of a finished run.
"""

import dataclasses
import logging
import os
import pathlib

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.importing import formats
from keras_transformer.importing.imported import Imported
from keras_transformer.importing.source_files import is_language
from keras_transformer.machine import files
from keras_transformer.model import Transformer
from keras_transformer.runs import layout
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.runs.vocabulary import checksum_of

logger = logging.getLogger("keras_transformer")


def import_run(
    directory: str | os.PathLike,
    run_dir: str | os.PathLike,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> pathlib.Path:
    """Turn a model that another system has trained into a run directory.

    Args:
        directory: Folder of its files, in a format of `formats`.
        run_dir: The new run directory; must be empty or not exist.
        source_lang: Language code of the source side; by default as the files
            say.
        target_lang: Language code of the target side; by default as the files
            say.

    Returns:
        The path of the run directory.

    Raises:
        UserError: If the model cannot be read or imported exactly, a language
            is not known, or `run_dir` is not empty.
    """
    path = layout.check_empty(run_dir)
    directory = pathlib.Path(directory)
    imported = formats.read(directory)
    run = _config(
        imported,
        directory.resolve().name,
        source_lang or imported.source_lang,
        target_lang or imported.target_lang,
    )
    with formats.refusing(directory):
        model = build(imported)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as partial:
        partial.mkdir()
        model.save_weights(partial / layout.FINAL_FILE)
        imported.tokenizer.save(partial / layout.TOKENIZER_FILE)
        run.save(partial)
    logger.info("Imported %s into %s.", directory, path)
    return path


def build(imported: Imported) -> Transformer:
    """Build the model and give it the weights.

    Raises:
        KeyError: If a weight is missing.
        UserError: If one has another shape, or holds NaN or infinities.
        ValueError: If one is left over.
    """
    _check_sizes(imported)
    model = Transformer(**dataclasses.asdict(imported.model))
    weights = dict(imported.weights)
    for variable in model.weights:
        # Without the name of the model, which Keras numbers.
        name = variable.path.partition("/")[2]
        array = np.asarray(weights.pop(name), "float32")
        _check_shape(name, array, tuple(variable.shape))
        if not np.isfinite(array).all():
            raise UserError(
                f"Expected numbers as weights, received infinite ones or NaN "
                f"for {name}; download the weights again."
            )
        variable.assign(array)
    if weights:
        raise ValueError(f"There is no place for {', '.join(weights)}")
    return model


def _check_sizes(imported: Imported) -> None:
    """Refuse settings of a larger model than the weights belong to.

    This comes before it is built: a few settings can ask for any memory.
    """
    model = imported.model
    for name, shape in {
        "embedding/table": (model.vocab_size, model.d_model),
        "encoder/layer_0/feed_forward/widen/kernel": (
            model.d_model,
            model.ffn_dim,
        ),
    }.items():
        _check_shape(name, imported.weights[name], shape)


def _check_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise UserError(
            "Expected weights of the shape that the model's settings tell, "
            f"{shape} for {name}, received {array.shape}; give the settings "
            "that came with the weights."
        )


def _config(
    imported: Imported,
    name: str,
    source_lang: str | None,
    target_lang: str | None,
) -> RunConfig:
    """Make the run's configuration, with a recipe for fine-tuning."""
    if source_lang is None or target_lang is None:
        raise UserError(
            f"Expected the languages of {name}, whose files do not tell them; "
            "give `source_lang` and `target_lang`."
        )
    for language in (source_lang, target_lang):
        if not is_language(language):
            raise UserError(
                "Expected a language code such as en, which becomes a part of "
                f"file names, received {language}; give another."
            )
    run = RunConfig.from_preset(
        "base",
        corpus=name,
        source_lang=source_lang,
        target_lang=target_lang,
        **dataclasses.asdict(imported.model),
    )
    return dataclasses.replace(
        run, vocabulary=checksum_of(imported.tokenizer), is_imported=True
    )
