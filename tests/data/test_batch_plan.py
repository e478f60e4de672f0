"""The plan of batches stays what it was: runs that resume rely on it."""

import hashlib

import numpy as np
import pytest

from keras_transformer.data import batch_plan
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.records import Side, TokenisedCorpus


def random_corpus(pairs, seed, longest):
    """Lengths from integers alone, so that every machine draws the same."""
    random = np.random.default_rng(seed)
    source = random.integers(1, 41, pairs) * random.integers(1, 8, pairs) // 2
    target = source * random.integers(60, 160, pairs) // 100
    sides = (
        np.clip(side, 2, longest).astype(np.int32) for side in (source, target)
    )
    nothing = np.zeros(0, np.int64)
    return TokenisedCorpus(*(Side(nothing, side) for side in sides))


def digest(plan, epochs=(0, 1, 13)):
    found = hashlib.blake2b(digest_size=8)
    for epoch in epochs:
        for rows, source_length, target_length in plan.epoch(epoch):
            shape = [len(rows), source_length, target_length]
            found.update(np.array([*shape, *rows], "<i8").tobytes())
    return found.hexdigest()


# Written down from the code before `batch_plan.py`, which sorted all pairs at
# once and cut them one window at a time.
EARLIER = [
    # Corpus, tokens of a batch, other options, digest, number of batches.
    ((10007, 1, 256), 4096, {"seed": 3}, "a78c74ac986dba6a", 134),
    (
        *((10007, 1, 256), 1009),
        {"seed": 5, "length_growth": 1.15, "row_multiple": 3},
        *("f0a8aa0c6cfbe2dc", 595),
    ),
    ((10007, 2, 7919), 149, {"seed": 7}, "ff2ef3f5594e836e", 4161),
    ((503, 2, 7919), 4096, {"shuffle": False}, "c0cdefb2c6b9febf", 9),
    ((1, 3, 256), 1, {"seed": 2}, "e03f280792c490c2", 1),
    ((100003, 4, 97), 25000, {"seed": 11}, "a8c9435ba39376dc", 186),
]


@pytest.mark.parametrize("corpus, tokens, options, earlier, count", EARLIER)
def test_the_plan_is_that_of_earlier_versions(
    corpus, tokens, options, earlier, count, monkeypatch
):
    # Fewer than most corpora have, so that they come in several chunks.
    monkeypatch.setattr(batch_plan, "CHUNK", 4099)
    plan = BatchPlan(random_corpus(*corpus), tokens, **options)
    assert (digest(plan), len(plan)) == (earlier, count)
