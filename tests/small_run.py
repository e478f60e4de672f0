"""A run directory of a small random model, and how the tests export it."""

import keras
import numpy as np
from run_config import make_run

from keras_transformer import config
from keras_transformer.config import Search
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.model import Transformer
from keras_transformer.runs import checkpoints
from keras_transformer.translation.model_card import ModelCard

WORDS = (
    "ein kleiner Hund läuft über die grüne Wiese und bellt laut "
    "a small dog runs across the meadow"
).split()
SIZES = dict(
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


def write_run(path):
    """A run directory with one checkpoint of a small random model."""
    keras.utils.set_random_seed(1)
    draw = np.random.default_rng(0)
    tokenizer = Tokenizer.train(
        [" ".join(draw.choice(WORDS, draw.integers(2, 9))) for _ in range(300)],
        331,
        path / "tokenizer.model",
    )
    sizes = dict(vocab_size=tokenizer.vocab_size, **SIZES)
    make_run(config.ModelConfig(**sizes)).save(path)
    model = Transformer(**sizes)
    # Fresh logits are all alike.
    model.embedding.table.assign(2 * model.embedding.table)
    model.compile(optimizer="sgd", loss="mse")
    checkpoints.save_checkpoint(path, model, checkpoints.Progress(step=7))
    return path
