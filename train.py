"""Train a Transformer: a door to `keras-transformer train`.

Example:
    python train.py --preset demo --corpus demo --run-dir runs/demo
"""

import sys

from keras_transformer.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
