"""Several models that search together: an ensemble.

At every step each model predicts the next token, and the search follows the
mean of the predictions. Nothing else of the search changes.

Axes: B batch, W beams, V vocabulary, S source length.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.config import ENSEMBLE_MEANS, SettingError, UserError
from keras_transformer.decoding.beam_search import Shared
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.decoding.prefix_steps import (
    Model,
    PrefixSteps,
    check_model,
    has_cached_step,
)
from keras_transformer.decoding.shortlist import Words


class Ensemble:
    """Models of one vocabulary whose predictions are averaged.

    Args:
        models: The models, at least one, with one vocabulary and dtype: each
            a `Transformer`, or another that maps ids `((source, target_in))`
            to logits.
        mean: What to average: `"probabilities"`, or `"log-probabilities"`,
            which favours tokens that no model finds unlikely.

    Attributes:
        models: The models.
        mean: The argument.
        vocab_size: Size of the vocabulary.
        compute_dtype: Name of the dtype that the models compute in.

    Raises:
        UserError: As from `check_model`.
        ValueError: If there is no model, the models differ in vocabulary size
            or dtype, or `mean` is another.
    """

    def __init__(
        self, models: Sequence[Model], mean: str = ENSEMBLE_MEANS[0]
    ) -> None:
        self.models: tuple[Any, ...] = tuple(models)
        if not self.models:
            raise SettingError("models", "at least one model", models)
        if mean not in ENSEMBLE_MEANS:
            expected = f"one of {', '.join(ENSEMBLE_MEANS)}"
            raise SettingError("ensemble_mean", expected, mean)
        found: dict[str, list[Any]] = {
            "vocab_size": [check_model(model) for model in self.models],
            "compute_dtype": [
                getattr(model, "compute_dtype", "float32")
                for model in self.models
            ],
        }
        for name, (expected, *others) in found.items():
            for other in others:
                if expected != other:
                    raise ValueError(
                        f"The models of an ensemble must have one {name}. "
                        f"Received: {expected} and {other}"
                    )
        self.mean = mean
        self.vocab_size: int = found["vocab_size"][0]
        self.compute_dtype: str = found["compute_dtype"][0]

    @property
    def only(self) -> Any:
        """The model, if there is only one.

        Raises:
            UserError: If there are several.
        """
        if len(self.models) > 1:
            raise UserError(
                f"Expected one model, received {len(self.models)} that search "
                "together; give one of them."
            )
        return self.models[0]

    @property
    def weights(self) -> list[keras.Variable]:
        """The weights of all models."""
        return [
            weight
            for model in self.models
            for weight in getattr(model, "weights", ())
        ]

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The layers of all models."""
        return [layer for model in self.models for layer in model.layers]

    def steps(
        self, source: tf.Tensor, beam_size: int, words: Words | None = None
    ) -> "CachedSteps | PrefixSteps | _StepsTogether":
        """Encode sources, and prepare the steps, as `CachedSteps` says."""
        steps = [
            (CachedSteps if has_cached_step(model) else PrefixSteps)(
                model, source, beam_size, words
            )
            for model in self.models
        ]
        return steps[0] if len(steps) == 1 else _StepsTogether(self, steps)

    def mean_logits(self, logits: Sequence[tf.Tensor]) -> tf.Tensor:
        """Compute logits whose softmax is the mean of predictions.

        Args:
            logits: float32 `(..., V)`, those of each model.

        Returns:
            float32 `(..., V)`.
        """
        if len(logits) == 1:
            return logits[0]
        # A constant added to all logits changes no softmax. So the mean of
        # logits stands for that of log-probabilities, and a sum of
        # probabilities for their mean.
        if self.mean == "log-probabilities":
            return tf.add_n(logits) / len(logits)
        log_probs = tf.stack([tf.nn.log_softmax(each) for each in logits])
        return tf.reduce_logsumexp(log_probs, axis=0)


class _StepsTogether:
    """The steps of an ensemble, as `CachedSteps` for one model.

    What those have once, these have in a tuple, one for each model.
    """

    def __init__(
        self, ensemble: Ensemble, members: list[CachedSteps | PrefixSteps]
    ) -> None:
        self._ensemble = ensemble
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
        logits, state, shared = zip(
            *(
                member.step(ids, position, *own)
                for member, *own in zip(
                    self._members, state, shared, strict=True
                )
            ),
            strict=True,
        )
        return self._ensemble.mean_logits(logits), state, shared

    def append(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, Any]:
        """Compute the next logits, as `sample` asks for them."""
        logits, cache = zip(
            *(
                member.append(ids, position, own)
                for member, own in zip(self._members, cache, strict=True)
            ),
            strict=True,
        )
        return self._ensemble.mean_logits(logits), cache

    def _extend(self, shared: Any, steps: tf.Tensor) -> Any:
        return tuple(
            member.shared.extend(own, steps)
            for member, own in zip(self._members, shared, strict=True)
        )
