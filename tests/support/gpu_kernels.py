"""The kernels that TensorFlow would use for a graph on a GPU.

The wheel on PyPI for Linux holds the kernels for GPUs, so a machine without one
can look them up in TensorFlow's registry.

As a program, since logical devices must be set before TensorFlow starts, it
traces a training step on two replicas and prints JSON: for each precision a
list of [device, operator, types] that no GPU kernel runs.
"""

import collections
import functools
import json

import tensorflow as tf
from local_workers import split_processor
from small_models import SIZES
from tensorflow.python.framework import kernels, op_def_registry

from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.optimizers import Adam

GPU, XLA = "GPU", "XLA_GPU_JIT"


@functools.cache
def registry():
    """All kernels, those of XLA too: lists of `KernelDef` by operator."""
    # TensorFlow enters them when it compiles for the first time.
    tf.function(lambda: tf.zeros([]) + 1.0, jit_compile=True)()
    found = collections.defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        found[kernel.op].append(kernel)
    return found


def missing_kernels(graph_def, roots=None):
    """Find operators without a GPU kernel, or without XLA's where it compiles.

    Args:
        graph_def: A `GraphDef`, with the functions it calls.
        roots: Names of the functions to begin with; the graph if not given.

    Returns:
        A set of `(device, operator, types)`; the types are names in a tuple.
    """
    return {
        (device, node.op, tuple(sorted(_types(node))))
        for node, by_xla in _nodes(graph_def, roots)
        for device in ((GPU, XLA) if by_xla else (GPU,))
        if not _has_kernel(node, device)
    }


def _nodes(graph_def, roots):
    """Each node of the graph and its functions; whether XLA must compile it."""
    library = {f.signature.name: f for f in graph_def.library.function}
    seen = set()
    todo = [(graph_def.node, False)]
    if roots is not None:
        todo = [(library[root].node_def, False) for root in roots]
    while todo:
        nodes, by_xla = todo.pop()
        for node in nodes:
            yield node, by_xla
            for name in _called(node):
                must = by_xla or library[name].attr["_XlaMustCompile"].b
                if (name, must) not in seen:
                    seen.add((name, must))
                    todo.append((library[name].node_def, must))


def _called(node):
    """The functions that a node calls: bodies, conditions, branches."""
    for value in node.attr.values():
        yield from (f.name for f in [value.func, *value.list.func] if f.name)


def _has_kernel(node, device):
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    return any(
        kernel.device_type in (device, "DEFAULT")
        and kernel.label == label
        and all(
            _values(_attribute(node, constraint.name))
            <= _values(constraint.allowed_values)
            for constraint in kernel.constraint
        )
        for kernel in registry()[node.op]
    )


def _attribute(node, name):
    """An attribute, or its default, which a SavedModel leaves out."""
    if name in node.attr:
        return node.attr[name]
    attributes = op_def_registry.get(node.op).attr
    return next(a.default_value for a in attributes if a.name == name)


def _types(node):
    """Names of the types among the attributes of a node."""
    for each in op_def_registry.get(node.op).attr:
        if each.type in ("type", "list(type)"):
            for value in _values(_attribute(node, each.name)):
                yield tf.as_dtype(value).name


def _values(value):
    """The types, or else the strings, of an `AttrValue`, one or a list."""
    if value.HasField("list"):
        return {*value.list.type} or {*value.list.s}
    return {value.s} if value.HasField("s") else {value.type}


PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def train_step_graph(precision, accumulate, strategy=None, **changes):
    """A `GraphDef`: the gradient by XLA, the update, the logs."""
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = Transformer(dropout=0.1, dtype=precision, **SIZES, **changes)
        how = dict(jit_compile=True, accumulate=accumulate)
        model.compile(Adam(), SmoothedCrossEntropy(0.1), **how)
        model.optimizer.build(model.trainable_variables)
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(autograph=False)
    def step(batch):
        return strategy.run(model.train_step, args=(batch,))

    return step.get_concrete_function(((ids, ids), ids)).graph.as_graph_def()


def main():
    split_processor()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {}
    for precision in PRECISIONS:
        graph_def = train_step_graph(precision, 2, strategy)
        # The one that adds up over GPUs as well.
        assert "CollectiveReduceV2" in {node.op for node in graph_def.node}
        found[precision] = sorted(missing_kernels(graph_def))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
