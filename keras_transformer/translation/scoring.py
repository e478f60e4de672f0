"""Applies a model to given translations: scores, attention, alignment."""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.data.tokenizer import Tokenizer
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
from keras_transformer.translation.text_model import IDS, TextModel, traced


class GivenPairs:
    """Scores and aligns given translations in length-sorted batches.

    Args:
        text_model: The model with its tokenizer.
    """

    def __init__(self, text_model: TextModel) -> None:
        self.tokenizer = text_model.tokenizer
        self._text_model = text_model

    @functools.cached_property
    def _score_graph(self) -> Callable:
        penalty = tf.TensorSpec([], tf.float32)
        return traced(self._text_model.score_ids, IDS, IDS, penalty)

    @functools.cached_property
    def _attention_graph(self) -> Callable:
        self._text_model.check_attention()
        models = self._text_model.ensemble.models
        ids = self._text_model.ids
        heads = {model.model_config.num_heads for model in models}
        if len(heads) > 1:
            raise UserError(
                "Expected models with equal numbers of heads, received "
                f"{sorted(heads)}; ask one of them for its attention."
            )

        def of_all_layers(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            return tf.concat(
                [
                    attention_weights(each, source, target, ids)
                    for each in models
                ],
                axis=1,
            )

        with self._text_model.weights_in_use():
            return traced(of_all_layers, IDS, IDS)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        length_penalty: float,
        batch_tokens: int,
    ) -> list[float]:
        check_pairs(sources=sources, targets=targets)
        scores = np.zeros(len(sources))
        for rows, source, target in self._batches(
            sources, targets, None, batch_tokens
        ):
            scores[rows], _ = self._score_graph(
                source, target, tf.constant(length_penalty, tf.float32)
            )
        return scores.tolist()

    def attention(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        max_source_length: int | None,
        batch_tokens: int,
    ) -> list[Attention]:
        check_pairs(sources=sources, targets=targets)
        found: dict[int, Attention] = {}
        for rows, source, target in self._batches(
            sources, targets, max_source_length, batch_tokens
        ):
            weights = self._attention_graph(source, target).numpy()
            for row, of_row, *ids in zip(
                rows, weights, source.numpy(), target.numpy(), strict=True
            ):
                ids = [side[side != self.tokenizer.ids.pad] for side in ids]
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
        max_source_length: int | None,
        batch_tokens: int,
        languages: tuple[str, str],
    ) -> list[list[tuple[int, int]]]:
        found = self.attention(
            sources, targets, max_source_length, batch_tokens
        )
        return [
            align_words(
                attention.mean(),
                of_source[: len(attention.source_pieces) - 1],  # It may be cut.
                of_target,
            )
            for attention, of_source, of_target in zip(
                found,
                self._words(self.tokenizer, sources, languages[0]),
                self._words(self.tokenizer.target, targets, languages[1]),
                strict=True,
            )
        ]

    def _words(
        self, tokenizer: Tokenizer, texts: Sequence[str], language: str
    ) -> list[list[range]]:
        """Find the words of each text's pieces, without the end token."""
        encoded = as_bytes("texts", texts)
        _, starts, ends = tokenizer.tokenize_with_offsets(encoded)
        return [
            words_of_pieces(text, begins[:-1], stops[:-1], language)
            for text, begins, stops in zip(
                encoded, starts.to_list(), ends.to_list(), strict=True
            )
        ]

    def _batches(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        max_source_length: int | None,
        batch_tokens: int,
    ) -> Iterator[tuple[np.ndarray, tf.Tensor, tf.Tensor]]:
        """Yield batches of pairs: their rows, source and target ids, padded."""
        source_ids = self.tokenizer.tokenize(as_bytes("sources", sources))
        target_ids = self.tokenizer.target.tokenize(
            as_bytes("targets", targets)
        )
        special = self.tokenizer.ids
        source_ids, _ = cut(source_ids, max_source_length, special.blank)
        ids = source_ids, target_ids
        longest = np.maximum(*(side.row_lengths().numpy() for side in ids))
        everyone = np.arange(len(sources))
        for rows in batches(everyone, longest, longest, batch_tokens):
            source, target = (
                dense(tf.gather(side, rows), special.pad) for side in ids
            )
            yield rows, source, target
