"""Ids to ids inside a graph: searches, draws, scores and attention.

Several models may search together, an ensemble: at every step each predicts
the next token, and the search follows the mean of the predictions.

All methods work eagerly and inside a `tf.function`, on tensors of any batch
size.

Axes: B batch, W beams, V vocabulary, S source length, T target length,
P prefix length, L layers, H heads.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from keras_transformer.config import (
    EOS_ID,
    OURS,
    PAD_ID,
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
from keras_transformer.decoding.candidates import Rules
from keras_transformer.decoding.frozen_weights import FrozenWeights
from keras_transformer.decoding.own_models import abilities_of, logits_of
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.decoding.whole_characters import byte_table
from keras_transformer.layers import products
from keras_transformer.machine import extras
from keras_transformer.model import Transformer

# A Keras model, or a function that maps ids `((source, target_in))` to logits.
Model: TypeAlias = Any

# Target tokens whose logits `(., V)` exist at a time when a text is scored.
_SCORED_AT_ONCE = 256


def as_one_sentence(ids: tf.Tensor) -> tf.Tensor:
    """Tell the graph that `ids` `(1, L)` are those of one sentence."""
    # With `ensure_shape`, TensorFlow would expect the same shape in the other
    # branch of a `tf.cond`.
    return tf.reshape(ids, [1, -1])


def check_hidden_ids(model: Transformer, ids: SpecialIds) -> None:
    """Refuse a vocabulary with other ids than a `Transformer` hides."""
    pairs = {"pad_id": (ids.pad, PAD_ID)}
    if not model.model_config.source_end:
        pairs["eos_id"] = ids.eos, EOS_ID
    for name, (received, hidden) in pairs.items():
        if received != hidden:
            expected = f"{hidden}, which a Transformer hides in a source"
            raise SettingError(name, expected, received)


class IdModel:
    """A trained model, or several that search together, inside a graph.

    Each is a `Transformer`, or another that maps ids `((source, target_in))` to
    logits; all have one vocabulary and dtype. Graphs multiply by the `frozen`
    weights, or else by those that the models have at each call. A beam search
    scores only the target pieces of a `shortlist`; sampling scores all.
    """

    def __init__(
        self,
        models: Model | Sequence[Model],
        frozen: FrozenWeights | None = None,
        shortlist: Shortlist | None = None,
        ids: SpecialIds = OURS,
    ) -> None:
        several = isinstance(models, list | tuple)
        self.models: tuple[Any, ...] = tuple(models) if several else (models,)
        self._able = [abilities_of(model) for model in self.models]
        sizes = {each.vocab_size for each in self._able}
        if len(sizes) != 1:
            raise SettingError("models", "models of one vocabulary", sizes)
        (self.vocab_size,) = sizes
        for role in ("bos", "eos"):
            if getattr(ids, role) >= self.vocab_size:
                expected = f"below {self.vocab_size}, the number of pieces"
                raise SettingError(f"{role}_id", expected, getattr(ids, role))
        self.frozen = frozen
        self.shortlist = shortlist
        self.ids = ids
        for model in self.models:
            if isinstance(model, Transformer):
                extras.check_keras()
                check_hidden_ids(model, ids)

    @property
    def model(self) -> Any:
        """The model; `UserError` if there are several."""
        model, *others = self.models
        if others:
            raise UserError(
                f"Expected one model, received {1 + len(others)} that search "
                "together; give one of them."
            )
        return model

    def weights_in_use(self) -> contextlib.AbstractContextManager:
        """Let the models compute with the frozen weights, if there are any."""
        return products.replaced_by(self.frozen)

    def search_ids(
        self,
        source: tf.Tensor,
        search: Search,
        prefix: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> BeamResult:
        """Translate ids `(B, S)`, without applying `max_source_length`.

        Sampling needs `seeds`, int32 `(B, 2)`.
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
        ids = (source,) if prefix is None else (source, prefix)
        if self.frozen is None or not self.frozen.fits_one_size:
            return self.beam_search_ids(search, *ids)[0]
        return tf.cond(
            tf.equal(tf.shape(source)[0], 1),
            lambda: self.beam_search_ids(search, *map(as_one_sentence, ids))[0],
            lambda: self.beam_search_ids(search, *ids)[0],
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
        rules, words = self._rules(search), None
        with self.weights_in_use():
            if self.shortlist is not None:  # A search among places in `words`.
                words = self.shortlist.words(source, prefix)
                prefix = None if prefix is None else words.places(prefix)
                rules = words.rules(rules)
            steps = self._steps(source, search.beam_size, words)
            result, history = search_by(
                rules,
                steps.step,
                steps.state,
                max_lengths=self._limits(source, search),
                prefix=prefix,
                shared=steps.shared,
                with_history=with_history,
            )
        if words is None:
            return result, history
        return words.of_whole_vocabulary(result, history)

    def _steps(
        self, source: tf.Tensor, beam_size: int, words: Any = None
    ) -> Any:
        """Encode sources, and prepare the steps of all models."""
        steps = [
            each.steps(model, source, beam_size, words)
            for model, each in zip(self.models, self._able, strict=True)
        ]
        return steps[0] if len(steps) == 1 else _StepsTogether(steps)

    def _rules(self, search: Search) -> Rules:
        """Collect the rules that a search and a draw share."""
        ids = self.ids
        banned: Any = (ids.unk,) if search.no_unknown else ()
        if None in banned:
            raise UserError(
                "`no_unknown` needs the id of the unknown piece; give it "
                "to the tokenizer as `unk_id`."
            )
        byte_of = byte_table(ids.bytes, self.vocab_size)
        return Rules(search, banned, ids.bos, ids.eos, ids.pad, byte_of)

    def _limits(self, source: tf.Tensor, search: Search) -> tf.Tensor:
        """Limit the length of each translation; 0 for a blank source."""
        lengths = self._token_counts(source)
        limits = search.max_length or lengths + search.max_extra_length
        return tf.where(lengths > len(self.ids.blank), limits, 0)

    def score_ids(
        self, source: tf.Tensor, target: tf.Tensor, length_penalty: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Score translations `(B, T)` of sources `(B, S)` as the search would.

        Returns scores, float32 `(B,)`, and the numbers of target tokens, int32
        `(B,)`: 0 and 0 where both rows are EOS alone.
        """
        with self.weights_in_use():
            losses = self._losses((source, self._target_in(target)), target)
        log_probs = -tf.reduce_sum(
            tf.where(target == self.ids.pad, 0.0, losses), axis=-1
        )
        num_tokens = self._token_counts(target)
        scores = log_probs / length_normaliser(num_tokens, length_penalty)
        is_blank = self._token_counts(source) <= len(self.ids.blank)
        is_blank &= num_tokens <= 1
        num_tokens = tf.where(is_blank, 0, num_tokens)
        return tf.where(is_blank, 0.0, scores), num_tokens

    def _losses(
        self, inputs: tuple[tf.Tensor, tf.Tensor], target: tf.Tensor
    ) -> tf.Tensor:
        """Compute cross-entropies of `target`, `(B, T)`, piece by piece."""
        # All logits `(B, T, V)` would be the largest tensor of a request.
        features, scorers = [], []
        for model, each in zip(self.models, self._able, strict=True):
            if each.scores_features:
                features.append(model.features(inputs))
                scorers.append(model.embedding.scorer())
            else:
                features.append(logits_of(model, inputs))
                scorers.append(functools.partial(tf.cast, dtype=tf.float32))
        rows = [tf.reshape(each, [-1, each.shape[-1]]) for each in features]
        labels = tf.reshape(target, [-1])

        def add_piece(start: Any, losses: Any) -> tuple[Any, Any]:
            end = start + _SCORED_AT_ONCE
            both = zip(scorers, rows, strict=True)
            logits = [score(of_model[start:end]) for score, of_model in both]
            of_piece = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels[start:end], _mean_logits(logits)
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

    @property
    def has_attention(self) -> bool:
        """Whether the models say what they attend to."""
        return all(each.has_attention for each in self._able)

    def check_attention(self) -> None:
        """Raise `UserError` unless the models say what they attend to."""
        if not self.has_attention:
            names = {type(model).__name__ for model in self.models}
            raise UserError(
                "Expected a `kt.Transformer` with its own decoder, whose "
                f"attention is known, received {', '.join(sorted(names))}; "
                "only `translate`, `score` and exports take any model."
            )

    def attention_ids(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Compute what targets look at in sources, float32 `(B, T, S)`.

        It is the mean over layers, heads and models, 0 where either side is
        padding.
        """
        self.check_attention()
        target_in, results = self._target_in(target), []
        with self.weights_in_use():
            for model in self.models:
                total = tf.constant(0.0)
                # A restricted encoder keeps no weights of all pairs.
                memory, mask = model.encode(source)
                _, _, cross = model.decode(
                    target_in, memory, mask, return_attention_scores=True
                )
                for weights in cross:
                    weights = tf.cast(weights, tf.float32)
                    total += tf.reduce_mean(weights, axis=1)
                results.append(total / len(model.decoder.layers))
        pad = self.ids.pad
        is_pair = (target != pad)[:, :, None] & (source != pad)[:, None, :]
        return tf.where(is_pair, tf.add_n(results) / len(results), 0.0)

    def _target_in(self, target: tf.Tensor) -> tf.Tensor:
        """Shift right: the start token, then all but the last one."""
        bos_id = self.ids.bos
        return tf.pad(target, [[0, 0], [1, 0]], constant_values=bos_id)[:, :-1]

    def _token_counts(self, ids: tf.Tensor) -> tf.Tensor:
        """Count the tokens of each row `(B, L)` without PAD, int32 `(B,)`."""
        return tf.reduce_sum(tf.cast(ids != self.ids.pad, tf.int32), axis=-1)


def _mean_logits(logits: Sequence[tf.Tensor]) -> tf.Tensor:
    """Compute logits `(..., V)` whose softmax is the mean of the models'."""
    if len(logits) == 1:
        return logits[0]
    # A constant added to all logits changes no softmax, so the sum of
    # probabilities stands for their mean.
    log_probs = tf.stack([tf.nn.log_softmax(each) for each in logits])
    return tf.reduce_logsumexp(log_probs, axis=0)


class _StepsTogether:
    """The steps of several models: what one has once, these have in a tuple."""

    def __init__(self, members: list[Any]) -> None:
        self._members = members
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
        return _mean_logits(logits), state, shared

    def append(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, Any]:
        """Compute the next logits, as `sample` asks for them."""
        logits, cache = self._of_all("append", ids, position, cache)
        return _mean_logits(logits), cache

    def _of_all(
        self, name: str, ids: tf.Tensor, position: tf.Tensor, *states: Any
    ) -> Any:
        """Call a method of each with its states; return tuples of results."""
        results = [
            getattr(member, name)(ids, position, *own)
            for member, *own in zip(self._members, *states, strict=True)
        ]
        return zip(*results, strict=True)

    def _extend(self, shared: Any, steps: tf.Tensor) -> Any:
        return tuple(
            member.shared.extend(own, steps)
            for member, own in zip(self._members, shared, strict=True)
        )
