"""Adam and its learning rate (section 5.3)."""

from typing import Any

import keras
from keras import ops

from keras_transformer.config import checked


@keras.saving.register_keras_serializable(package="keras_transformer")
class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then inverse square root decay (equation 3).

    The rate is `scale * d_model**-0.5 * min(step**-0.5,
    step * warmup_steps**-1.5)` with the paper's step, which counts from 1.

    Args:
        d_model: Width of the model, at least 1.
        warmup_steps: Updates of linear warm-up, at least 1.
        scale: Factor on the whole; the paper's is 1.

    Call arguments:
        step: Keras's update count, an integer from 0.

    Returns:
        The learning rate, a float32 scalar.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.3.
    """

    def __init__(
        self, d_model: int, warmup_steps: int = 4_000, scale: float = 1.0
    ) -> None:
        self.d_model = checked("d_model", d_model)
        self.warmup_steps = checked("warmup_steps", warmup_steps)
        self.scale = checked("learning_rate_scale", scale)

    def __call__(self, step):
        # Keras counts updates from 0, the paper from 1.
        step = ops.cast(step, "float32") + 1.0
        return (
            self.scale
            * self.d_model**-0.5
            * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)
        )

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Adam):
    """Keras's Adam with the defaults of section 5.3."""

    def __init__(
        self,
        learning_rate: (
            float | keras.optimizers.schedules.LearningRateSchedule
        ) = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        epsilon: float = 1e-9,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **kwargs)
