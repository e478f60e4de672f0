"""train.py on the toy corpus of `digits.py`, in this process."""

from keras_transformer.__main__ import main


def arguments(corpus, run_dir, *more):
    """A command line: the demo preset, but small, so that it is soon traced."""
    return [
        *("--preset", "demo", "--corpus", str(corpus)),
        *("--run-dir", str(run_dir), "--vocab-size", "300"),
        *("--num-layers", "1", "--d-model", "34", "--num-heads", "2"),
        *("--ffn-dim", "67", "--batch-tokens", "256", "--dropout", "0.1"),
        *more,
    ]


def run(*argv):
    """Returns what the command exits with."""
    return main(["train", *map(str, argv)])
