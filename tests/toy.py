"""A translator that has learnt the toy corpus of `digits.py`, in seconds."""

import functools
import pathlib
import tempfile

import keras
from digits import write_digits

from keras_transformer.config import BOS_ID
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.translation.translator import Translator

# Distinct primes but for the width; keys and values of unlike width.
SIZES = dict(
    num_layers=2,
    d_model=34,
    num_heads=3,
    key_dim=11,
    value_dim=13,
    ffn_dim=67,
    dropout=0.0,
    max_positions=19,
)


@functools.cache
def corpus():
    """Lines of the splits train and test, each a pair `(source, target)`."""
    with tempfile.TemporaryDirectory() as folder:
        folder = write_digits(pathlib.Path(folder), train=3_001, test=127)
        return {
            split: tuple(
                (folder / f"{split}.{language}").read_text("utf-8").splitlines()
                for language in ("en", "de")
            )
            for split in ("train", "test")
        }


@functools.cache
def tokenizer():
    with tempfile.TemporaryDirectory() as folder:
        return Tokenizer.train(
            [line for side in corpus()["train"] for line in side],
            307,
            pathlib.Path(folder, "tokenizer.model"),
        )


@functools.cache
def translator(positions="sinusoidal"):
    """Translates nearly every line right. Not to be changed."""
    words = tokenizer()
    source, target = (
        words.tokenize(lines).to_tensor() for lines in corpus()["train"]
    )
    target_in = keras.ops.pad(
        target[:, :-1], [[0, 0], [1, 0]], constant_values=BOS_ID
    )
    keras.utils.set_random_seed(1)
    model = Transformer(
        vocab_size=words.vocab_size, positions=positions, **SIZES
    )
    epochs, batch = 10, 64
    rate = keras.optimizers.schedules.CosineDecay(
        3e-3, epochs * len(source) // batch
    )
    model.compile(keras.optimizers.Adam(rate), SmoothedCrossEntropy(0.0))
    model.fit(
        (source, target_in), target, batch_size=batch, epochs=epochs, verbose=0
    )
    return Translator(model, words)
