"""Your own `tf.data` and `fit`: two lists of texts, a model, a translation.

    python examples/own_data.py

You only need to know what a batch looks like; `kt.batch` makes it from texts.
`target_in` begins with `tokenizer.bos_id`, `target_out` ends with
`tokenizer.eos_id`, both are filled with `tokenizer.pad_id`.
"""

import pathlib
import tempfile

import keras
import tensorflow as tf

import keras_transformer as kt

DIGITS = {
    "zero": "null",
    "one": "eins",
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "six": "sechs",
    "seven": "sieben",
    "eight": "acht",
    "nine": "neun",
}


def main() -> list[str]:
    """Train on rows of three digits; translate two."""
    keras.utils.set_random_seed(1)
    rows = [(a, b, c) for a in DIGITS for b in DIGITS for c in DIGITS]
    sources = [" ".join(row) for row in rows]
    targets = [" ".join(DIGITS[word] for word in row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = kt.Tokenizer.train(
            sources + targets, 320, pathlib.Path(folder, "tokenizer.model")
        )
    print(tokenizer)

    dataset = tf.data.Dataset.from_tensor_slices((sources, targets))
    dataset = dataset.shuffle(1_000, seed=1).batch(50)
    dataset = dataset.map(lambda s, t: kt.batch(s, t, tokenizer))

    model = kt.Transformer(
        tokenizer.vocab_size,
        num_layers=1,
        d_model=64,
        num_heads=2,
        ffn_dim=128,
        dropout=0.0,
        norm_first=True,
    )
    model.compile(
        kt.Adam(2e-3),
        loss=kt.SmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy()],
    )
    model.fit(dataset, epochs=20, verbose=2)
    translator = kt.Translator(model, tokenizer)
    return translator.translate(["three one four", "one five nine"])


if __name__ == "__main__":
    print(main())
