"""A small run whose random model answers with senseless words."""

import functools

import numpy as np
import pytest
from sample_runs import make_run
from small import SIZES
from verbs import ENGLISH, GERMAN, SOURCES, write_lines

from keras_transformer import config
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.model import Transformer
from keras_transformer.runs import checkpoints
from keras_transformer.translation.translator import Translator


@pytest.fixture(scope="package")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for split in ("train", "test"):
        write_lines(folder / f"{split}.en", ENGLISH)
        write_lines(folder / f"{split}.de", GERMAN)
    return folder


def draw_weights(model, seed):
    """Weights that answer different sources with different words."""
    draw = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:  # Neither norms nor biases.
            weight.assign(draw.normal(0, 0.5, weight.shape))
    table = model.embedding.table.numpy()
    table[4:260] = 0  # No bytes: they would spell no words.
    model.embedding.table.assign(table)


@pytest.fixture(scope="package")
def run_dir(corpus, tmp_path_factory):
    """A run with two checkpoints."""
    path = tmp_path_factory.mktemp("run")
    tokenizer = Tokenizer.train(ENGLISH + GERMAN, 331, path / "tokenizer.model")
    sizes = {**SIZES, "vocab_size": tokenizer.vocab_size}
    make_run(config.ModelConfig(**sizes), corpus=str(corpus)).save(path)
    model = Transformer(**sizes)
    model.compile(optimizer="sgd", loss="mse")
    for step in (5, 7):
        draw_weights(model, seed=step)
        checkpoints.save_checkpoint(path, model, checkpoints.Progress(step))
    return path


# Loading and tracing take seconds: once for each checkpoint count is enough.
load_once = functools.cache(Translator.from_run)


@pytest.fixture(autouse=True)
def few_loads(monkeypatch):
    monkeypatch.setattr(Translator, "from_run", load_once)


@pytest.fixture(scope="package")
def translator(run_dir):
    return load_once(run_dir, 5)


@pytest.fixture
def source_file(tmp_path):
    path = tmp_path / "source.en"
    write_lines(path, SOURCES)
    return path
