"""Corpora, models and run directories that tests share, each made once.

- `digits`: a corpus of numbers, digit by digit, in English and German words,
  and a run that the command has trained on it, and that has learnt it.
- `small`: a run of a random model, for all that a run can be asked.
- `tiny`: runs of a model too small to learn, with three checkpoints.
"""

import dataclasses
import functools
import random
import shutil

import keras
import numpy as np
import tensorflow as tf
from artifacts import made_once

from keras_transformer import config, presets
from keras_transformer.__main__ import main
from keras_transformer.config import ModelConfig, Search, TrainingConfig
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.exporting import saved_model
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.run import Run
from keras_transformer.runs import averaging, checkpoints
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.translator import Translator


def make_run(model: ModelConfig, training=None, **changes) -> RunConfig:
    """A run of the demo corpus and the preset `tiny`, except what is given."""
    settings = dict(
        preset="tiny",
        corpus="demo",
        requested_vocab_size=model.vocab_size,
        model=model,
        training=training or TrainingConfig(),
    )
    return RunConfig(**{**settings, **changes})


ENGLISH = "zero one two three four five six seven eight nine".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun".split()


def write_digits(folder, **sizes):
    """Write `SPLIT.en` and `SPLIT.de` with that many lines for each split."""
    source = random.Random(7)
    for split, size in sizes.items():
        rows = [
            [source.randrange(10) for _ in range(source.randint(2, 7))]
            for _ in range(size)
        ]
        for language, words in (("en", ENGLISH), ("de", GERMAN)):
            lines = [" ".join(words[i] for i in row) + "\n" for row in rows]
            path = folder / f"{split}.{language}"
            path.write_text("".join(lines), encoding="utf-8")
    return folder


def digit_arguments(corpus, run_dir, *more):
    """A command line: the demo preset, but small, so that it is soon traced."""
    words = """
        --preset demo --vocab-size 300 --num-layers 1 --d-model 34 --num-heads 2
        --ffn-dim 67 --batch-tokens 256 --dropout 0.1
    """.split()
    return [*words, f"--corpus={corpus}", f"--run-dir={run_dir}", *more]


def train_on_digits(*argv):
    """Return the exit code of the command."""
    return main(["train", *map(str, argv)])


# Distinct primes but for the width; keys and values of unlike width.
DIGIT_SIZES = dict(
    num_layers=2,
    d_model=34,
    num_heads=3,
    key_dim=11,
    value_dim=13,
    ffn_dim=67,
    dropout=0.0,
)


@made_once
def digit_text(folder):
    write_digits(folder, train=3_001, test=127, val=53)


@functools.cache
def digit_corpus():
    """Lines of the splits train and test, each a pair `(source, target)`."""
    return {
        split: tuple(
            (digit_text() / f"{split}.{language}")
            .read_text("utf-8")
            .split("\n")[:-1]
            for language in ("en", "de")
        )
        for split in ("train", "test")
    }


def digit_lines():
    """What a vocabulary of digits is learnt from."""
    return [line for side in digit_corpus()["train"] for line in side]


@functools.cache
def digit_tokenizer():
    return Tokenizer.load(digit_vocabulary() / "tokenizer.model")


@made_once
def digit_vocabulary(folder):
    Tokenizer.train(digit_lines(), 307, folder / "tokenizer.model")


@made_once
def digit_run(path, *languages):
    """Train by the command, or say that the run is of other languages."""
    if languages:
        shutil.copytree(digit_run(), path, dirs_exist_ok=True)
        source, target = languages
        run = RunConfig.load(path)
        run = dataclasses.replace(run, source_lang=source, target_lang=target)
        return run.save(path)
    sizes = [
        f"--{name.replace('_', '-')}={size}"
        for name, size in DIGIT_SIZES.items()
    ]
    words = """
        --preset demo --batch-tokens 512 --steps 1000 --warmup-steps 100
        --learning-rate-scale 0.25 --label-smoothing 0
        --checkpoint-every 50 --validation-steps 1000
    """.split()
    words += [f"--tokenizer={digit_vocabulary() / 'tokenizer.model'}", *sizes]
    words += [f"--corpus={digit_text()}", f"--run-dir={path}"]
    assert train_on_digits(*words) == 0


@functools.cache
def digit_translator():
    """Translates nearly every line right. Not to be changed."""
    return Translator(averaging.load(digit_run())[0], digit_tokenizer())


# So that an export is soon traced.
GREEDY = Search(beam_size=1, n_best=1, length_penalty=0.0, max_source_length=31)


@made_once
def quantized_export(path, dtype):
    """Export that translator as version 17, its weights stored in a type."""
    saved_model.export(
        *(digit_translator(), path, 17, GREEDY), precision=dtype, card=CARD
    )


WORDS = (
    "ein kleiner Hund läuft über die grüne Wiese und bellt laut "
    "a small dog runs across the meadow"
).split()
SMALL_SIZES = dict(
    num_layers=2,
    d_model=14,
    num_heads=3,
    key_dim=5,
    value_dim=7,
    ffn_dim=17,
    dropout=0.1,
)
OPTIONS = Search(
    beam_size=5, length_penalty=0.9, n_best=3, max_source_length=11
)
CARD = ModelCard("de", "en", "tiny", "demo", 12_990, "step-000000007 00000000")


@made_once
def small_run(path):
    """Fill a run directory with one checkpoint of a small random model."""
    keras.utils.set_random_seed(1)
    draw = np.random.default_rng(0)
    tokenizer = Tokenizer.train(
        [" ".join(draw.choice(WORDS, draw.integers(2, 9))) for _ in range(300)],
        331,
        path / "tokenizer.model",
    )
    sizes = dict(vocab_size=tokenizer.vocab_size, **SMALL_SIZES)
    make_run(config.ModelConfig(**sizes)).save(path)
    model = Transformer(**sizes)
    # Fresh logits are all alike.
    model.embedding.table.assign(2 * model.embedding.table)
    model.compile(optimizer="sgd", loss="mse")
    checkpoints.save_checkpoint(path, model, checkpoints.Progress(step=7))


@made_once
def small_export(path):
    """Export that run as version 17."""
    translator = Run(small_run()).translator(average=1)
    # Makes TensorFlow unload the vocabulary; it must be written all the same.
    keras.utils.set_random_seed(1)
    saved_model.export(translator, path, 17, OPTIONS, card=CARD)


TINY = config.ModelConfig(
    vocab_size=23,
    num_layers=1,
    d_model=6,
    num_heads=2,
    key_dim=3,
    value_dim=5,
    ffn_dim=7,
    dropout=0.2,
)


def make_tiny_model(seed):
    keras.utils.set_random_seed(seed)
    model = Transformer(**dataclasses.asdict(TINY))
    model.compile(
        keras.optimizers.Adam(0.01),
        SmoothedCrossEntropy(0.1),
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def tiny_batches(steps):
    random = np.random.default_rng(11)
    source, target = random.integers(4, 23, (2, 5 * steps, 7))
    target_in = np.concatenate([np.full((5 * steps, 1), 2), target[:, :-1]], 1)
    pairs = ((source, target_in), target)
    return tf.data.Dataset.from_tensor_slices(pairs).batch(5)


def fit_tiny_model(model, steps, callbacks=()):
    model.fit(
        tiny_batches(steps), shuffle=False, verbose=0, callbacks=callbacks
    )


@made_once
def tiny_run(path):
    """Fill a folder as `write_tiny_run` does."""
    write_tiny_run(path)


def write_tiny_run(run_dir):
    """Write three checkpoints of other weights each; those of their seeds."""
    preset = presets.PRESETS["tiny"]
    make_run(TINY, preset.training).save(run_dir)
    for step in (1, 2, 3):
        checkpoints.save_checkpoint(
            run_dir, make_tiny_model(step), Progress(step)
        )
    return run_dir
