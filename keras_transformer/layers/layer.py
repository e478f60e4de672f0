"""What all layers share."""

from typing import Any

import keras

from keras_transformer.keras_internals import Shape


class Layer(keras.layers.Layer):
    """A layer that passes Keras's mask on and keeps the shape of its input."""

    # What the constructor takes beside Keras's own, each kept by its name.
    arguments: tuple[str, ...] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, *shapes: Any, **named: Any) -> Shape:
        return (*shapes, *named.values())[0]

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Trace `call`, which alone knows all shapes and dtypes."""
        if not self.built:
            return self(*args, **kwargs)
        # A symbolic product with a number, such as √D, claims to be sparse.
        args, kwargs = keras.tree.map_structure(_dense, (args, kwargs))
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self.arguments}
        return {**super().get_config(), **own}


def _dense(value: Any) -> Any:
    if getattr(value, "sparse", False):
        return keras.KerasTensor(value.shape, value.dtype)
    return value


def sequence_of(width: int | None = None) -> keras.layers.InputSpec:
    """Ask for inputs `(B, T, width)`, of any width as long as none is known.

    In a batch without an axis of time, samples would attend to each other.
    """
    axes = None if width is None else {-1: width}
    return keras.layers.InputSpec(ndim=3, axes=axes)
