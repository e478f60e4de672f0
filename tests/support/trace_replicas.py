"""Trace a training step on two replicas; print what no GPU kernel runs.

A program of its own, because logical devices must be set before TensorFlow
starts: python tests/support/trace_replicas.py prints JSON, for each precision a
list of [device, operator, types].
"""

import json

import tensorflow as tf
from gpu_kernels import missing_kernels
from local_workers import split_processor
from traced_training import PRECISIONS, train_step_graph


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
