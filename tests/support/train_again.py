"""Train toy runs one after the other in one process, on two devices.

A program of its own, because logical devices must be set before TensorFlow
starts: python tests/support/train_again.py CORPUS FOLDER STRATEGY DROPOUT...
FOLDER gets a run for each rate of dropout. Prints JSON: the process's files,
threads and memory in MB after each run.
"""

import ctypes
import gc
import json
import os
import pathlib
import sys

from local_workers import split_processor
from sample_runs import digit_arguments, train_on_digits


def main(corpus, folder, strategy, *rates):
    split_processor()
    after = []
    for i, rate in enumerate(rates):
        run_dir = pathlib.Path(folder, str(i))
        options = ["--steps", "3", "--strategy", strategy, "--dropout", rate]
        assert train_on_digits(*digit_arguments(corpus, run_dir, *options)) == 0
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # What is free is no leak.
        files, threads = (
            len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task")
        )
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        after.append([files, threads, pages * os.sysconf("SC_PAGE_SIZE") / 1e6])
    print(json.dumps(after))


if __name__ == "__main__":
    main(*sys.argv[1:])
