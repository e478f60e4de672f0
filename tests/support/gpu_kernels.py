"""The kernels that TensorFlow would use for a graph on a GPU.

The wheel on PyPI for Linux holds the kernels for GPUs, so a machine without one
can look them up in TensorFlow's registry.
"""

import collections
import functools
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

GPU, XLA = "GPU", "XLA_GPU_JIT"
# Functions keep int32, strings and resources on the host, as TensorFlow's
# `MTypeFromDType` says.
_HOST_TYPES = (tf.int32, tf.string, tf.resource)
_CALLS = ("PartitionedCall", "While", "If")


class Missing(NamedTuple):
    """An operator that no kernel runs."""

    device: str
    op: str
    types: tuple[str, ...]  # Its attributes that are dtypes.


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
        A set of `Missing`.
    """
    missing = set()
    for node, by_xla in _nodes(graph_def, roots):
        for device in (GPU, XLA) if by_xla else (GPU,):
            if not _kernel(node, device):
                types = (
                    t
                    for name in _type_names(node.op)
                    for t in _values(_attribute(node, name))
                )
                names = tuple(sorted({tf.as_dtype(t).name for t in types}))
                missing.add(Missing(device, node.op, names))
    return missing


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


def _kernel(node, device):
    """The `KernelDef` that a device would take, or None."""
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    for kind in (device, "DEFAULT"):
        fitting = [
            kernel
            for kernel in registry()[node.op]
            if kernel.device_type == kind
            and kernel.label == label
            and all(
                set(_values(_attribute(node, constraint.name)))
                <= set(_values(constraint.allowed_values))
                for constraint in kernel.constraint
            )
        ]
        if fitting:
            return max(fitting, key=lambda kernel: kernel.priority)
    return None


def _attribute(node, name):
    """An attribute, or its default, which a SavedModel leaves out."""
    if name in node.attr:
        return node.attr[name]
    attributes = op_def_registry.get(node.op).attr
    return next(a.default_value for a in attributes if a.name == name)


def _type_names(op):
    return [
        a.name
        for a in op_def_registry.get(op).attr
        if a.type in ("type", "list(type)")
    ]


def _values(value):
    """The types, or else the strings, of an `AttrValue`, one or a list."""
    if value.HasField("list"):
        return list(value.list.type) or list(value.list.s)
    return [value.s] if value.HasField("s") else [value.type]


def waits_for_device(function_def):
    """Find where a function computes on the host with values of the device.

    There the host waits for everything that the device still has to do.

    Returns:
        Pairs of operators: the one that gives and the one that takes, or
        `"argument"` and `"result"` for those of the function.
    """
    signature, nodes = function_def.signature, {}
    for node in function_def.node_def:
        nodes[node.name] = node
    on_host = {a.name: _is_host_type(a.type) for a in signature.input_arg}

    def source(name):
        node, *output = name.split(":")
        if not output:
            return "argument", on_host[node]
        names, places = zip(*_outputs(nodes[node]), strict=True)
        place = names.index(output[0]) + int(output[1])
        return nodes[node].op, places[place]

    waits = []
    for name in _live(function_def, nodes):
        given = [i for i in nodes[name].input if not i.startswith("^")]
        for each, wanted_on_host in zip(
            given, _inputs(nodes[name]), strict=True
        ):
            op, is_on_host = source(each)
            if wanted_on_host and not is_on_host:
                waits.append((op, nodes[name].op))
    for argument in signature.output_arg:
        op, is_on_host = source(function_def.ret[argument.name])
        if _is_host_type(argument.type) and not is_on_host:
            waits.append((op, "result"))
    return waits


def _is_host_type(dtype):
    return tf.as_dtype(dtype) in _HOST_TYPES


def _live(function_def, nodes):
    """Names of the nodes that a result, or something outside, depends on."""
    todo = [name.split(":")[0] for name in function_def.ret.values()]
    todo += function_def.control_ret.values()
    live = set()
    while todo:
        name = todo.pop().lstrip("^").split(":")[0]
        if name in nodes and name not in live:
            live.add(name)
            todo += nodes[name].input
    return live


def _inputs(node):
    """For each input, whether it must be on the host."""
    arguments = op_def_registry.get(node.op).input_arg
    return [on_host for _, on_host in _places(node, arguments)]


def _outputs(node):
    """For each output, its argument's name, and whether it is on the host."""
    return _places(node, op_def_registry.get(node.op).output_arg)


def _places(node, arguments):
    is_call = node.op.removeprefix("Stateful").removeprefix("Stateless")
    kernel = None if is_call in _CALLS else _kernel(node, GPU)
    places = []
    for argument in arguments:
        types = [argument.type]
        if argument.type_list_attr:
            types = _values(_attribute(node, argument.type_list_attr))
        elif argument.type_attr:
            types = _values(_attribute(node, argument.type_attr))
        if argument.number_attr:
            types *= _attribute(node, argument.number_attr).i
        for dtype in types:
            on_host = (
                _is_host_type(dtype)
                if is_call in _CALLS
                else kernel is None or argument.name in kernel.host_memory_arg
            )
            places.append((argument.name, on_host))
    return places
