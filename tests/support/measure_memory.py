"""Print the peak memory, in bytes, of a process that takes three steps.

Run by test_estimates.py: the peak of a process never falls, so each shape
needs one of its own.
"""

import json
import pathlib
import re
import sys

import keras
import numpy as np

from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer


def main(sizes, shape):
    rows, source_length, target_length = shape
    model = Transformer(**sizes)
    model.compile(
        keras.optimizers.Adam(), SmoothedCrossEntropy(0.1), jit_compile=False
    )
    source, target_in, target = (
        np.random.default_rng(1).integers(4, sizes["vocab_size"], (rows, n))
        for n in (source_length, target_length, target_length)
    )
    for _ in range(3):
        model.fit((source, target_in), target, batch_size=rows, verbose=0)
    print(1024 * peak_kibibytes())


def peak_kibibytes():
    # Not `ru_maxrss`, which starts at the size of the process that forked.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]))
