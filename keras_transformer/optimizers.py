"""Adam and its learning rate (section 5.3)."""

from typing import Any

import keras
from keras import ops

from keras_transformer import keras_internals
from keras_transformer.config import checked
from keras_transformer.keras_internals import Tensor


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
        self,
        d_model: int,
        warmup_steps: int = 4_000,
        scale: float = 1.0,
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
class Adam(keras_internals.SharedByUpdates, keras.optimizers.Adam):
    """Keras's Adam in one pass: TensorFlow's fused kernel for the update.

    Keras makes an update of a dozen operations, each a pass over weights and
    moments. Slots, arguments and results are Keras's own, up to rounding, and
    so is the update on other backends. The defaults are those of section 5.3.

    Args:
        learning_rate: A float or a `LearningRateSchedule`.
        beta_1: Decay of the mean of the gradients.
        beta_2: Decay of the mean of their squares.
        epsilon: Added to the root of that mean.
        **kwargs: Arguments of `keras.optimizers.Adam`, without `amsgrad`.
    """

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
        if self.amsgrad:
            raise ValueError("`amsgrad` has no fused kernel. Received: True")

    def shared_by_updates(self, learning_rate: Any) -> dict[str, Tensor]:
        """Compute the kernel's arguments that are alike for all variables."""
        import tensorflow as tf

        step = tf.cast(self.iterations + 1, keras.config.floatx())
        beta_1 = tf.constant(self.beta_1, step.dtype)
        beta_2 = tf.constant(self.beta_2, step.dtype)
        return {
            "beta1_power": tf.pow(beta_1, step),
            "beta2_power": tf.pow(beta_2, step),
            "lr": tf.cast(learning_rate, step.dtype),
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": tf.constant(self.epsilon, step.dtype),
        }

    def update_step(self, gradient: Tensor, variable: Any, shared: Any) -> None:
        if keras.backend.backend() != "tensorflow":
            return super().update_step(gradient, variable, shared)
        import tensorflow as tf

        mean, square = keras_internals.adam_slots(self, variable)
        tf.raw_ops.ResourceApplyAdam(
            var=_handle(variable),
            m=_handle(mean),
            v=_handle(square),
            grad=tf.convert_to_tensor(tf.cast(gradient, variable.dtype)),
            **{
                name: tf.cast(number, variable.dtype)
                for name, number in shared.items()
            },
        )


def _handle(variable):
    """Return the local resource of a Keras or TensorFlow variable."""
    if isinstance(variable, keras.Variable):
        variable = variable.value
    return variable.handle
