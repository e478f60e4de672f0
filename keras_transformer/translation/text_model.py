"""Text to text inside a graph: tokenizer, model and search together.

All methods work eagerly and inside a `tf.function`, on tensors of any batch
size. Exported models are made of them.

Axes: B batch, S source length, T target length, P prefix length, N hypotheses.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import PAD_ID, Search, UserError
from keras_transformer.data.adapter import TokenizerAdapter
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.frozen_weights import FrozenWeights
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.decoding.prefix_steps import Model, has_attention
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.model import Transformer
from keras_transformer.translation.alignment import mean_attention
from keras_transformer.translation.beginnings import Beginnings, closed
from keras_transformer.translation.text_batches import cut

IDS = tf.TensorSpec([None, None], tf.int32)
PREFIX = tf.TensorSpec([None, None, 3], tf.int32)
_MAX_SEED = 2**31 - 1


class TextResult(NamedTuple):
    """Hypotheses as tensors, best first; empty with -inf where none exist."""

    translations: tf.Tensor  # (B, N) string
    scores: tf.Tensor  # (B, N) float32, log-probability / `length_normaliser`
    truncated: tf.Tensor  # (B,) bool, whether the source was cut


class AttentionResult(NamedTuple):
    """The attention of translations to their sources."""

    source_pieces: tf.Tensor  # (B, S) string, the end token last, then ""
    target_pieces: tf.Tensor  # (B, T) string, likewise
    attention: tf.Tensor  # (B, T, S) float32, mean of all layers and heads


def traced(function: Callable, *inputs: tf.TensorSpec) -> Callable:
    """Trace the graph of a function of tensors now.

    TensorFlow warns when several `tf.function`s in a row trace at their first
    call.
    """
    return tf.function(
        function, input_signature=inputs, autograph=False
    ).get_concrete_function()


def longest_target(options: Search) -> int | None:
    """Return the most tokens that a translation may have for any source.

    Return None where neither sources nor translations are limited.
    """
    if options.max_length is None and options.max_source_length is not None:
        return options.max_source_length + options.max_extra_length
    return options.max_length


class TextModel(IdModel):
    """A trained model, or several, with its tokenizer, inside a graph.

    Args:
        model: The model, or an ensemble, of the tokenizer's vocabulary.
        tokenizer: The tokenizer, or another that `TokenizerAdapter` takes.
        frozen: As in `IdModel`.
        shortlist: As in `IdModel`.

    Raises:
        ValueError: If the two differ in vocabulary size.
        UserError: If a `Transformer` would not see padding, or as from
            `TokenizerAdapter`.
    """

    tokenizer: Tokenizer | TokenizerAdapter

    def __init__(
        self,
        model: Model | Ensemble,
        tokenizer: Any,
        frozen: FrozenWeights | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        if not isinstance(tokenizer, Tokenizer | TokenizerAdapter):
            tokenizer = TokenizerAdapter(tokenizer)
        super().__init__(model, frozen, shortlist, tokenizer.ids)
        sizes = self.ensemble.vocab_size, tokenizer.vocab_size
        if not tokenizer.fits(sizes[0]):
            raise ValueError(
                "`model` and `tokenizer` must share one vocabulary. Received: "
                f"{sizes[0]} and {sizes[1]} pieces"
            )
        of_ours = any(isinstance(x, Transformer) for x in self.ensemble.models)
        if of_ours and self.ids.pad != PAD_ID:
            raise UserError(
                f"Expected a tokenizer that pads with {PAD_ID}, as a "
                f"Transformer does, received `pad_id` {self.ids.pad}; make "
                f"{PAD_ID} the padding of the vocabulary."
            )
        self.tokenizer = tokenizer

    @property
    def has_attention(self) -> bool:
        """Whether the models say what they attend to."""
        return all(map(has_attention, self.ensemble.models))

    def check_attention(self) -> None:
        """Raise `UserError` unless the models say what they attend to."""
        if not self.has_attention:
            names = {type(model).__name__ for model in self.ensemble.models}
            raise UserError(
                "Expected a Transformer with its own decoder, whose attention "
                f"is known, received {', '.join(sorted(names))}; only "
                "`translate`, `score` and exports take any model."
            )

    def search(
        self,
        text: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None = None,
    ) -> TextResult:
        """Translate texts, string `(B,)`.

        A prefix, string `(B,)`, is how each translation begins; it is cut where
        the translation must end.
        """
        source, truncated = cut(
            self.tokenizer.tokenize(text),
            options.max_source_length,
            self.ids.blank,
        )
        if prefix is not None:
            ids = self.prefix_ids(prefix, longest_target(options))
            prefix = ids.to_tensor(self.ids.pad)
        result = self.search_ids(
            source.to_tensor(self.ids.pad),
            options,
            prefix,
            self.seeds(text, options),
        )
        return TextResult(*self.texts_of(result, options), truncated)

    def texts_of(
        self, result: BeamResult, options: Search
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Detokenize hypotheses; of a search, each text is there once.

        Other pieces may spell the same text. The best score stays, and what is
        left of N is missing. Drawn texts may repeat.

        Returns:
            Texts, string `(B, N)`, and scores, float32 `(B, N)`.
        """
        texts = self.tokenizer.detokenize(result.ids)
        if options.sampling or options.n_best == 1:
            return texts, result.scores
        same = texts[:, :, None] == texts[:, None, :]
        earlier = tf.range(options.n_best)[:, None] > tf.range(options.n_best)
        repeats = tf.reduce_any(same & earlier, axis=2)
        texts = tf.where(repeats, "", texts)
        scores = tf.where(repeats, -math.inf, result.scores)
        order = tf.argsort(tf.cast(repeats, tf.int32), stable=True)
        return (
            tf.gather(texts, order, batch_dims=1),
            tf.gather(scores, order, batch_dims=1),
        )

    def prefix_ids(
        self, prefix: tf.Tensor | Sequence[str], longest: int | None
    ) -> tf.RaggedTensor:
        """Tokenize the beginnings of translations, ragged `(B, None, 3)`.

        They have at most `longest` tokens. A search uses no more, if `longest`
        is the limit of a translation.
        """
        texts = tf.convert_to_tensor(prefix)
        if self._beginnings:
            ids = self._beginnings.tokenize(texts)
        else:
            ids = closed(self.tokenizer.target.tokenize(texts)[:, :-1])
        return ids[:, :longest]

    @functools.cached_property
    def _beginnings(self) -> Beginnings | None:
        """None for a tokenizer whose pieces do not say what they spell."""
        if isinstance(self.tokenizer, TokenizerAdapter):
            return None
        return Beginnings(self.tokenizer.target)

    @property
    def places(self) -> np.ndarray | None:
        return self._beginnings.places if self._beginnings else None

    def seeds(self, text: tf.Tensor, options: Search) -> tf.Tensor | None:
        """Make a seed for each text: the user's with a hash of the text.

        So a text always has the same draws, wherever it stands and whatever
        texts come with it. Without the user's seed, draws are random.

        Returns:
            int32 `(B, 2)`, or None where nothing is drawn.
        """
        if not options.sampling:
            return None
        batch = tf.size(text)
        if options.sampling.seed is None:
            return tf.random.uniform([batch, 2], 0, _MAX_SEED, tf.int32)
        hashes = tf.strings.to_hash_bucket_fast(text, _MAX_SEED)
        seeds = tf.fill([batch], options.sampling.seed)
        return tf.stack([seeds, tf.cast(hashes, tf.int32)], axis=1)

    def score_text(
        self, source: tf.Tensor, target: tf.Tensor, options: Search
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Score translations as the search would.

        Args:
            source: string `(B,)`, cut like a source of the search.
            target: string `(B,)`, cut where the search would stop writing for
                the longest source; the score is then that of the text up to
                there, with an end token.
            options: The length penalty and the limits.

        Returns:
            As from `score_ids`.
        """
        return self.score_ids(
            *self._ids(source, target, options), options.length_penalty
        )

    def attention_text(
        self, source: tf.Tensor, target: tf.Tensor, options: Search
    ) -> AttentionResult:
        """Find what given translations look at.

        Args:
            source: string `(B,)`, cut as in `score_text`.
            target: string `(B,)`, likewise.
            options: The limits.
        """
        source, target = self._ids(source, target, options)
        with self.weights_in_use():
            attention = tf.add_n(
                [
                    mean_attention(model, source, target, self.ids)
                    for model in self.ensemble.models
                ]
            ) / len(self.ensemble.models)
        return AttentionResult(
            self._pieces(source), self._pieces(target), attention
        )

    def _ids(
        self, source: tf.Tensor, target: tf.Tensor, options: Search
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Tokenize pairs to ids `(B, S)` and `(B, T)`, cut at the limits."""
        of_source, _ = cut(
            self.tokenizer.tokenize(source),
            options.max_source_length,
            self.ids.blank,
        )
        of_target, _ = cut(
            self.tokenizer.target.tokenize(target),
            longest_target(options),
            (self.ids.eos,),
        )
        pad = self.ids.pad
        return of_source.to_tensor(pad), of_target.to_tensor(pad)

    def _pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Look up the piece of each id, "" for padding."""
        names = self.tokenizer.pieces(range(self.ensemble.vocab_size))
        names[PAD_ID] = ""
        return tf.gather(tf.constant(names), ids)
