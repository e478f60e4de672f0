"""A model and a tokenizer as tensorflow.org's tutorial has them, not ours."""

import keras
import numpy as np
import tensorflow as tf


class WordPieces(tf.Module):
    """Splits words and puts `[START]` and `[END]` around every text."""

    def __init__(self, words):
        super().__init__()
        special = ["", "[UNK]", "[START]", "[END]"]
        self.words = tf.Variable([*special, *words.split()], trainable=False)
        self.size = len(special) + len(words.split())

    def tokenize(self, texts):
        words = tf.strings.split(texts)
        is_word = words.values[:, None] == self.words
        found = tf.argmax(tf.cast(is_word, tf.int32), axis=1)
        known = tf.reduce_any(is_word, axis=1)
        ids = words.with_values(tf.where(known, found, 1))
        rows = [words.nrows(), 1]
        begin, end = (tf.fill(rows, tf.constant(i, tf.int64)) for i in (2, 3))
        return tf.concat([begin, ids, end], axis=1)

    def detokenize(self, ids):
        words = tf.gather(self.words, ids)
        return tf.strings.reduce_join(words, axis=-1, separator=" ")


class Embedded(keras.layers.Layer):
    """Embeds ids, attaches the mask of padding, and adds positions."""

    def __init__(self, vocab_size, width):
        super().__init__()
        self.table = keras.layers.Embedding(vocab_size, width, mask_zero=True)
        rates = 10_000 ** (-np.arange(width // 2) / (width // 2))
        angles = np.arange(64)[:, None] * rates
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        self.waves = tf.constant(waves, tf.float32)

    def compute_mask(self, ids, mask=None):
        return self.table.compute_mask(ids)

    def call(self, ids):
        return self.table(ids) + self.waves[: tf.shape(ids)[1]]


class Block(keras.layers.Layer):
    """Attention to others or to itself, then a network, each normed."""

    def __init__(self, width, causal):
        super().__init__()
        self.supports_masking = True
        self.causal = causal
        self.own = keras.layers.MultiHeadAttention(2, width)
        self.other = keras.layers.MultiHeadAttention(2, width)
        self.dense = keras.Sequential(
            [keras.layers.Dense(13, "relu"), keras.layers.Dense(width)]
        )
        self.norms = [keras.layers.LayerNormalization() for _ in range(3)]

    def call(self, x, context=None):
        x = self.norms[0](x + self.own(x, x, use_causal_mask=self.causal))
        if context is not None:
            x = self.norms[1](x + self.other(query=x, value=context))
        return self.norms[2](x + self.dense(x))


class TutorialTransformer(keras.Model):
    """Maps `(context, x)` to logits, the masks attached to the tensors."""

    def __init__(self, source_size, target_size, width=6):
        super().__init__()
        self.source = Embedded(source_size, width)
        self.target = Embedded(target_size, width)
        self.encoder, self.decoder = Block(width, False), Block(width, True)
        self.last = keras.layers.Dense(target_size)

    def call(self, inputs):
        context, x = inputs
        context = self.encoder(self.source(context))
        return self.last(self.decoder(self.target(x), context))
