"""What a model says of given translations: scores, attention, alignment.

Axes: B batch, S source length, T target length.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.config import PAD_ID
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
from keras_transformer.translation.text_model import TextModel

_IDS = tf.TensorSpec([None, None], tf.int32)


class GivenPairs:
    """Reads pairs of texts with a `TextModel`, batched by length.

    Args:
        text_model: The model with its tokenizer.
    """

    def __init__(self, text_model: TextModel) -> None:
        self.tokenizer = text_model.tokenizer
        model = text_model.model
        # Of ids, for batches of any shape.
        self._score_graph = tf.function(
            text_model.score_ids,
            input_signature=[_IDS, _IDS, tf.TensorSpec([], tf.float32)],
            autograph=False,
        )
        self._attention_graph = tf.function(
            lambda source, target: attention_weights(model, source, target),
            input_signature=[_IDS, _IDS],
            autograph=False,
        )

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        length_penalty: float = 0.6,
        batch_tokens: int = 2_048,
    ) -> list[float]:
        """Score given translations; as `Translator.score`."""
        scores = np.zeros(len(sources))
        for rows, source, target in self._pairs(sources, targets, batch_tokens):
            scores[rows], _ = self._score_graph(source, target, length_penalty)
        return scores.tolist()

    def attention(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_source_length: int | None = None,
        batch_tokens: int = 2_048,
    ) -> list[Attention]:
        """What translations look at; as `Translator.attention`."""
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
        """Which words belong together; as `Translator.align`."""
        found = self.attention(
            sources,
            targets,
            max_source_length=max_source_length,
            batch_tokens=batch_tokens,
        )
        return [
            align_words(
                attention.mean(),
                of_source[: len(attention.source_pieces) - 1],  # It was cut.
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
        """For each text the word of each of its pieces but the end token."""
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
        """Batches of pairs: their rows, source and target ids, padded."""
        check_pairs(sources=sources, targets=targets)
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
