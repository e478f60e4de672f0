"""Time OpenNMT-tf on a tokenised corpus, its own input pipeline included.

Runs in OpenNMT-tf's environment, started by benchmarks/training.py:
opennmt_multi30k.py FOLDER BATCH_TOKENS STEPS, where FOLDER holds source.txt,
target.txt and vocab.txt. With 0 BATCH_TOKENS it takes one fixed batch of
288 × 14 tokens. It times our `tiny`. `model` is also for opennmt_corpus.yml.
"""

import itertools
import os
import sys
import time
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import opennmt  # noqa: E402
import tensorflow as tf  # noqa: E402

VOCAB = 8_000


def model(dropout=0.2, pre_norm=True):
    embedders = (opennmt.inputters.WordEmbedder(128) for _ in range(2))
    return opennmt.models.Transformer(
        *embedders,
        num_layers=4,
        num_units=128,
        num_heads=4,
        ffn_inner_dim=256,
        dropout=dropout,
        attention_dropout=0.0,
        ffn_dropout=0.0,
        pre_norm=pre_norm,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )


def fixed_batches():
    random = np.random.default_rng(0)
    ids, ids_in, ids_out = (
        tf.constant(random.integers(3, VOCAB, (288, 14)), tf.int64)
        for _ in range(3)
    )
    length = tf.fill([288], 14)
    features = {"ids": ids, "length": length}
    labels = {"ids": ids_in, "ids_out": ids_out, "length": length}
    return tf.data.Dataset.from_tensors((features, labels)).repeat()


def main(folder, batch_tokens, steps):
    tiny, dataset = model(dropout=0.3, pre_norm=False), fixed_batches()
    vocabulary = f"{folder}/vocab.txt"
    tiny.initialize(
        {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary},
        params={"label_smoothing": 0.1},
    )
    if batch_tokens:
        dataset = tiny.examples_inputter.make_training_dataset(
            f"{folder}/source.txt",
            f"{folder}/target.txt",
            batch_tokens,
            batch_type="tokens",
            shuffle_buffer_size=40_000,
            length_bucket_width=1,  # As in its automatic configuration.
            maximum_features_length=100,
            maximum_labels_length=100,
        )
    optimizer = tf.keras.optimizers.legacy.Adam(1e-4, beta_2=0.98, epsilon=1e-9)

    @tf.function(input_signature=dataset.element_spec)
    def step(features, labels):
        with tf.GradientTape() as tape:
            outputs, _ = tiny(features, labels, training=True)
            loss, count = tiny.compute_loss(outputs, labels, training=True)[:2]
            loss = loss / count
        gradients = tape.gradient(loss, tiny.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, tiny.trainable_variables, strict=True)
        )
        return loss

    tokens = 0
    batches = itertools.islice(dataset, steps + 10)
    for i, (features, labels) in enumerate(batches):
        if i == 10:
            start, tokens = time.perf_counter(), 0
        float(step(features, labels))
        tokens += int(tf.reduce_sum(labels["length"]))
    seconds = time.perf_counter() - start
    print(f"OpenNMT-tf tiny: {tokens / seconds:.0f} target tokens/s")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
