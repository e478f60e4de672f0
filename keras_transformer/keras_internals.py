"""The private names of Keras that the package leans on, all of them.

Keras promises nothing about them. Each is met here alone, in a function or a
method that says why it is needed; `tests/test_keras_internals.py` has a test
for each, which fails by name where another version of Keras differs.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import keras

# Keras has no public type for the tensors of its backends.
Tensor: TypeAlias = Any
Shape: TypeAlias = tuple[int | None, ...]


def replica_spec(iterator: Any) -> Any:
    """Describe a replica's batches from Keras's iterator by shapes and dtypes.

    `fit` and `evaluate` call `_maybe_symbolic_build` on TensorFlow before the
    first step. Under a strategy Keras begins an epoch there for one batch, and
    takes the mean of the replicas' parts, which unequal shapes have not. There
    is no public way to tell it the shapes instead.
    """
    import tensorflow as tf

    # Of a part that is None there is no tensor.
    return tf.nest.map_structure(
        lambda part: next(
            iter(tf.nest.flatten(part, expand_composites=True)), None
        ),
        iterator._distributed_dataset.element_spec,
    )


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """The metric that `fit` and `evaluate` report as `loss`.

    A training step of one's own has to update it, and `Model.metrics` holds it
    without telling which one it is.
    """
    return model._loss_tracker


def name_metrics(model: keras.Model, target: Tensor) -> None:
    """Let the metrics of `compile`, objects all, be asked before their use.

    `fit` asks for all results after an epoch, and fails where no step and no
    validation has updated the metrics.
    """
    if not model._compile_metrics.built:
        model._compile_metrics.build(target, target)


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """The seed generators of every layer that drops, in a lasting order.

    Keras saves their state with no weights file, and has no public way to all
    layers of a model, however deep.
    """
    return [
        layer.seed_generator
        for layer in model._flatten_layers()
        if hasattr(layer, "seed_generator")
    ]


def strategy_of_optimizer(optimizer: keras.optimizers.Optimizer) -> Any:
    """The TensorFlow strategy in whose scope an optimizer was made.

    It updates variables of that strategy alone, and fails in the first step
    with a message about mixed strategies.
    """
    return optimizer._distribution_strategy


@contextlib.contextmanager
def summed_gradients(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Let `apply_gradients` take gradients that are summed over replicas.

    Keras sums them itself, too late: after a `LossScaleOptimizer` has looked
    at those of the first replica and after they were clipped. It has no switch
    for it, as `experimental_aggregate_gradients` was one in Keras 2.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = list
    try:
        yield
    finally:
        # The replicas of a strategy are threads, and each of them comes here.
        vars(inner).pop("_all_reduce_sum_gradients", None)


def adam_slots(optimizer: keras.optimizers.Adam, variable: Any) -> tuple:
    """The moments of a variable: mean of the gradients, mean of the squares.

    An `update_step` of one's own has to change them where Keras keeps them, or
    its checkpoints would not hold them.
    """
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def implicit_mask(tensor: Tensor) -> Tensor | None:
    """The mask `(B, T)` that Keras has attached to a tensor, or `None`.

    Keras passes it to `call` only where that has no other tensor argument, or
    one of the right name. The attribute `_keras_mask` will not do: not every
    backend's tensors take one.
    """
    from keras.src import backend

    return backend.get_keras_mask(tensor)
