"""Measure table 1 of the paper: what a layer costs as a sequence grows.

    PYTHONPATH=. python benchmarks/layers.py --results R.json --picture P.png

One sequence of n positions of width 512 goes through a layer of Keras's, or of
this package's, forward and with the gradients of input and weights. Each layer
runs in two processes of its own, one that is timed and one whose memory is
read. What was measured is kept in R.json, from which the tables and the
picture are made. The same command again times once more, and the shortest time
of each length is kept; --rounds 0 does not.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import time

import measuring
from measuring import json_of, memory, parser_of

WIDTH = 512
HEADS = 8
KERNEL = 3
RESTRICTION = 64
LENGTHS = [2**i for i in range(4, 14)]  # 16 to 8,192
# Of these the exponents are fitted: what n does not change weighs little.
FITTED = [n for n in LENGTHS if n >= 2048]
PASSES = ("forward", "gradient")
# Seconds in which a pass is repeated, and how often at most.
PATIENCE, MOST = 1.0, 20
# At these, operations that wait for each other are counted, and layers to reach
# the far end, for a narrow layer and r = 9.
STRUCTURE_LENGTHS = (9, 17, 33)
# 1 + 3 + 9 positions lie between the ends of 14, 1 + 3 + 9 + 27 of 41.
DILATED_LENGTHS = (14, 41, 122)

# Operations of a layer, as in table 1.
PAPER = {
    "self-attention": "n² d",
    "self-attention, Keras": "n² d",
    "restricted": "r n d",
    "LSTM": "n d²",
    "convolution": "k n d²",
    "separable convolution": "k n d + n d²",
}


def make_layer(name, width=WIDTH, restriction=RESTRICTION, dilation=1, **more):
    """Make a layer that maps `(1, n, width)` to the same shape."""
    import keras

    from keras_transformer.layers import MultiHeadAttention

    unroll = more.pop("unroll", False)
    heads = dict(num_heads=HEADS, key_dim=width // HEADS, **more)
    if name == "self-attention":
        return MultiHeadAttention(**heads)
    if name == "self-attention, Keras":
        return keras.layers.MultiHeadAttention(**heads, use_bias=False)
    if name == "restricted":
        return MultiHeadAttention(**heads, restriction=restriction)
    if name == "LSTM":
        more |= dict(return_sequences=True, unroll=unroll)
        return keras.layers.LSTM(width, **more)
    kinds = keras.layers.Conv1D, keras.layers.SeparableConv1D
    more |= dict(padding="same", dilation_rate=dilation)
    return kinds["separable" in name](width, KERNEL, **more)


def called(layer, inputs):
    """Call a layer; attention attends from the sequence to itself."""
    if "Attention" in type(layer).__name__:
        return layer(inputs, inputs)
    return layer(inputs)


def graphs(name):
    """Trace both passes for any length; each graph returns one number."""
    import tensorflow as tf

    layer = make_layer(name)
    called(layer, tf.zeros([1, 16, WIDTH]))
    signature = [tf.TensorSpec([1, None, WIDTH])]

    def forward(inputs):
        return tf.reduce_sum(called(layer, inputs))

    def gradient(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            # Of squares, or attention's weights would have no gradient.
            loss = tf.reduce_sum(tf.square(called(layer, inputs)))
        found = tape.gradient(loss, [inputs, *layer.trainable_variables])
        return tf.add_n([tf.reduce_sum(one) for one in found])

    functions = (forward, gradient)
    return {
        kind: tf.function(function, input_signature=signature, autograph=False)
        for kind, function in zip(PASSES, functions, strict=True)
    }


def measure_seconds(name):
    """Time both passes, the shortest of a few runs, or one long run."""
    import tensorflow as tf

    found = {}
    for kind, graph in graphs(name).items():
        graph(tf.zeros([1, 16, WIDTH]))
        found[kind] = []
        for n in LENGTHS:
            inputs = tf.random.normal([1, n, WIDTH], seed=n)
            start, times = time.perf_counter(), []
            while len(times) < MOST and time.perf_counter() - start < PATIENCE:
                before = time.perf_counter()
                graph(inputs).numpy()
                times.append(time.perf_counter() - before)
            found[kind].append(min(times))
    return found


def measure_megabytes(name):
    """Measure how much each run raises the peak resident memory.

    Each in a process of its own, since TensorFlow keeps what it once had; all
    are forked from one that has imported it and begun nothing.
    """
    import numpy as np
    import tensorflow as tf

    from keras_transformer import layers  # noqa: F401

    def peak(kind, n):
        graph = graphs(name)[kind]
        graph(tf.zeros([1, 16, WIDTH]))
        # By NumPy: TensorFlow would keep, and use again, what that takes.
        inputs = np.random.default_rng(n).normal(size=[1, n, WIDTH])
        inputs = tf.constant(inputs.astype("float32"))
        measuring.forget_peak()
        before = memory("VmRSS")
        graph(inputs).numpy()
        return (memory("VmHWM") - before) / 2**20

    return {kind: [forked(peak, kind, n) for n in LENGTHS] for kind in PASSES}


def forked(function, *args):
    """Call a function in a child of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(function(*args)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        found = file.read()
    os.waitpid(child, 0)
    return json.loads(found)


def chain(name, n):
    """Count the matrix products that wait for each other."""
    import tensorflow as tf

    layer = make_layer(name, width=16, unroll=True)
    called(layer, tf.zeros([1, n, 16]))
    function = tf.function(lambda inputs: called(layer, inputs))
    graph = function.get_concrete_function(tf.TensorSpec([1, n, 16])).graph
    longest = {}
    for operation in graph.get_operations():  # What it needs came before it.
        before = [longest[tensor.op.name] for tensor in operation.inputs]
        product = re.search("MatMul|Conv|Einsum", operation.type)
        longest[operation.name] = max(before, default=0) + bool(product)
    return max(longest.values())


def layers_to_reach(name, n, dilated=False):
    """Count the fewest layers from the first input to the last output.

    By its gradient. Dilated, each layer looks as many times farther as the
    kernel is wide.
    """
    import tensorflow as tf

    x = inputs = tf.random.normal([1, n, 16], seed=1, dtype="float64")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        for count in range(1, n + 1):
            layer = make_layer(
                name,
                width=16,
                restriction=9,
                dilation=KERNEL ** (count - 1) if dilated else 1,
                dtype="float64",
            )
            x = called(layer, x)
            with tape.stop_recording():
                last = tf.one_hot([[n - 1]], n, axis=1, dtype="float64")
                found = tape.gradient(x, inputs, last * tf.ones_like(x))
            if tf.reduce_any(found[:, 0] != 0):
                return count
    return None


def structure(name):
    """Measure what depends only on the layer, not on the machine."""
    found = {
        "chain": [chain(name, n) for n in STRUCTURE_LENGTHS],
        "layers": [layers_to_reach(name, n) for n in STRUCTURE_LENGTHS],
    }
    if "convolution" in name:
        found["dilated"] = [
            layers_to_reach(name, n, dilated=True) for n in DILATED_LENGTHS
        ]
    return found


KINDS = {
    "seconds": measure_seconds,
    "megabytes": measure_megabytes,
    "structure": structure,
}


def exponent(values):
    """Fit the slope of a line through the last lengths, both logarithmic."""
    import numpy as np

    fitted = len(LENGTHS) - len(FITTED)
    return np.polyfit(np.log(FITTED), np.log(values[fitted:]), 1)[0]


def tables(results):
    """Write times, memory and structure in Markdown."""
    for kind in ("seconds", "megabytes"):
        for one in PASSES:
            print(f"\n{kind}, {one}\n")
            measuring.print_head("layer", *(f"{n:,}" for n in LENGTHS), "n^")
            for name, found in results.items():
                values = found[kind][one]
                cells = [f"{value:.3g}" for value in values]
                measuring.print_row(name, *cells, f"{exponent(values):.2f}")
    print(f"\nat n = {STRUCTURE_LENGTHS}, dilated {DILATED_LENGTHS}\n")
    for name, found in results.items():
        print(name, found["structure"])


def picture(results, path):
    """Time and memory against length, with exponents."""
    figure, panels = measuring.subplots(2, 2, figsize=(11, 9))
    for row, kind in zip(panels, ("seconds", "megabytes"), strict=True):
        for axes, one in zip(row, PASSES, strict=True):
            for name, found in results.items():
                values = found[kind][one]
                axes.loglog(
                    LENGTHS,
                    values,
                    "o-",
                    base=2,
                    markersize=3,
                    label=f"{name}: n^{exponent(values):.2f}"
                    + (f", paper {PAPER[name]}" if kind == "seconds" else ""),
                )
            if kind == "megabytes":  # Below, TensorFlow had it already.
                axes.set_ylim(bottom=1)
            axes.axvline(WIDTH, color="k", linestyle=":", linewidth=1)
            axes.set_title(f"{kind}, {one}")
            axes.set_xlabel("positions n (dotted: n = d)")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
    figure.savefig(path, dpi=100)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    rounds = "how often all layers are timed in turn; default: %(default)s"
    parser.add_argument("--rounds", type=int, default=1, help=rounds)
    parser.add_argument("--layer", choices=PAPER, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.layer:
        print(json.dumps(KINDS[args.kind](args.layer)))
        return
    if not args.results:
        parser.error("--results is needed")
    results = {}
    if args.results.exists():
        results = json.loads(args.results.read_text())
    for kind in ["structure", "megabytes", *["seconds"] * args.rounds]:
        for name in PAPER:
            found = results.setdefault(name, {})
            if kind != "seconds" and kind in found:
                continue
            new = json_of(__file__, "--layer", name, "--kind", kind)
            if kind in found:  # The shortest of all rounds.
                new = {
                    one: list(map(min, new[one], found[kind][one]))
                    for one in PASSES
                }
            found[kind] = new
            print(name, kind, new, file=sys.stderr, flush=True)
            args.results.write_text(json.dumps(results, indent=1))
    tables(results)
    if args.picture:
        picture(results, args.picture)


if __name__ == "__main__":
    main()
