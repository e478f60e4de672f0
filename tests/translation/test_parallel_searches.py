"""Searches at the same time: how many, in which order, and how they end."""

import threading
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
from hypotheses import assert_alike
from sample_runs import SMALL_SIZES
from verb_calls import draw_weights
from waiting import until

from keras_transformer.config import Sampling, Search
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.translation import text_batches
from keras_transformer.translation.text_batches import Batching, batches
from keras_transformer.translation.translator import Translator


@pytest.mark.parametrize(
    "cores, d_model, threads, texts, expected",
    [
        # A thread each, however wide: 2,048 in all.
        (16, 512, 1, None, 4),
        (64, 128, 1, None, 16),
        # Operators of as many threads as there are cores.
        (16, 512, 4, None, 4),
        # Too few texts to share.
        (2, 128, 2, 31, 1),
    ],
)
def test_cores_width_and_texts_decide(cores, d_model, threads, texts, expected):
    assert devices.searches(cores, d_model, threads, texts) == expected


def test_whoever_takes_the_results_may_stop(monkeypatch):
    begun = []
    released = threading.Event()

    class Pool(futures.ThreadPoolExecutor):
        def __exit__(self, *error):
            released.set()  # What waits has been dropped.
            return super().__exit__(*error)

    monkeypatch.setattr(text_batches, "ThreadPoolExecutor", Pool)

    def search(rows):
        begun.append(int(rows[0]))
        if begun[-1]:
            released.wait(120)

    rows = tf.range(97)
    found = Batching().run(search, [rows], np.arange(97)[:, None], 0, 2)
    assert next(found) == (0, None)
    until(lambda: len(begun) == 3)  # 1 and 2 run at once, and 3 waits.
    with pytest.raises(KeyboardInterrupt):
        found.throw(KeyboardInterrupt)
    assert sorted(begun) == [0, 1, 2]
    assert not [t for t in threading.enumerate() if t.name.startswith("search")]


def test_batches_for_one_at_a_time_fill_the_budget():
    lengths = np.array([3, 7, 5, 2, 5])
    found = batches(np.arange(5), lengths, lengths, 14)
    # 7 and 5 take 2 × 7; a row more beside 5 and 3 would take 3 × 5 = 15.
    assert [[*map(int, rows)] for rows in found] == [[1, 2], [4, 0], [3]]


@pytest.fixture(scope="module")
def translator(small_translator):
    """Answers different sources with different words, senseless ones."""
    tokenizer = small_translator.tokenizer
    model = Transformer(vocab_size=tokenizer.vocab_size, **SMALL_SIZES)
    draw_weights(model, seed=5)
    return Translator(model, tokenizer)


@pytest.fixture(scope="module")
def texts():
    words = "one four six seven hundred and".split()
    draw = np.random.default_rng(7)
    lines = [" ".join(draw.choice(words, 1 + i % 7)) for i in range(37)]
    return [*lines, "", "nine"]


@pytest.mark.parametrize(
    "options",
    [
        Search(beam_size=3, n_best=2, max_length=7),
        Search(n_best=2, max_length=7, sampling=Sampling(seed=3)),
    ],
)
def test_translations_do_not_depend_on_how_many_run(translator, texts, options):
    def n_best(at_once):
        return translator.search_texts(
            texts,
            options,
            Batching(211, at_once),
            prefixes=["eins" if i % 2 else "" for i in range(len(texts))],
        )[0]

    expected = n_best(1)
    assert len({round(best.score, 3) for best, *_ in expected}) > 25
    for at_once in (2, 3, None):
        assert_alike(n_best(at_once), expected)


def test_progress_is_told_in_the_thread_of_the_caller(translator, texts):
    heard = []

    def progress(done, total):
        heard.append((threading.current_thread(), done, total))

    translator.translate(
        texts, max_length=7, batch_tokens=211, parallel=3, progress=progress
    )
    callers, done, totals = zip(*heard, strict=True)
    assert set(callers) == {threading.main_thread()}
    assert len(done) > 5 and list(done) == sorted(set(done))
    assert done[-1] == len(texts) and set(totals) == {len(texts)}
