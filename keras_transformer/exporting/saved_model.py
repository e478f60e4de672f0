"""A SavedModel that takes text and returns text, without Python.

`docs/reference/saved_model.md` lists its signatures, and where each cuts its
inputs: whatever a client sends, a row costs no more than the export's limits
allow. Cut sources and targets keep their end token. A model without known
attention, as `Translator` says, lacks the signature `attention`.

Axes: B batch, N hypotheses.
"""

import contextlib
import dataclasses
import functools
import logging
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_transformer.config import MAX_SOURCE_LENGTH, PAD_ID, Search
from keras_transformer.data.tokenizer import shared_operators
from keras_transformer.exporting.serving_kit import (
    BATCHING_FILE,
    BATCHING_TEXT,
    Export,
    write_warmup,
)
from keras_transformer.machine import devices, files
from keras_transformer.settings import of_kind
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.text_batches import (
    cut,
    padded,
    search_inputs,
    source_ids,
    texts_of,
    with_choice,
)
from keras_transformer.translation.translator import Translator

logger = logging.getLogger("keras_transformer")

# By name: a function of a translator, a search and strings `(B,)`, and what
# these are called.
Signatures = dict[str, tuple[Callable, tuple[str, ...]]]


def export(
    translator: Translator,
    output: str | os.PathLike,
    version: int = 1,
    search: Search | None = None,
    *,
    precision: str | None = None,
    portable: bool = False,
    card: ModelCard | None = None,
) -> pathlib.Path:
    """Write a SavedModel with its tokenizer, whole or not at all.

    The files that TensorFlow Serving reads go beside it, as in `serving_kit`,
    and `model_card.json`, which describes it, goes into it.

    Args:
        translator: What to export.
        output: Folder of all versions, made if it does not exist.
        version: Number of this version.
        search: How `serving_default`, which returns the best hypothesis, and
            `n_best` search. By default as the translator does, with up to 4
            hypotheses. Sources are always cut, by default after 256 tokens.
        precision: Type of the weights and of the products with them:
            `"float32"`, `"bfloat16"` or `"int8"`, as `Translator.freeze` says;
            by default what the translator multiplies in.
        portable: Whether the graph has only operators that every TensorFlow
            has, as `Translator.freeze` says; otherwise the card names what it
            needs.
        card: Where the model comes from; the export adds how it searches. By
            default only the translator's languages, for our server.

    Returns:
        The path of the SavedModel, `output/version`.

    Raises:
        UserError: As in `Export.path` and `Translator.freeze`.
        JobError: If the disk or the memory is full.
        OSError: If the files cannot be written otherwise.
    """
    of_kind("translator", Translator, translator)
    path = Export(version, search, precision, portable).path(output)
    best = min(4, translator.search.beam_size)
    search = search or translator.search_with(n_best=best)
    # Clients must not choose how much memory the server needs.
    longest = search.max_source_length or MAX_SOURCE_LENGTH
    search = dataclasses.replace(search, max_source_length=longest)
    precision = precision or translator.weights.precision
    translator = translator.freeze(precision, portable)
    frozen = translator.id_model.frozen
    instructions = frozen.instructions if frozen else ()
    signatures = _signatures(translator)
    with shared_operators():
        module, traced = _trace(translator, search, signatures)
    path.parent.mkdir(parents=True, exist_ok=True)
    # TensorFlow Serving looks only at names that are numbers.
    full = devices.explained("export in another process", path)
    with full, files.whole(path) as partial, _tensorflow_silent():
        tf.saved_model.save(module, str(partial), traced)
        inputs = {name: x for name, (_, x) in signatures.items()}
        write_warmup(partial, path.absolute().parent.name, inputs)
        dataclasses.replace(
            card or ModelCard(translator.source_lang, translator.target_lang),
            search=dataclasses.asdict(search),
            precision=precision,
            operators=frozen.operators if frozen else (),
            instructions=instructions,
        ).save(partial)
        if not (batching := path.parent / BATCHING_FILE).exists():
            files.write_text(batching, BATCHING_TEXT)
    if instructions:
        logger.info(
            "Serve it on a processor with %s, like this one.",
            " and ".join(instructions),
        )
    return path


def _trace(
    translator: Translator, search: Search, signatures: Signatures
) -> tuple[tf.Module, dict[str, Callable]]:
    """Trace every signature once, and collect the variables that they use."""
    module, traced = tf.Module(), {}
    for name, (function, arguments) in signatures.items():
        of_texts = functools.partial(function, translator, search)
        made = tf.function(of_texts, autograph=False)
        specs = [tf.TensorSpec([None], tf.string, name) for name in arguments]
        traced[name] = made.get_concrete_function(*specs)
        # Not the `tf.function`: TensorFlow would trace it again to save it.
        setattr(module, name, traced[name])
    # Not the model, whose own weights the signatures need not use.
    variables = {id(v): v for each in traced.values() for v in each.variables}
    module.all_variables = list(variables.values())
    module.tokenizer = translator.tokenizer
    return module, traced


@contextlib.contextmanager
def _tensorflow_silent() -> Iterator[None]:
    """Drop TensorFlow's notices, and the handler that the root logger gets."""
    # They name some hundred weights, and the temporary folder.
    level, handlers = logging.root.manager.disable, logging.root.handlers[:]
    logging.disable(max(level, logging.INFO))
    try:
        yield
    finally:
        logging.disable(level)
        logging.root.handlers[:] = handlers


def _signatures(translator: Translator) -> Signatures:
    pair = "source", "target"
    signatures: Signatures = {
        "serving_default": (best_text, ("text",)),
        "with_prefix": (best_text, ("text", "prefix")),
        "n_best": (search_text, ("text",)),
        "score": (score_text, pair),
    }
    if translator.id_model.has_attention:
        signatures["attention"] = (attention_text, pair)
    return signatures


def search_text(
    translator: Translator,
    search: Search,
    text: tf.Tensor,
    prefix: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Translate texts `(B,)` that begin as `prefix` `(B,)`, inside a graph.

    Returns:
        `translations` string and `scores` float32 `(B, N)`, best first, "" with
        -inf where there are no more, and whether sources were `truncated`.
    """
    tokenizer = translator.tokenizer
    inputs, truncated = search_inputs(tokenizer, search, text, prefix)
    pad_id = tokenizer.ids.pad
    result = translator.id_model.search_ids(
        search=with_choice(tokenizer, search),
        **{name: padded(x, pad_id) for name, x in inputs.items()},
    )
    texts, scores = texts_of(tokenizer, result, search, text)
    return {"translations": texts, "scores": scores, "truncated": truncated}


def best_text(
    translator: Translator, search: Search, *texts: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Do the same for the best hypothesis alone, `(B,)`."""
    search = dataclasses.replace(search, n_best=1)
    best = search_text(translator, search, *texts)
    return {
        "translation": best["translations"][:, 0],
        "score": best["scores"][:, 0],
        "truncated": best["truncated"],
    }


def score_text(
    translator: Translator, search: Search, source: tf.Tensor, target: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Score translations, string `(B,)`, as `score_ids` does."""
    ids = _pairs(translator, search, source, target)
    scored = translator.id_model.score_ids(*ids, search.length_penalty)
    return dict(zip(("score", "num_tokens"), scored, strict=True))


def attention_text(
    translator: Translator, search: Search, source: tf.Tensor, target: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Find what translations look at: pieces `(B, S)`, `(B, T)`, `(B, T, S)`.

    Attention is the mean of all layers and heads; "" follows the end token.
    """
    ids = _pairs(translator, search, source, target)
    names = translator.tokenizer.pieces(range(translator.id_model.vocab_size))
    names[PAD_ID] = ""
    source_pieces, target_pieces = (tf.gather(names, side) for side in ids)
    return {
        "source_pieces": source_pieces,
        "target_pieces": target_pieces,
        "attention": translator.id_model.attention_ids(*ids),
    }


def _pairs(
    translator: Translator, search: Search, source: tf.Tensor, target: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Tokenize pairs to ids `(B, S)` and `(B, T)`, cut at the limits."""
    tokenizer, ids = translator.tokenizer, translator.tokenizer.ids
    longest: Any = search.max_source_length  # Of an export, never None.
    of_source, _ = source_ids(tokenizer, source, longest)
    # The most tokens that a search may write for any source.
    longest = search.max_length or longest + search.max_extra_length
    of_target, _ = cut(tokenizer.target.tokenize(target), longest, (ids.eos,))
    return of_source.to_tensor(ids.pad), of_target.to_tensor(ids.pad)
