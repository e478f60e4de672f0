"""Write a SavedModel of a run: a door to `keras-transformer export`.

Example:
    python export.py --run-dir runs/demo --output exported/demo
"""

import sys

from keras_transformer.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
