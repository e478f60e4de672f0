"""Say which operations a training step on the CPU spends its time in.

    PYTHONPATH=. python benchmarks/profile_step.py base 32 32 32000
    PYTHONPATH=. python benchmarks/profile_step.py base 32 32 32000 2

Preset, rows, tokens a row, vocabulary, and replicas on this processor.
Milliseconds are summed over the threads, which run two operations at a time or
share one, so that they add up to more than the step.
"""

import collections
import pathlib
import sys
import tempfile

import tensorflow as tf
import training
from tensorflow.tsl.profiler.protobuf import xplane_pb2

STEPS = 3


def profile(preset, work, replicas):
    """Trace some steps of `fit`, and time one without the trace."""
    model, _, dataset = training.fixed_work(preset, work, replicas)
    seconds = training.seconds_in_fit(model, dataset, STEPS)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0)
        tf.profiler.experimental.stop()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        return xplane_pb2.XSpace.FromString(path.read_bytes()), seconds


def by_operation(space):
    """Sum milliseconds and calls a step by type of operation."""
    spent, calls = collections.Counter(), collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                _, _, kind = name.partition(":")  # NAME:OPERATION
                if kind[:1].isalpha() and "host" in plane.name:
                    kind = kind.split("#")[0].removeprefix("_Mkl")
                    spent[kind] += event.duration_ps / 1e9 / STEPS
                    calls[kind] += 1 / STEPS
    return spent, calls


def main():
    preset, *numbers = sys.argv[1:]
    *work, replicas = [int(n) for n in [*numbers, 1][:4]]
    space, seconds = profile(preset, work, replicas)
    spent, calls = by_operation(space)
    print(f"{seconds * 1e3:.0f} ms a step without the trace")
    for kind, milliseconds in spent.most_common(24):
        print(f"{kind:28s} {milliseconds:8.1f} ms {calls[kind]:6.0f} calls")
    print(f"{'all':28s} {sum(spent.values()):8.1f} ms")


if __name__ == "__main__":
    main()
