"""Ids to ids inside a graph: searches, draws and scores.

All methods work eagerly and inside a `tf.function`, on tensors of any batch
size.

Axes: B batch, S source length, T target length, P prefix length.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.config import BOS_ID, PAD_ID, UNK_ID, Search
from keras_transformer.decoding.beam_search import (
    BeamResult,
    beam_search,
    beam_search_with_history,
    length_normaliser,
)
from keras_transformer.decoding.candidates import with_endings
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.frozen_weights import FrozenWeights
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.search_history import SearchHistory
from keras_transformer.decoding.shortlist import Shortlist, Words
from keras_transformer.model import Transformer

# Target tokens whose logits `(., V)` exist at a time when a text is scored.
_SCORED_AT_ONCE = 256


def alone(ids: tf.Tensor) -> tf.Tensor:
    """Tell the graph that `ids` `(1, L)` or `(1, L, 3)` are one sentence's."""
    # With `ensure_shape`, TensorFlow would expect the same shape in the other
    # branch of a `tf.cond`.
    return tf.reshape(ids, [1, -1, *ids.shape[2:]])


class IdModel:
    """A trained model, or several, inside a graph.

    Args:
        model: The model, or an ensemble.
        frozen: The weights to multiply by in graphs; by default those that
            the model has at each call.
        shortlist: The only target pieces that a beam search scores; by default
            all. Sampling always scores all.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        frozen: FrozenWeights | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        if not isinstance(model, Ensemble):
            model = Ensemble([model])
        self.ensemble = model
        self.frozen = frozen
        self.shortlist = shortlist

    @property
    def places(self) -> np.ndarray | None:
        """The `places` of `beam_search`, if prefixes may end inside words."""
        return None

    def weights_in_use(self) -> contextlib.AbstractContextManager:
        """Let the models compute with the frozen weights, if there are any."""
        return self.frozen.in_use() if self.frozen else contextlib.nullcontext()

    def search_ids(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> BeamResult:
        """Translate ids, without applying `max_source_length`.

        Args:
            source: int32 `(B, S)`, EOS last.
            options: How to search.
            prefix: As in `beam_search`.
            seeds: int32 `(B, 2)` from `seeds`; needed for sampling.

        Returns:
            The hypotheses of each row.
        """
        if options.sampling:
            return self._sample_ids(source, options, prefix, seeds)
        if self.frozen is None or not self.frozen.fits_one_size:
            return self._beam_search_ids(source, options, prefix)
        return tf.cond(
            tf.equal(tf.shape(source)[0], 1),
            lambda: self._beam_search_ids(
                alone(source),
                options,
                None if prefix is None else alone(prefix),
            ),
            lambda: self._beam_search_ids(source, options, prefix),
        )

    def search_ids_with_history(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None = None,
    ) -> tuple[BeamResult, SearchHistory]:
        """Search as `search_ids` does, and record what the search weighed."""
        words, (result, history) = self._found_by(
            beam_search_with_history, source, options, prefix
        )
        if words is None:
            return result, history
        tokens = tf.gather(words.ids, history.tokens)
        return (
            words.of_whole_vocabulary(result),
            history._replace(tokens=tokens),
        )

    def _beam_search_ids(
        self, source: tf.Tensor, options: Search, prefix: tf.Tensor | None
    ) -> BeamResult:
        words, result = self._found_by(beam_search, source, options, prefix)
        return words.of_whole_vocabulary(result) if words else result

    def _found_by(
        self,
        search: Callable[..., Any],
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None,
    ) -> tuple[Words | None, Any]:
        """Search among the words of the shortlist, if there is one."""
        words = None
        with self.weights_in_use():
            if self.shortlist is not None:
                tokens = None
                if prefix is not None:
                    prefix = with_endings(prefix)
                    tokens = prefix[:, :, 0]
                words = self.shortlist.words(source, tokens)
                if prefix is not None:
                    tokens = words.places(tokens)[:, :, None]
                    tokens = tf.cast(tokens, prefix.dtype)
                    prefix = tf.concat([tokens, prefix[:, :, 1:]], axis=2)
            steps = self.ensemble.steps(source, options.beam_size, words)
            return words, search(
                steps.step,
                steps.state,
                shared=steps.shared,
                **self._rules(source, options, prefix, words),
            )

    def _sample_ids(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None,
        seeds: tf.Tensor | None,
    ) -> BeamResult:
        with self.weights_in_use():
            steps = self.ensemble.steps(source, options.n_best)
            return sample(
                steps.append,
                steps.empty_cache,
                seeds=seeds,
                **self._rules(source, options, prefix),
            )

    def _rules(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None,
        words: Words | None = None,
    ) -> dict[str, Any]:
        """Collect the rules that a search and a draw share."""
        places = None if prefix is None else self.places
        if places is not None and words is not None:
            places = tf.gather(places, words.ids)
        lengths = _token_counts(source)
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
            places=places,
            **vars(options),
        )

    def score_ids(
        self, source: tf.Tensor, target: tf.Tensor, length_penalty: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Score translations as the search would.

        Args:
            source: int32 `(B, S)`, EOS last.
            target: int32 `(B, T)`, EOS last.
            length_penalty: The exponent alpha, a float scalar.

        Returns:
            The scores float32 `(B,)` and the numbers of target tokens, EOS
            included, int32 `(B,)`. Where both rows are EOS alone, 0 and 0.
        """
        # (B, T): the start token, then all but the last one.
        target_in = tf.pad(target, [[0, 0], [1, 0]], constant_values=BOS_ID)
        with self.weights_in_use():
            inputs = (source, target_in[:, :-1])
            losses = self._losses(
                [model.features(inputs) for model in self.ensemble.models],
                target,
            )
        log_probs = -tf.reduce_sum(
            tf.where(target == PAD_ID, 0.0, losses), axis=-1
        )
        num_tokens = _token_counts(target)
        scores = log_probs / length_normaliser(num_tokens, length_penalty)
        is_blank = (_token_counts(source) <= 1) & (num_tokens <= 1)
        return tf.where(is_blank, 0.0, scores), tf.where(
            is_blank, 0, num_tokens
        )

    def _losses(
        self, features: list[tf.Tensor], target: tf.Tensor
    ) -> tf.Tensor:
        """Compute cross-entropies `(B, T)` of `target`, a few tokens at a time.

        All logits `(B, T, V)` together would be by far the largest tensor of a
        request.
        """
        # Once for all pieces.
        scorers = [each.embedding.scorer() for each in self.ensemble.models]
        rows = [tf.reshape(each, [-1, each.shape[-1]]) for each in features]
        labels = tf.reshape(target, [-1])

        def add_piece(
            start: tf.Tensor, losses: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            end = start + _SCORED_AT_ONCE
            logits = self.ensemble.mean_logits(
                [
                    score(each[start:end])
                    for score, each in zip(scorers, rows, strict=True)
                ]
            )
            of_piece = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels[start:end], logits
            )
            return end, tf.concat([losses, of_piece], axis=0)

        _, losses = tf.while_loop(
            lambda start, losses: start < tf.size(labels),
            add_piece,
            (tf.constant(0), tf.zeros([0])),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
            # Otherwise the logits of several pieces would exist at once.
            parallel_iterations=1,
        )
        return tf.reshape(losses, tf.shape(target))


def _token_counts(ids: tf.Tensor) -> tf.Tensor:
    """Count the tokens of each row `(B, L)` without PAD, int32 `(B,)`."""
    return tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=-1)
