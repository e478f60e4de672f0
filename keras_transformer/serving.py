"""A SavedModel that takes text and returns text, without Python.

Three signatures, as TensorFlow Serving calls them:

    serving_default   text → translation, score, truncated
    n_best            text → translations, scores
    score             source, target → score, num_tokens

Axes: B batch, N hypotheses.
"""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.translator import SearchOptions, Translator


def version_path(output: str | os.PathLike, version: int) -> pathlib.Path:
    """Where a version goes: `output/version`, the layout of TensorFlow Serving.

    Args:
        output: Folder of all versions; need not exist.
        version: Number of the version, at least 1.

    Raises:
        UserError: If the version is below 1 or exists already, or `output` is
            not a folder.
    """
    output = pathlib.Path(output)
    if version < 1:
        raise UserError(
            f"Expected a version of at least 1, received {version}."
        )
    if output.exists() and not output.is_dir():
        raise UserError(
            f"Expected a folder for the exported model, {output} is a file; "
            "choose another one."
        )
    path = output / str(version)
    if os.path.lexists(path):
        raise UserError(
            f"{path} exists already and is left as it is; choose another "
            "version or remove it."
        )
    return path


def export(
    translator: Translator,
    output: str | os.PathLike,
    version: int = 1,
    options: SearchOptions | None = None,
) -> pathlib.Path:
    """Write a SavedModel with its tokenizer, whole or not at all.

    Args:
        translator: What to export.
        output: Folder of all versions, made if it does not exist.
        version: Number of this version.
        options: How `serving_default`, which returns the best hypothesis, and
            `n_best` search. By default 4 hypotheses from 4 beams, and sources
            are cut after 256 tokens.

    Returns:
        The path of the SavedModel, `output/version`.

    Raises:
        UserError: As from `version_path`, or if the files cannot be written.
    """
    path = version_path(output, version)
    options = options or SearchOptions(n_best=4, max_source_length=256)
    archive = keras.export.ExportArchive()
    archive.track(translator.model)
    archive.track(translator.tokenizer)
    for name, (function, arguments) in _signatures(translator, options).items():
        specs = [tf.TensorSpec([None], tf.string, name) for name in arguments]
        archive.add_endpoint(name, function, specs)
    is_new = not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside its goal, so that the last step is a rename; TensorFlow Serving
        # looks at names that are numbers only.
        with tempfile.TemporaryDirectory(
            prefix=".export-", dir=path.parent
        ) as partial:
            archive.write_out(os.path.join(partial, path.name), verbose=False)
            os.rename(os.path.join(partial, path.name), path)
    except (OSError, tf.errors.OpError) as error:
        if is_new:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        raise UserError(
            f"Could not write the model to {path} ({_reason(error)}); free "
            "space or choose a folder that can be written."
        ) from error
    return path


def _signatures(
    translator: Translator, options: SearchOptions
) -> dict[str, tuple[Callable, tuple[str, ...]]]:
    """Each signature: a function of string tensors `(B,)` and their names."""
    best_only = dataclasses.replace(options, n_best=1)

    def serving_default(text):
        result = translator.search(text, best_only)
        return {
            "translation": result.translations[:, 0],
            "score": result.scores[:, 0],
            "truncated": result.truncated,
        }

    def n_best(text):
        result = translator.search(text, options)
        return {
            "translations": result.translations,
            "scores": result.scores,
        }

    def score(source, target):
        scores, num_tokens = translator.score_text(source, target, options)
        return {"score": scores, "num_tokens": num_tokens}

    return {
        "serving_default": (serving_default, ("text",)),
        "n_best": (n_best, ("text",)),
        "score": (score, ("source", "target")),
    }


def _reason(error: OSError | tf.errors.OpError) -> str:
    if isinstance(error, OSError):
        return error.strerror
    # "{{…}} FILE; No space left on device [Op:SaveV2]"
    return error.message.rpartition("; ")[2].partition(" [Op:")[0]
