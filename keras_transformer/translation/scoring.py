"""Applies a model to given translations: scores, attention, alignment.

`Rereader` rereads the hypotheses of a search for their attention, in a
teacher-forced pass. The row before a token is what the search saw when it wrote
that token, since no position looks ahead; in 16 bits the two differ by their
rounding.

Axes: B batch, S source length, T target length; in `Rereader` also L layers,
H heads, R rows, K likeliest next tokens, D model width.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import BOS_ID, PAD_ID, UserError
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.model import Transformer
from keras_transformer.translation.alignment import (
    Attention,
    align_words,
    attention_weights,
    words_of_pieces,
)
from keras_transformer.translation.text_batches import (
    as_bytes,
    batches,
    check_pairs,
    cut,
    dense,
)
from keras_transformer.translation.text_model import TextModel, traced

_IDS = tf.TensorSpec([None, None], tf.int32)


class GivenPairs:
    """Reads pairs of texts with a `TextModel`, batched by length.

    Args:
        text_model: The model with its tokenizer.
    """

    def __init__(self, text_model: TextModel) -> None:
        self.tokenizer = text_model.tokenizer
        self._text_model = text_model

    @functools.cached_property
    def _score_graph(self) -> Callable:
        penalty = tf.TensorSpec([], tf.float32)
        return traced(self._text_model.score_ids, _IDS, _IDS, penalty)

    @functools.cached_property
    def _attention_graph(self) -> Callable:
        models = self._text_model.ensemble.models
        heads = {model.model_config.num_heads for model in models}
        if len(heads) > 1:
            raise UserError(
                "Expected models with equal numbers of heads, received "
                f"{sorted(heads)}; ask one of them for its attention."
            )

        def of_all_layers(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            return tf.concat(
                [attention_weights(each, source, target) for each in models],
                axis=1,
            )

        with self._text_model.weights_in_use():
            return traced(of_all_layers, _IDS, _IDS)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        length_penalty: float = 0.6,
        batch_tokens: int = 2_048,
    ) -> list[float]:
        """Score given translations; as `Translator.score`."""
        check_pairs(sources=sources, targets=targets)
        scores = np.zeros(len(sources))
        for rows, source, target in self._pairs(sources, targets, batch_tokens):
            scores[rows], _ = self._score_graph(
                source, target, tf.constant(length_penalty, tf.float32)
            )
        return scores.tolist()

    def attention(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_source_length: int | None = None,
        batch_tokens: int = 2_048,
    ) -> list[Attention]:
        """Compute the attention of translations, as `Translator.attention`."""
        check_pairs(sources=sources, targets=targets)
        found: dict[int, Attention] = {}
        for rows, source, target in self._pairs(
            sources, targets, batch_tokens, max_source_length
        ):
            weights = self._attention_graph(source, target).numpy()
            for row, of_row, *ids in zip(
                rows, weights, source.numpy(), target.numpy(), strict=True
            ):
                ids = [side[side != PAD_ID] for side in ids]
                found[row] = Attention(
                    self.tokenizer.pieces(ids[0]),
                    self.tokenizer.pieces(ids[1]),
                    of_row[:, :, : len(ids[1]), : len(ids[0])],
                )
        return [found[row] for row in range(len(sources))]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_source_length: int | None = None,
        batch_tokens: int = 2_048,
    ) -> list[list[tuple[int, int]]]:
        """Find the words that belong together, as `Translator.align`."""
        found = self.attention(
            sources,
            targets,
            max_source_length=max_source_length,
            batch_tokens=batch_tokens,
        )
        return [
            align_words(
                attention.mean(),
                of_source[: len(attention.source_pieces) - 1],  # It may be cut.
                of_target,
            )
            for attention, of_source, of_target in zip(
                found,
                self._words(self.tokenizer, sources),
                self._words(self.tokenizer.target, targets),
                strict=True,
            )
        ]

    def _words(
        self, tokenizer: Tokenizer, texts: Sequence[str]
    ) -> list[list[int]]:
        """Find the word of each piece, without the end token, for each text."""
        encoded = as_bytes("texts", texts)
        _, starts, ends = tokenizer.tokenize_with_offsets(encoded)
        return [
            words_of_pieces(text, begins[:-1], stops[:-1])
            for text, begins, stops in zip(
                encoded, starts.to_list(), ends.to_list(), strict=True
            )
        ]

    def _pairs(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        batch_tokens: int,
        max_source_length: int | None = None,
    ) -> Iterator[tuple[np.ndarray, tf.Tensor, tf.Tensor]]:
        """Yield batches of pairs: their rows, source and target ids, padded."""
        source_ids = self.tokenizer.tokenize(as_bytes("sources", sources))
        target_ids = self.tokenizer.target.tokenize(
            as_bytes("targets", targets)
        )
        ids = cut(source_ids, max_source_length)[0], target_ids
        longest = np.maximum(*(side.row_lengths().numpy() for side in ids))
        everyone = np.arange(len(sources))
        for rows in batches(everyone, longest, longest, batch_tokens):
            source, target = (dense(tf.gather(side, rows)) for side in ids)
            yield rows, source, target


# Next tokens returned for every row, K.
_LIKELIEST = 8
# Target tokens to read at a time; all their attention is in memory at once.
_READ_AT_ONCE = 1_024
Ids = tuple[int, ...]


class Reread(NamedTuple):
    """The attention and the next tokens of each row.

    Attributes:
        encoder: float32 `(L, H, S, S)`.
        decoder: float32 `(L, H, R, T)`, 0 beyond the tokens written.
        cross: float32 `(L, H, R, S)`.
        next_ids: int32 `(R, K)`, the likeliest first.
        next_log_probs: float32 `(R, K)`.
    """

    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray
    next_ids: np.ndarray
    next_log_probs: np.ndarray


class Rereader:
    """Rereads a source and beginnings of its translations.

    Args:
        model: The model.
    """

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._encode = traced(model.encode_with_weights, _IDS)
        width = model.model_config.d_model
        self._decode = traced(
            self._decode_all,
            _IDS,
            tf.TensorSpec([1, None, width], model.compute_dtype),
            tf.TensorSpec([1, 1, 1, None], tf.bool),
        )

    def read(self, source: tf.Tensor, written: list[Ids]) -> Reread:
        """Reread the tokens written before each of the R rows.

        Args:
            source: int32 `(1, S)`.
            written: The ids of each row, () for the start.
        """
        memory, source_mask, of_layers = self._encode(source)
        encoder = _stacked(of_layers)
        longest = 1 + max(len(ids) for ids in written)
        layers = self._model.model_config.layers_of("decoder")
        sizes = (layers, encoder.shape[2], len(written))
        likeliest = (len(written), min(_LIKELIEST, self._model.vocab_size))
        found = Reread(
            encoder=encoder[:, 0],
            decoder=np.zeros([*sizes, longest], np.float32),
            cross=np.zeros([*sizes, source.shape[1]], np.float32),
            next_ids=np.zeros(likeliest, np.int32),
            next_log_probs=np.zeros(likeliest, np.float32),
        )
        for batch, (rows, b, t) in _passes(written, _READ_AT_ONCE // longest):
            target_in = tf.ragged.constant(batch, tf.int32).to_tensor(PAD_ID)
            log_probs, ids, decoder, cross = self._decode(
                target_in, memory, source_mask
            )
            found.next_log_probs[rows] = log_probs.numpy()[b, t]
            found.next_ids[rows] = ids.numpy()[b, t]
            # The axes of two lists come first: (rows, L, H, .).
            of_rows = _stacked(decoder)[:, b, :, t]
            length = target_in.shape[1]
            found.decoder[:, :, rows, :length] = of_rows.transpose(1, 2, 0, 3)
            of_rows = _stacked(cross)[:, b, :, t]
            found.cross[:, :, rows] = of_rows.transpose(1, 2, 0, 3)
        return found

    def _decode_all(
        self, target_in: tf.Tensor, memory: tf.Tensor, source_mask: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        """Find the likeliest next tokens `(B, T, K)`, and the attention."""
        batch = tf.shape(target_in)[0]
        logits, decoder, cross = self._model.decode_with_weights(
            target_in,
            tf.repeat(memory, batch, axis=0),
            tf.repeat(source_mask, batch, axis=0),
        )
        log_probs, ids = tf.math.top_k(
            tf.nn.log_softmax(logits), min(_LIKELIEST, self._model.vocab_size)
        )
        return log_probs, ids, decoder, cross


def _passes(
    read: list[Ids], at_once: int
) -> Iterator[tuple[list[Ids], np.ndarray]]:
    """Choose few targets to read, with a place in them for every row.

    Yields:
        A batch of decoder inputs, and an array `(3, rows)`: the rows, and for
        each its row and position in the batch.
    """
    row_of = {ids: row for row, ids in enumerate(read)}
    # A pass over a beginning that none continued covers all that led there.
    went_on = {ids[:-1] for ids in read if ids}
    last = sorted((ids for ids in read if ids not in went_on), key=len)
    filled: set[int] = set()
    for first in range(0, len(last), max(1, at_once)):
        batch = last[first : first + max(1, at_once)]
        places = {
            row_of[ids[:t]]: (b, t)
            for b, ids in enumerate(batch)
            for t in range(len(ids) + 1)
        }
        places = {row: at for row, at in places.items() if row not in filled}
        filled |= places.keys()
        yield (
            [(BOS_ID, *ids) for ids in batch],
            np.array([(row, *at) for row, at in places.items()]).T,
        )


def _stacked(layers: list) -> np.ndarray:
    """Stack layers to `(L, B, H, T, .)`, float32."""
    return np.stack([np.asarray(tf.cast(w, tf.float32)) for w in layers])
