"""Ids to ids inside a graph: searches, draws and scores.

Several models may search together, an ensemble: at every step each predicts
the next token, and the search follows the mean of the predictions.

All methods work eagerly and inside a `tf.function`, on tensors of any batch
size.

Axes: B batch, W beams, V vocabulary, S source length, T target length,
P prefix length.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.config import (
    ENSEMBLE_MEANS,
    OURS,
    Search,
    SettingError,
    SpecialIds,
    UserError,
)
from keras_transformer.decoding.beam_search import (
    BeamResult,
    Shared,
    length_normaliser,
    search_by,
)
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.decoding.candidates import Rules
from keras_transformer.decoding.frozen_weights import FrozenWeights
from keras_transformer.decoding.prefix_steps import (
    Model,
    PrefixSteps,
    check_model,
    has_cached_step,
    logits_of,
    scores_features,
)
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.shortlist import Shortlist, Words

# Target tokens whose logits `(., V)` exist at a time when a text is scored.
_SCORED_AT_ONCE = 256


def as_one_sentence(ids: tf.Tensor) -> tf.Tensor:
    """Tell the graph that `ids` `(1, L)` are those of one sentence."""
    # With `ensure_shape`, TensorFlow would expect the same shape in the other
    # branch of a `tf.cond`.
    return tf.reshape(ids, [1, -1])


class IdModel:
    """A trained model, or several that search together, inside a graph.

    Args:
        models: The model, or several of one vocabulary and dtype. Each is a
            `Transformer`, or another that maps ids `((source, target_in))` to
            logits.
        frozen: The weights to multiply by in graphs; by default those that
            the models have at each call.
        shortlist: The only target pieces that a beam search scores; by default
            all. Sampling always scores all.
        ids: The special ids of the vocabulary.
        mean: What several models average: `"probabilities"`, or
            `"log-probabilities"`, which favours tokens that no model finds
            unlikely.

    Attributes:
        models: The models, a tuple.
        vocab_size: Size of the vocabulary.

    Raises:
        UserError: As from `check_model`.
        ValueError: If there is no model, or the models differ in vocabulary
            size or dtype.
    """

    def __init__(
        self,
        models: Model | Sequence[Model],
        frozen: FrozenWeights | None = None,
        shortlist: Shortlist | None = None,
        ids: SpecialIds = OURS,
        mean: str = ENSEMBLE_MEANS[0],
    ) -> None:
        several = isinstance(models, list | tuple)
        self.models: tuple[Any, ...] = tuple(models) if several else (models,)
        if not self.models:
            raise SettingError("models", "at least one model", models)
        sizes = [check_model(model) for model in self.models]
        dtypes = [getattr(x, "compute_dtype", "float32") for x in self.models]
        for name, found in (("vocab_size", sizes), ("compute_dtype", dtypes)):
            if len(set(found)) > 1:
                raise ValueError(
                    f"The models of an ensemble must have one {name}. "
                    f"Received: {' and '.join(map(str, found))}"
                )
        self.vocab_size: int = sizes[0]
        self.frozen = frozen
        self.shortlist = shortlist
        self.ids = ids
        self.mean = mean

    def weights_in_use(self) -> contextlib.AbstractContextManager:
        """Let the models compute with the frozen weights, if there are any."""
        return self.frozen.in_use() if self.frozen else contextlib.nullcontext()

    def search_ids(
        self,
        source: tf.Tensor,
        search: Search,
        prefix: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> BeamResult:
        """Translate ids, without applying `max_source_length`.

        Args:
            source: int32 `(B, S)`, EOS last.
            search: How to search.
            prefix: As in `beam_search`.
            seeds: int32 `(B, 2)`, a seed for each row; needed for sampling.

        Returns:
            The hypotheses of each row.
        """
        if search.sampling:
            with self.weights_in_use():
                steps = self._steps(source, search.n_best)
                return sample(
                    self._rules(search),
                    steps.append,
                    steps.empty_cache,
                    max_lengths=self._limits(source, search),
                    seeds=seeds,
                    prefix=prefix,
                )

        def find(*ids: tf.Tensor) -> BeamResult:
            return self.beam_search_ids(search, *ids)[0]

        ids = (source,) if prefix is None else (source, prefix)
        if self.frozen is None or not self.frozen.fits_one_size:
            return find(*ids)
        return tf.cond(
            tf.equal(tf.shape(source)[0], 1),
            lambda: find(*map(as_one_sentence, ids)),
            lambda: find(*ids),
        )

    def beam_search_ids(
        self,
        search: Search,
        source: tf.Tensor,
        prefix: tf.Tensor | None = None,
        *,
        with_history: bool = False,
    ) -> tuple[BeamResult, Any]:
        """Search as `search_ids` does, for a history as `search_by` does."""
        words: Words | None = None
        with self.weights_in_use():
            if self.shortlist is not None:
                words = self.shortlist.words(source, prefix)
                if prefix is not None:
                    prefix = words.places(prefix)
            steps = self._steps(source, search.beam_size, words)
            result, history = search_by(
                self._rules(search),
                steps.step,
                steps.state,
                max_lengths=self._limits(source, search),
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

    def _steps(
        self, source: tf.Tensor, beam_size: int, words: Words | None = None
    ) -> "CachedSteps | PrefixSteps | _StepsTogether":
        """Encode sources, and prepare the steps of all models."""
        steps = [
            (CachedSteps if has_cached_step(model) else PrefixSteps)(
                model, source, beam_size, words
            )
            for model in self.models
        ]
        if len(steps) == 1:
            return steps[0]
        return _StepsTogether(steps, self._mean_logits)

    def _mean_logits(self, logits: Sequence[tf.Tensor]) -> tf.Tensor:
        """Compute logits `(..., V)` whose softmax is the models' mean."""
        if len(logits) == 1:
            return logits[0]
        # A constant added to all logits changes no softmax. So the mean of
        # logits stands for that of log-probabilities, and a sum of
        # probabilities for their mean.
        if self.mean == "log-probabilities":
            return tf.add_n(logits) / len(logits)
        log_probs = tf.stack([tf.nn.log_softmax(each) for each in logits])
        return tf.reduce_logsumexp(log_probs, axis=0)

    def _rules(self, search: Search) -> Rules:
        """Collect the rules that a search and a draw share."""
        ids = self.ids
        banned: tuple[int, ...] = ()
        if search.no_unknown:
            if ids.unk is None:
                raise UserError(
                    "`no_unknown` needs the id of the unknown piece; give it "
                    "to the tokenizer as `unk_id`."
                )
            banned = (ids.unk,)
        return Rules(search, banned, ids.bos, ids.eos, ids.pad)

    def _limits(self, source: tf.Tensor, search: Search) -> tf.Tensor:
        """Limit the length of each translation; 0 for a blank source."""
        lengths = self._token_counts(source)
        limits = (
            lengths + search.max_extra_length
            if search.max_length is None
            else tf.fill(tf.shape(lengths), search.max_length)
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
                for model in self.models
            ),
            strict=True,
        )
        rows = [tf.reshape(each, [-1, each.shape[-1]]) for each in features]
        labels = tf.reshape(target, [-1])

        def add_piece(
            start: tf.Tensor, losses: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            end = start + _SCORED_AT_ONCE
            logits = self._mean_logits(
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


class _StepsTogether:
    """The steps of several models: what one has once, these have in a tuple."""

    def __init__(
        self,
        members: list[CachedSteps | PrefixSteps],
        mean: Callable[[Sequence[tf.Tensor]], tf.Tensor],
    ) -> None:
        self._members = members
        self._mean = mean
        self.state = tuple(member.state for member in members)
        self.empty_cache = tuple(member.empty_cache for member in members)
        self.shared = Shared(
            tuple(member.shared.state for member in members), self._extend
        )

    def step(
        self, ids: tf.Tensor, position: tf.Tensor, state: Any, shared: Any
    ) -> tuple[tf.Tensor, Any, Any]:
        """Compute the next logits, as `beam_search` asks for them."""
        logits, state, shared = self._of_all(
            "step", ids, position, state, shared
        )
        return self._mean(logits), state, shared

    def append(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, Any]:
        """Compute the next logits, as `sample` asks for them."""
        logits, cache = self._of_all("append", ids, position, cache)
        return self._mean(logits), cache

    def _of_all(
        self, name: str, ids: tf.Tensor, position: tf.Tensor, *states: Any
    ) -> Any:
        """Call a method of each with its states; return tuples of results."""
        found = [
            getattr(member, name)(ids, position, *own)
            for member, *own in zip(self._members, *states, strict=True)
        ]
        return zip(*found, strict=True)

    def _extend(self, shared: Any, steps: tf.Tensor) -> Any:
        return tuple(
            member.shared.extend(own, steps)
            for member, own in zip(self._members, shared, strict=True)
        )
