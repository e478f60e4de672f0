"""Tokenizers made elsewhere, as a `Translator` needs them.

A tokenizer has `tokenize`, from strings `(B,)` to integers `(B, L)` or ragged,
and `detokenize` back, as TensorFlow Text's have; or `encode` and `decode` for
one text in Python; or it is an adapted `TextVectorization`. Source ids go to
the model as they are. A target loses its begin token and gets an end token,
since the search writes both by itself.

Axes: B batch, L length, N texts.
"""

import types
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from keras_transformer.config import PAD_ID, SpecialIds, UserError, logger
from keras_transformer.data.tokenizer import as_strings, text_of
from keras_transformer.settings import whole_number

# From strings (N,) to ids, dense or ragged, and from ragged ids to strings.
_Ways: TypeAlias = tuple[Callable[[tf.Tensor], Any], Callable[[Any], tf.Tensor]]


class TokenizerAdapter(tf.Module):
    """Lets a `Translator` use tokenizers made elsewhere.

    Args:
        source: The tokenizer of source texts, of one of the three kinds. One in
            Python cannot be exported.
        target: The tokenizer of target texts, if it is another.
        bos_id: The id that begins a `target_in`. By default, like the others,
            what the target tokenizer has as `bos_id` or `bos_token_id`; or
            the first id of an empty target, if there are two.
        eos_id: The id that ends a target; or the second of those two.
        pad_id: The id that fills batches; 0 if the tokenizer does not say. A
            `Transformer`, its loss and its metrics need 0.
        unk_id: The id of unknown pieces, which only `no_unknown` needs.

    Attributes:
        ids: These ids, and those of a blank source.
        vocab_size: Pieces of the target, or None if it does not say.
    """

    def __init__(
        self,
        source: Any,
        target: Any = None,
        *,
        bos_id: int | None = None,
        eos_id: int | None = None,
        pad_id: int | None = None,
        unk_id: int | None = None,
    ) -> None:
        super().__init__(name="tokenizer")
        target = source if target is None else target
        self.source_tokenizer, self.target_tokenizer = source, target
        self._source, self._target = _ways(source), _ways(target)
        given = dict(pad=pad_id, unk=unk_id, bos=bos_id, eos=eos_id)
        ids: dict[str, Any] = {}
        for role, value in given.items():
            if value is None:
                value = _number(target, f"{role}_id", f"{role}_token_id")
            else:
                whole_number(f"{role}_id", value, least=0)
            ids[role] = value
        ids["pad"] = ids["pad"] or PAD_ID
        if ids["pad"] != PAD_ID:
            logger.warning(
                "The tokenizer's `pad_id` is %d; to train a Transformer, make "
                "a vocabulary whose `pad_id` is %d.",
                ids["pad"],
                PAD_ID,
            )
        self.ids = SpecialIds(pad=ids["pad"])
        of_empty = self._rows(self._target, [""]).values.numpy().tolist()
        begin, end = of_empty if len(of_empty) == 2 else (None, None)
        ids["bos"] = begin if ids["bos"] is None else ids["bos"]
        ids["eos"] = end if ids["eos"] is None else ids["eos"]
        if None in (ids["bos"], ids["eos"]):
            raise UserError(
                "Expected the ids that begin and end a target, which "
                f"{type(target).__name__} does not say; give them as "
                "`kt.TokenizerAdapter(tokenizer, bos_id=…, eos_id=…)`."
            )
        if ids["eos"] == ids["pad"]:
            raise UserError(
                "Expected an `eos_id` other than `pad_id`, received "
                f"{ids['eos']} for both; give another `pad_id`."
            )
        blank = tuple(self.tokenize([""]).values.numpy().tolist())
        self.ids = SpecialIds(**ids, blank=blank)
        names = "vocab_size", "get_vocab_size", "vocabulary_size"
        self.vocab_size = _number(target, *names)
        self.target = types.SimpleNamespace(tokenize=self._tokenize_target)

    def fits(self, vocab_size: int) -> bool:
        """Return whether a model's logits may be of this vocabulary.

        They may be more, as with `max_tokens` of a `TextVectorization`.
        """
        return self.vocab_size is None or vocab_size >= self.vocab_size

    def tokenize(self, text: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Turn source texts `(B,)` into ids, ragged int32 `(B, None)`."""
        return self._rows(self._source, text)

    def _tokenize_target(
        self, text: tf.Tensor | Sequence[str]
    ) -> tf.RaggedTensor:
        """Turn texts into ids without a begin token, the end token last."""
        ids = self._rows(self._target, text)
        is_text = (ids.values != self.ids.bos) & (ids.values != self.ids.eos)
        ids = tf.ragged.boolean_mask(ids, ids.with_values(is_text))
        end = tf.fill([ids.nrows(tf.int32), 1], self.ids.eos)
        return tf.concat([ids, end], axis=1)

    def detokenize(self, ids: tf.Tensor) -> tf.Tensor:
        """Turn target ids `(..., L)` into the texts before the end token."""
        return text_of(ids, self.ids, self._target[1])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Name the piece of each id: its text, or its number without one."""
        with tf.init_scope():
            texts = self.detokenize([[int(each)] for each in ids]).numpy()
        return [
            text.decode("utf-8", "replace") or f"<{each}>"
            for text, each in zip(texts, ids, strict=True)
        ]

    def _rows(self, ways: _Ways, text: Any) -> tf.RaggedTensor:
        """Tokenize without padding."""
        ids = tf.cast(ways[0](as_strings(text)), tf.int32)
        if not isinstance(ids, tf.RaggedTensor):
            return tf.ragged.boolean_mask(ids, ids != self.ids.pad)
        # Words of pieces become pieces.
        return ids.merge_dims(1, -1) if ids.ragged_rank > 1 else ids


def _ways(tokenizer: Any) -> _Ways:
    """Find how a tokenizer turns texts into ids and back."""
    if isinstance(tokenizer, keras.layers.TextVectorization):
        return tokenizer, _way_back(tokenizer)
    # First: beside them, `tokenize` returns pieces, as with Hugging Face.
    if hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode"):
        return _in_python(tokenizer.encode, tokenizer.decode)
    if hasattr(tokenizer, "tokenize") and hasattr(tokenizer, "detokenize"):
        return _in_graphs(tokenizer.tokenize, tokenizer.detokenize)
    raise UserError(
        "Expected `tokenizer` with `tokenize` and `detokenize`, or `encode` "
        f"and `decode`, received {type(tokenizer).__name__}; write a "
        "class with one of these pairs around it."
    )


def _in_graphs(tokenize: Callable, detokenize: Callable) -> _Ways:
    """Use methods of string tensors, as TensorFlow Text's are."""
    dtype = tokenize(tf.constant([""])).dtype

    def decode(ids: tf.RaggedTensor) -> tf.Tensor:
        texts = detokenize(tf.cast(ids, dtype))
        if texts.shape.rank == 1:
            return texts
        return tf.strings.reduce_join(texts, axis=-1, separator=" ")  # Words.

    return tokenize, decode


def _in_python(encode: Callable, decode: Callable) -> _Ways:
    """Use methods of one text."""

    def encode_all(texts: tf.Tensor) -> tf.RaggedTensor:
        if not tf.executing_eagerly():
            raise UserError(
                "Expected a tokenizer with `tokenize` and `detokenize` for a "
                "graph, received one in Python; translate with it, or call "
                "`kt.batch` outside of `Dataset.map`."
            )
        rows = [encode(text.decode()) for text in texts.numpy()]
        rows = [list(getattr(row, "ids", row)) for row in rows]
        return tf.ragged.constant(rows, tf.int32, ragged_rank=1)

    def decode_all(ids: tf.RaggedTensor) -> tf.Tensor:
        return tf.constant([decode(row) for row in ids.to_list()], tf.string)

    return encode_all, decode_all


def _way_back(
    layer: keras.layers.TextVectorization,
) -> Callable[[tf.RaggedTensor], tf.Tensor]:
    """Look up the words of a layer, which has no way back of its own."""
    settings, words = layer.get_config(), tf.constant(layer.get_vocabulary())
    if settings["output_mode"] != "int" or len(words) < 3:
        raise UserError(
            "Expected a `TextVectorization` with output_mode='int' after "
            f"`adapt`, received one with {settings['output_mode']!r} and "
            f"{len(words)} words; make it so, and adapt it first."
        )
    separator = "" if settings["split"] == "character" else " "

    def decode(ids: tf.RaggedTensor) -> tf.Tensor:
        # A model may have logits beyond the vocabulary.
        known = tf.gather(words, tf.ragged.boolean_mask(ids, ids < len(words)))
        return tf.strings.reduce_join(known, axis=-1, separator=separator)

    return decode


def _number(tokenizer: Any, *names: str) -> int | None:
    """Ask a tokenizer for a number; a negative one is none."""
    for name in names:
        value = getattr(tokenizer, name, None)
        value = value() if callable(value) else value
        if value is not None and value >= 0:
            return int(value)
    return None
