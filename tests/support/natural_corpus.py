"""Corpora of ids that tell their sentence, with lengths like those of text."""

import itertools

import numpy as np

from keras_transformer.data.records import Side, TokenisedCorpus

EOS = 3


def side(lengths, first_id=11):
    """A side whose every token tells its sentence: `first_id` + row."""
    rows = [
        [first_id + row] * (length - 1) + [EOS]
        for row, length in enumerate(lengths)
    ]
    lengths = np.array(lengths)
    return Side(
        np.array(list(itertools.chain(*rows))),
        lengths,
        np.cumsum(lengths) - lengths,
    )


def corpus(source_lengths, target_lengths):
    return TokenisedCorpus(side(source_lengths), side(target_lengths))


def natural_corpus(pairs=5003, seed=7):
    """Lengths spread like those of sentences and their translations."""
    random = np.random.default_rng(seed)
    base = random.lognormal(2.7, 0.4, pairs)
    sides = base * random.lognormal(0, 0.13, (2, pairs))
    return corpus(*np.clip(sides, 2, 61).astype(int))
