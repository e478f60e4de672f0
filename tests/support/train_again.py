"""Train nine toy runs, one after the other in one process.

A program of its own, for nothing else to hold memory:
python tests/support/train_again.py CORPUS FOLDER
FOLDER gets the runs. Prints JSON: the process's files, threads and memory in MB
after each.
"""

import gc
import json
import os
import pathlib
import sys

from sample_runs import digit_arguments, train_on_digits


def main(corpus, folder):
    after = []
    for i in range(9):
        run_dir = pathlib.Path(folder, str(i))
        argv = digit_arguments(corpus, run_dir, "--steps", "3")
        assert train_on_digits(*argv) == 0
        gc.collect()
        files, threads = (
            len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task")
        )
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        after.append([files, threads, pages * os.sysconf("SC_PAGE_SIZE") / 1e6])
    print(json.dumps(after))


if __name__ == "__main__":
    main(*sys.argv[1:])
