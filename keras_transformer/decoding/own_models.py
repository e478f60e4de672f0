"""Models of one's own: what they can do, and their steps by whole calls.

A model need only map ids `((source, target_in))` to logits. A step is then a
call with all that is written, which costs more than `CachedSteps`: those repeat
the decoder of a `Transformer` for one position. A subclass that changes the
decoder and not the cached step searches by whole calls too, since the search
follows what a call returns.

Axes: B batch, W beams, S source length, T target length, V vocabulary,
t tokens written so far.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_transformer.config import SpecialIds, UserError, logger
from keras_transformer.decoding.beam_search import Shared
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.layers import Decoder, DecoderLayer
from keras_transformer.model import Transformer

_warn_once = functools.cache(logger.warning)


class WholeSteps:
    """All that `beam_search` needs to write with any model.

    It is made and called as `CachedSteps` is. Its state are the ids of each
    beam so far, int32 `(B, W, t)`, and it shares the source of each sentence.
    """

    def __init__(
        self,
        model: Any,
        source: tf.Tensor,
        beam_size: int,
        words: tuple[tf.Tensor, tf.Tensor] | None = None,
    ) -> None:
        _warn_once(
            "A search with %s runs the whole target again for every token, "
            "which is slower: it has no cached step that computes what a call "
            "does (`decode_step` of a Transformer, `step` of a layer).",
            type(model).__name__,
        )
        self._model = model
        source = tf.convert_to_tensor(source)
        self._words = words
        batch = source.shape[0] or tf.shape(source)[0]
        self.state = self.empty_cache = tf.zeros([batch, beam_size, 0], "int32")
        self.shared = Shared(source, lambda source, steps: source)

    def step(
        self, ids: tf.Tensor, position: tf.Tensor, state: Any, shared: Any
    ) -> tuple[tf.Tensor, Any, Any]:
        """Compute the next logits, as `beam_search` asks for them."""
        words, offsets = self._words or (None, None)
        if words is not None:
            ids = tf.gather(words, ids)
        ids = tf.cast(ids, tf.int32)
        written = tf.concat([state, ids[:, :, None]], axis=2)
        beams = ids.shape[1]
        target_in = tf.reshape(written, [-1, tf.shape(written)[2]])
        source = tf.repeat(shared, beams, axis=0)
        logits = logits_of(self._model, (source, target_in))[:, -1]
        logits = tf.cast(logits, tf.float32)
        if words is not None:
            logits = tf.gather(logits, words, axis=1) + offsets
        size = logits.shape[-1] or tf.shape(logits)[-1]
        batch = written.shape[0] or -1
        return tf.reshape(logits, [batch, beams, size]), written, shared

    def append(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, Any]:
        """Compute the next logits, as `sample` asks for them."""
        return self.step(ids, position, cache, self.shared.state)[:2]


def logits_of(model: Any, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Call a model, dropout off: logits `(B, T, V)`."""
    if isinstance(model, keras.Layer):
        return model(inputs, training=False)
    return model(inputs)


class Abilities(NamedTuple):
    """What a model can do beyond a call.

    Attributes:
        vocab_size: The pieces that it scores.
        steps: Makes its steps: `CachedSteps`, or what is called like it.
        scores_features: Whether a call is `embedding.logits` of `features`.
        has_attention: Whether the attention that it returns is that of a call.
    """

    vocab_size: int
    steps: Callable[..., Any]
    scores_features: bool
    has_attention: bool


# The methods that make a `Transformer`'s logits from memory and target.
_OF_A_CALL = ("call", "features", "_decoded")
_ATTEND = Decoder.call, DecoderLayer.call


def abilities_of(model: Any) -> Abilities:
    """Check a model, and find what it can do beyond a call."""
    size = _check_model(model)
    if not isinstance(model, Transformer):
        return Abilities(size, WholeSteps, False, False)
    kind = type(model)
    decoder = {type(x) for x in (model.decoder, *model.decoder.layers)}
    is_cached = (
        _written_with(kind, "decode_step", _OF_A_CALL)
        and _written_with(type(model.embedding), "scorer", ("logits",))
        and all(_written_with(x, "step", ("call", "_run")) for x in decoder)
    )
    return Abilities(
        size,
        CachedSteps if is_cached else WholeSteps,
        _written_with(kind, "features", ("call",)),
        _written_with(kind, "decode", _OF_A_CALL)
        and all(x.call in _ATTEND for x in decoder),
    )


def _written_with(kind: type, method: str, others: tuple[str, ...]) -> bool:
    """Return whether no class overrides `others` below that of `method`."""
    for base in kind.__mro__:
        if method in vars(base):
            return True
        if any(other in vars(base) for other in others):
            return False
    return False


def _check_model(model: Any) -> int:
    """Check what a model returns, and return the size of its vocabulary."""
    kind = type(model)
    if isinstance(model, Transformer):
        plain = Transformer.call, Transformer.features
        if (kind.call, kind.features) == plain:
            return model.vocab_size
    ids = tf.ones([2, 3], tf.int32), tf.ones([2, 2], tf.int32)
    try:
        logits = tf.convert_to_tensor(logits_of(model, ids))
    except Exception as error:
        raise UserError(
            "Expected a model to call as `model((source, target_in))` with "
            "int32 ids of any length; the call ends with "
            f"{type(error).__name__} ({_first_lines(error)}); wrap it in a "
            "function that takes this pair."
        ) from error
    shape = logits.shape.as_list()
    if not logits.dtype.is_floating or shape[:2] != [2, 2] or len(shape) != 3:
        raise UserError(
            "Expected logits `(B, T, V)` from the model, one row for each id "
            f"of `target_in`, received {logits.dtype.name} {shape} for ids "
            "[2, 2]; wrap it in a function that returns them."
        )
    sums = tf.reduce_sum(tf.cast(logits, tf.float32), axis=-1)
    if tf.reduce_all((logits >= 0) & (tf.abs(sums - 1.0) < 1e-2)[..., None]):
        raise UserError(
            "Expected logits from the model, received probabilities; leave "
            "the softmax out, or give `lambda pair: keras.ops.log(model(pair))`"
            "."
        )
    return shape[-1]


def warn_of_padding(model: Any, ids: SpecialIds) -> None:
    """Tell of a model whose logits depend on the padding behind a source."""
    source = tf.fill([1, 3], [*ids.blank, 1][0])  # Known on that side.
    target_in = tf.fill([1, 2], ids.bos)
    padded = tf.pad(source, [[0, 0], [0, 3]], constant_values=ids.pad)
    one, other = (logits_of(model, (x, target_in)) for x in (source, padded))
    difference = tf.reduce_max(tf.abs(tf.cast(one - other, tf.float32)))
    if difference > 1e-2 * tf.reduce_max(tf.abs(tf.cast(one, tf.float32))):
        _warn_once(
            "%s sees the padding behind a source, so a text translates "
            "differently beside a longer one; mask id %d (layers of Keras pass "
            "a mask on if they have `supports_masking`).",
            getattr(model, "__name__", type(model).__name__),
            ids.pad,
        )


def _first_lines(error: Exception) -> str:
    lines = re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()
    return " ".join([x for x in lines if x.strip()][:2] or ["no message"])[:200]
