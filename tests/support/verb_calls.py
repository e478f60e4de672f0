"""Verbs of the command line in this process, and texts to give them."""

import io
import sys

import numpy as np

from keras_transformer import __main__
from keras_transformer.runs.weights import Weights
from keras_transformer.translation.translator import Hypothesis

ENGLISH = [
    "a small dog runs across the meadow",
    "the dog barks",
    "",
    "the meadow and the small dog and the other dog " * 2,
    "a dog",
]
GERMAN = [
    "ein kleiner Hund läuft über die Wiese",
    "der Hund bellt",
    "die Wiese",
    "die Wiese und der Hund-und-Wiese-Verein und der andere Hund",
    "",
]
# Also what other readers take for line ends: U+0085 and U+2028.
SOURCES = [*ENGLISH, " \t", "the dog\x85and the\u2028dog", "the dog barks"]


def draw_weights(model, seed):
    """Weights that answer different sources with different words."""
    draw = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:  # Neither norms nor biases.
            weight.assign(draw.normal(0, 0.5, weight.shape))
    table = model.embedding.table.numpy()
    table[4:260] = 0  # No bytes: they would spell no words.
    model.embedding.table.assign(table)


def write_lines(path, sentences):
    path.write_bytes("".join(line + "\n" for line in sentences).encode())


def rows_of(captured):
    """The lines of standard output, without the end of the last."""
    return captured.readouterr().out.decode().split("\n")[:-1]


def run(verb, run_dir, *more):
    argv = [verb, "--run-dir", *map(str, (run_dir, *more))]
    return __main__.main(argv)


def refused(capsys, verb, run_dir, *more):
    """What a verb that is wrong says, which is one sentence."""
    assert run(verb, run_dir, *more) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    return error


def give(monkeypatch, content):
    """Let standard input hold some bytes."""
    stdin = io.TextIOWrapper(io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", stdin)


def replace_translator(
    monkeypatch, translate=lambda texts: [[Hypothesis("a", 0.0)]] * len(texts)
):
    """Let a function translate; return the search that it was given."""
    given = {}

    class Replacement:
        weights = Weights()

        def search_texts(
            self, texts, search, batching, prefixes, split_sentences, terms
        ):
            given.update(search=search, prefixes=prefixes)
            given.update(parallel=batching.parallel)
            return translate(texts), np.zeros(len(texts), bool)

    home = "keras_transformer.translation.translator.load"
    monkeypatch.setattr(home, lambda *_: Replacement())
    return given


def on_one_line(text):
    for end in "\n\r\t":
        text = text.replace(end, " ")
    return text
