"""Text to text inside a graph: tokenizer, model and search together.

All methods work eagerly and inside a `tf.function`, on tensors of any batch
size: what an exported model is made of.

Axes: B batch, S source length, T target length, P prefix length, N hypotheses.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.config import (
    BOS_ID,
    PAD_ID,
    UNK_ID,
    Search,
    SettingError,
)
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import (
    BeamResult,
    beam_search,
    beam_search_with_history,
    length_normaliser,
)
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.search_history import SearchHistory
from keras_transformer.model import Transformer
from keras_transformer.translation.alignment import mean_attention
from keras_transformer.translation.text_batches import cut, token_counts

_MAX_SEED = 2**31 - 1
# Target tokens whose logits `(., V)` exist at a time when a text is scored.
_SCORED_AT_ONCE = 256


class TextResult(NamedTuple):
    """Hypotheses as tensors, best first; empty with -inf where none exist."""

    translations: tf.Tensor  # (B, N) string
    scores: tf.Tensor  # (B, N) float32, log-probability / `length_normaliser`
    truncated: tf.Tensor  # (B,) bool, whether the source was cut


class AttentionResult(NamedTuple):
    """What the pieces of translations look at."""

    source_pieces: tf.Tensor  # (B, S) string, the end token last, then ""
    target_pieces: tf.Tensor  # (B, T) string, likewise
    attention: tf.Tensor  # (B, T, S) float32, mean of all layers and heads


def traced(function: Callable, *inputs: tf.TensorSpec) -> Callable:
    """Trace the graph of a function now.

    A `tf.function` that traces at its first call counts among those that
    TensorFlow warns of when a few follow each other.

    Args:
        function: Takes and returns tensors.
        *inputs: What it takes.
    """
    return tf.function(
        function, input_signature=inputs, autograph=False
    ).get_concrete_function()


def longest_target(options: Search) -> int | None:
    """Most tokens that a translation may have, whatever its source.

    None where neither sources nor translations are limited.
    """
    if options.max_length is None and options.max_source_length is not None:
        return options.max_source_length + options.max_extra_length
    return options.max_length


class TextModel:
    """A trained model with its tokenizer, inside a graph.

    Args:
        model: The model; its vocabulary is the tokenizer's.
        tokenizer: The tokenizer.

    Raises:
        ValueError: If the two differ in vocabulary size.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise SettingError("tokenizer", "a Tokenizer", tokenizer)
        if model.vocab_size != tokenizer.vocab_size:
            raise ValueError(
                "`model` and `tokenizer` must share one vocabulary. Received: "
                f"{model.vocab_size} and {tokenizer.vocab_size} pieces"
            )
        self.model = model
        self.tokenizer = tokenizer

    def search(
        self,
        text: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None = None,
    ) -> TextResult:
        """Translate texts, string `(B,)`.

        Args:
            text: string `(B,)`.
            options: How to search.
            prefix: string `(B,)`, how each translation begins; cut where the
                translation has to end.

        Returns:
            The hypotheses of each text.
        """
        source, truncated = cut(
            self.tokenizer.tokenize(text), options.max_source_length
        )
        result = self.search_ids(
            source.to_tensor(PAD_ID),
            options,
            prefix=None
            if prefix is None
            else self.prefix_ids(prefix, longest_target(options)).to_tensor(
                PAD_ID
            ),
            seeds=self.seeds(text, options),
        )
        return TextResult(
            self.tokenizer.detokenize(result.ids), result.scores, truncated
        )

    def search_ids(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> BeamResult:
        """Translate ids.

        `max_source_length` is not applied.

        Args:
            source: int32 `(B, S)`, EOS last.
            options: How to search.
            prefix: int32 `(B, P)` without EOS, how each translation begins.
            seeds: int32 `(B, 2)` as from `seeds`; needed for sampling.

        Returns:
            The hypotheses of each row.
        """
        rules = self._rules(source, options, prefix)
        if options.sampling:
            steps = CachedSteps(self.model, source, options.n_best)
            return sample(
                steps.append,
                self.model.empty_cache(tf.shape(source)[0]),
                seeds=seeds,
                **rules,
            )
        steps = CachedSteps(self.model, source, options.beam_size)
        return beam_search(
            steps.step,
            steps.state,
            shared=steps.shared,
            **rules,
        )

    def search_ids_with_history(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None = None,
    ) -> tuple[BeamResult, SearchHistory]:
        """Search as `search_ids` does, and keep what the search weighed."""
        steps = CachedSteps(self.model, source, options.beam_size)
        return beam_search_with_history(
            steps.step,
            steps.state,
            shared=steps.shared,
            **self._rules(source, options, prefix),
        )

    def _rules(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None,
    ) -> dict[str, Any]:
        """Collect the rules that a search and a draw share."""
        lengths = token_counts(source)
        limits = (
            lengths + options.max_extra_length
            if options.max_length is None
            else tf.fill(tf.shape(lengths), options.max_length)
        )
        return dict(
            # A blank source, EOS alone, has the empty translation.
            max_lengths=tf.where(lengths > 1, limits, 0),
            banned_ids=(UNK_ID,) if options.no_unknown else (),
            prefix=prefix,
            **vars(options),
        )

    def prefix_ids(
        self, prefix: tf.Tensor | Sequence[str], longest: int | None
    ) -> tf.RaggedTensor:
        """Texts `(B,)` as at most `longest` ids int32 each, without EOS.

        No search looks at more, where `longest` is what a translation may
        have.
        """
        return self.tokenizer.target.tokenize(prefix)[:, :-1][:, :longest]

    def seeds(self, text: tf.Tensor, options: Search) -> tf.Tensor | None:
        """A seed for each text: the user's with a hash of the text.

        So a text has the same draws wherever and with whatever others it
        comes. Without the user's seed they are random.

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
                the longest source; what is scored is then the text up to
                there, with an end token.
            options: The length penalty and the limits.

        Returns:
            The scores float32 `(B,)` and the numbers of target tokens, end
            token included, int32 `(B,)`. Where both texts are blank, 0 and 0.
        """
        return self.score_ids(
            *self._ids(source, target, options), options.length_penalty
        )

    def score_ids(
        self, source: tf.Tensor, target: tf.Tensor, length_penalty: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Score as `score_text` does, ids `(B, S)` and `(B, T)`, EOS last."""
        # (B, T): the start token, then all but the last one.
        target_in = tf.pad(target, [[0, 0], [1, 0]], constant_values=BOS_ID)
        losses = self._losses(
            self.model.features((source, target_in[:, :-1])), target
        )
        log_probs = -tf.reduce_sum(
            tf.where(target == PAD_ID, 0.0, losses), axis=-1
        )
        num_tokens = token_counts(target)
        scores = log_probs / length_normaliser(num_tokens, length_penalty)
        is_blank = (token_counts(source) <= 1) & (num_tokens <= 1)
        return tf.where(is_blank, 0.0, scores), tf.where(
            is_blank, 0, num_tokens
        )

    def _losses(self, features: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Cross-entropies `(B, T)` of `target`, a few tokens at a time.

        All logits `(B, T, V)` together would be the largest tensor of a
        request by far.
        """
        embedding = self.model.embedding
        kernel = embedding.output_kernel()  # Once for all pieces.
        rows = tf.reshape(features, [-1, features.shape[-1]])
        labels = tf.reshape(target, [-1])

        def add_piece(
            start: tf.Tensor, losses: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            end = start + _SCORED_AT_ONCE
            logits = embedding.logits(rows[start:end], kernel)
            of_piece = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels[start:end], logits
            )
            return end, tf.concat([losses, of_piece], axis=0)

        _, losses = tf.while_loop(
            lambda start, losses: start < tf.size(labels),
            add_piece,
            (tf.constant(0), tf.zeros([0])),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
            # Or the logits of several pieces would exist at a time.
            parallel_iterations=1,
        )
        return tf.reshape(losses, tf.shape(target))

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
        return AttentionResult(
            self._pieces(source),
            self._pieces(target),
            mean_attention(self.model, source, target),
        )

    def _ids(
        self, source: tf.Tensor, target: tf.Tensor, options: Search
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The ids `(B, S)` and `(B, T)` of pairs, cut at the limits."""
        of_source, _ = cut(
            self.tokenizer.tokenize(source), options.max_source_length
        )
        of_target, _ = cut(
            self.tokenizer.target.tokenize(target), longest_target(options)
        )
        return of_source.to_tensor(PAD_ID), of_target.to_tensor(PAD_ID)

    def _pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """The piece of each id as a string, "" for padding."""
        names = self.tokenizer.pieces(range(self.tokenizer.vocab_size))
        names[PAD_ID] = ""
        return tf.gather(tf.constant(names), ids)
