"""All private names of Keras and TensorFlow that the package relies on.

Neither promises anything about them. Each is used only here, in a function or a
method that says why it is needed; `tests/test_keras_internals.py` has a test
for each, which fails by name where another version differs.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import keras

# Keras has no public type for the tensors of its backends.
Tensor: TypeAlias = Any
Shape: TypeAlias = tuple[int | None, ...]


class BuiltFromSpec(keras.Model):
    """A model that is built from the declared shapes of a replica's batches.

    `fit` and `evaluate` call `_maybe_symbolic_build` on TensorFlow before the
    first step. Under a strategy Keras begins an epoch there for one batch, and
    takes the mean of the replicas' parts, which fails for unequal shapes.
    There is no public way to tell it the shapes instead.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None:
            import tensorflow as tf

            def of_replica(part):  # None for a part that is None.
                specs = tf.nest.flatten(part, expand_composites=True)
                return next(iter(specs), None)

            declared = iterator._distributed_dataset.element_spec
            data_batch = tf.nest.map_structure(of_replica, declared)
        super()._maybe_symbolic_build(data_batch=data_batch)


def has_kernel(operator: str, device: str) -> bool:
    """Return whether TensorFlow has an operator for `"CPU"` or `"GPU"`.

    There is no public way to ask before a graph runs.
    """
    from tensorflow.python.framework import kernels

    registered = kernels.get_registered_kernels_for_op(operator).kernel
    return any(kernel.device_type == device for kernel in registered)


@contextlib.contextmanager
def gradients_forgotten() -> Iterator[None]:
    """Make TensorFlow forget the gradients that it registers in the block.

    It keeps every `custom_gradient` of a graph, and so the graph, until the
    process ends: 13 MB for a toy training.
    """
    from tensorflow.python.framework.ops import gradient_registry

    noted = gradient_registry._registry
    before = set(noted)
    try:
        yield
    finally:
        for name in set(noted) - before:
            if name.startswith("CustomGradient-"):
                del noted[name]


def clear_losses(model: keras.Model) -> None:
    """Forget what `add_loss` has added, as a call of the model does at first.

    A step that calls its layers alone would add to the losses of an old graph.
    """
    model._clear_losses()


@contextlib.contextmanager
def summed_gradients(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Let `apply_gradients` take gradients that are summed over replicas.

    Keras sums them itself, but too late: after a `LossScaleOptimizer` has
    looked at those of the first replica, and after clipping. It has no switch
    for that, unlike Keras 2 with `experimental_aggregate_gradients`.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = list
    try:
        yield
    finally:
        # The replicas of a strategy are threads, and each one gets here.
        vars(inner).pop("_all_reduce_sum_gradients", None)


def ids_to_come(ids: Tensor) -> Tensor:
    """Return integers for floats on which Keras builds, and other ids as given.

    There is no public way to tell a trace for shapes from a call.
    """
    from keras.src.backend.common.symbolic_scope import in_symbolic_scope

    # Half precision would round what a functional model is called on.
    is_input = isinstance(ids, keras.KerasTensor) and ids.dtype == "float32"
    to_come = is_input or in_symbolic_scope()
    return keras.ops.cast(ids, "int32") if to_come else ids


def implicit_mask(tensor: Tensor) -> Tensor | None:
    """Return the mask `(B, T)` that Keras attached to a tensor, or `None`.

    Keras passes it to `call` only if that has no other tensor argument, or one
    of the right name. The attribute `_keras_mask` will not do: the tensors of
    some backends cannot have it.
    """
    from keras.src import backend

    return backend.get_keras_mask(tensor)
