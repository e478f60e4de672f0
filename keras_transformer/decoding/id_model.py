"""Ids to ids inside a graph: searches, draws and scores.

All methods work eagerly and inside a `tf.function`, on tensors of any batch
size.

Axes: B batch, S source length, T target length, P prefix length.
"""

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.config import OURS, Search, SpecialIds, UserError
from keras_transformer.decoding.beam_search import (
    BeamResult,
    length_normaliser,
    search_by,
)
from keras_transformer.decoding.candidates import Rules, with_endings
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.frozen_weights import FrozenWeights
from keras_transformer.decoding.prefix_steps import (
    Model,
    logits_of,
    scores_features,
)
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.search_history import SearchHistory
from keras_transformer.decoding.shortlist import Shortlist, Words

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
        ids: The special ids of the vocabulary.
    """

    def __init__(
        self,
        model: Model | Ensemble,
        frozen: FrozenWeights | None = None,
        shortlist: Shortlist | None = None,
        ids: SpecialIds = OURS,
    ) -> None:
        if not isinstance(model, Ensemble):
            model = Ensemble([model])
        self.ensemble = model
        self.frozen = frozen
        self.shortlist = shortlist
        self.ids = ids

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
        return self._beam_search(source, options, prefix, with_history=True)

    def _beam_search_ids(
        self, source: tf.Tensor, options: Search, prefix: tf.Tensor | None
    ) -> BeamResult:
        return self._beam_search(source, options, prefix)[0]

    def _beam_search(
        self,
        source: tf.Tensor,
        options: Search,
        prefix: tf.Tensor | None,
        with_history: bool = False,
    ) -> tuple[BeamResult, Any]:
        """Search among the words of the shortlist, if there is one."""
        words: Words | None = None
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
            result, history = search_by(
                self._rules(options, prefix, words),
                steps.step,
                steps.state,
                max_lengths=self._limits(source, options),
                prefix=prefix,
                shared=steps.shared,
                with_history=with_history,
            )
        if words is None:
            return result, history
        if with_history:
            tokens = tf.gather(words.ids, history.tokens)
            history = history._replace(tokens=tokens)
        return words.of_whole_vocabulary(result), history

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
                self._rules(options, prefix),
                steps.append,
                steps.empty_cache,
                max_lengths=self._limits(source, options),
                seeds=seeds,
                prefix=prefix,
            )

    def _rules(
        self,
        options: Search,
        prefix: tf.Tensor | None,
        words: Words | None = None,
    ) -> Rules:
        """Collect the rules that a search and a draw share."""
        places = None if prefix is None else self.places
        if places is not None and words is not None:
            places = tf.gather(places, words.ids)
        ids = self.ids
        banned: tuple[int, ...] = ()
        if options.no_unknown:
            if ids.unk is None:
                raise UserError(
                    "`no_unknown` needs the id of the unknown piece; give it "
                    "to the tokenizer as `unk_id`."
                )
            banned = (ids.unk,)
        return Rules(options, banned, ids.bos, ids.eos, ids.pad, places)

    def _limits(self, source: tf.Tensor, options: Search) -> tf.Tensor:
        """Limit the length of each translation; 0 for a blank source."""
        lengths = self._token_counts(source)
        limits = (
            lengths + options.max_extra_length
            if options.max_length is None
            else tf.fill(tf.shape(lengths), options.max_length)
        )
        return tf.where(lengths > len(self.ids.blank), limits, 0)

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
        target_in = tf.pad(
            target, [[0, 0], [1, 0]], constant_values=self.ids.bos
        )
        with self.weights_in_use():
            inputs = (source, target_in[:, :-1])
            losses = self._losses(inputs, target)
        log_probs = -tf.reduce_sum(
            tf.where(target == self.ids.pad, 0.0, losses), axis=-1
        )
        num_tokens = self._token_counts(target)
        scores = log_probs / length_normaliser(num_tokens, length_penalty)
        is_blank = self._token_counts(source) <= len(self.ids.blank)
        is_blank &= num_tokens <= 1
        return tf.where(is_blank, 0.0, scores), tf.where(
            is_blank, 0, num_tokens
        )

    def _losses(
        self, inputs: tuple[tf.Tensor, tf.Tensor], target: tf.Tensor
    ) -> tf.Tensor:
        """Compute cross-entropies `(B, T)` of `target`, a few tokens at a time.

        All logits `(B, T, V)` together would be by far the largest tensor of a
        request. A model that returns nothing else has them together.
        """
        features, scorers = zip(
            *(
                (model.features(inputs), model.embedding.scorer())
                if scores_features(model)
                else (logits_of(model, inputs), _as_float32)
                for model in self.ensemble.models
            ),
            strict=True,
        )
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

    def _token_counts(self, ids: tf.Tensor) -> tf.Tensor:
        """Count the tokens of each row `(B, L)` without PAD, int32 `(B,)`."""
        return tf.reduce_sum(tf.cast(ids != self.ids.pad, tf.int32), axis=-1)


def _as_float32(logits: tf.Tensor) -> tf.Tensor:
    return tf.cast(logits, tf.float32)
