"""A small run whose random model answers with senseless words."""

import pytest
from sample_runs import make_run
from small_models import SIZES
from verb_calls import ENGLISH, GERMAN, SOURCES, draw_weights, write_lines

from keras_transformer import config
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.model import Transformer
from keras_transformer.run import Run
from keras_transformer.runs import checkpoints
from keras_transformer.runs.weights import Weights
from keras_transformer.translation import translator as loading


@pytest.fixture(scope="package")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for split in ("train", "test"):
        write_lines(folder / f"{split}.en", ENGLISH)
        write_lines(folder / f"{split}.de", GERMAN)
    return folder


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
load, loaded = loading.load, {}


def load_once(runs, weights):
    key = (*(path for path, _ in runs), weights)
    if key not in loaded:
        loaded[key] = load(runs, weights)
    return loaded[key]


@pytest.fixture(autouse=True)
def few_loads(monkeypatch):
    monkeypatch.setattr(loading, "load", load_once)


@pytest.fixture(scope="package")
def translator(run_dir):
    return load_once(Run(run_dir).runs, Weights())


@pytest.fixture
def source_file(tmp_path):
    path = tmp_path / "source.en"
    write_lines(path, SOURCES)
    return path
