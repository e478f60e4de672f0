"""The search with shared, in-place caches against a search by definition."""

import keras
import numpy as np
import pytest
import sample_runs
import tensorflow as tf
from model_searches import (
    LIMITS,
    SOURCE,
    graph_of,
    graph_of_model,
    make_model,
    search_with,
    simple,
)
from simple_search import (
    EOS,
    PAD,
    as_hypotheses,
    assert_same,
    log_softmax,
    plain_beam_search,
)

from keras_transformer.decoding.beam_search import Shared, beam_search
from keras_transformer.decoding.cached_steps import extended, writer


@pytest.fixture(scope="module")
def model():
    return make_model()


class WholeTargets:
    """The model without a cache: every prefix from its start."""

    def __init__(self, model, source):
        self.model, self.source, self.known = graph_of_model(model), source, {}

    def log_probs(self, sentence, prefix):
        key = sentence, prefix
        if key not in self.known:
            target = np.array([[2, *prefix]], "int32")
            source = self.source[sentence : sentence + 1]
            logits = self.model(source, target)
            self.known[key] = log_softmax(np.asarray(logits)[0, -1])
        return self.known[key]


@pytest.mark.slow
@pytest.mark.parametrize("beam_size, n_best", [(1, 1), (2, 2), (3, 2)])
def test_it_finds_what_the_search_by_definition_finds(model, beam_size, n_best):
    # Ends are banned before the tenth token, so that beams have time to branch.
    options = dict(n_best=n_best, min_length=10)
    whole = WholeTargets(model, SOURCE)
    limits = [23, 2, 19, 18, 7]

    found = graph_of(model, beam_size, **options)(SOURCE, limits)

    for sentence, limit in enumerate(limits):
        if beam_size == 1:
            expected = [greedy(whole, sentence, limit, 10)]
        else:
            expected = plain_beam_search(
                whole, sentence, limit, beam_size, 0.6, **options
            )
        assert_same(as_hypotheses(found, sentence), expected, 1e-4)


def greedy(whole, sentence, limit, min_length, alpha=0.6):
    ids, log_prob = (), 0.0
    while len(ids) < limit and EOS not in ids:
        log_probs = whole.log_probs(sentence, ids)
        allowed = log_probs.copy()
        allowed[[0, 2]] = -np.inf
        if len(ids) + 1 < min_length:
            allowed[EOS] = -np.inf
        ids = (*ids, int(np.argmax(allowed)))
        log_prob += log_probs[ids[-1]]
    return ids, log_prob / ((5 + len(ids)) / 6) ** alpha


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_length": 18, "length_penalty": 1.1},
        {"no_repeat_ngram": 2, "banned_ids": (4, 5)},
        {"prefix": [[9, 9], [4, 0], [0, 0], [7, 0], [21, 1]]},
    ],
)
def test_it_finds_what_the_search_without_caches_finds(model, options):
    options = {**options, "n_best": 3}
    expected = simple(model, SOURCE, LIMITS, 4, **options)
    for found in (
        search_with(model, SOURCE, LIMITS, 4, **options),
        graph_of(model, 4, **options)(SOURCE, LIMITS),
    ):
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


@pytest.mark.slow
def test_a_trained_model_writes_what_it_writes_without_caches():
    translator = sample_runs.digit_translator()
    texts, right = sample_runs.digit_corpus()["test"]
    source = translator.tokenizer.tokenize(texts[:32]).to_tensor(PAD).numpy()
    limits = (source != PAD).sum(axis=1) + 13
    options = dict(n_best=4, length_penalty=0.6)

    found = search_with(translator.model, source, limits, 4, **options)

    expected = simple(translator.model, source, limits, 4, **options)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    best = translator.tokenizer.detokenize(found.ids[:, 0]).numpy()
    # Otherwise both might agree on nonsense.
    assert sum(a.decode() == b for a, b in zip(best, right, strict=False)) > 20


def test_nothing_written_in_place_is_left_for_the_next_run(model):
    # A batch of known size is what a constant could be folded from.
    other = np.where(SOURCE == PAD, PAD, SOURCE[::-1, :].max(1)[:, None])
    run = tf.function(
        lambda source: search_with(
            model, source, tf.constant(LIMITS), 3, n_best=2
        ),
        input_signature=[tf.TensorSpec(SOURCE.shape, tf.int32)],
        autograph=False,
    )
    first = run(SOURCE)
    run(other)
    for old, new in zip(first, run(SOURCE), strict=True):
        np.testing.assert_array_equal(old, new)
    eager = search_with(model, SOURCE, LIMITS, 3, n_best=2)
    np.testing.assert_array_equal(first.ids, eager.ids)


@pytest.mark.slow
def test_a_saved_model_in_a_session_writes_in_place_too(model, tmp_path):
    archive = keras.export.ExportArchive()
    archive.track(model)
    limits = tf.constant(LIMITS)
    archive.add_endpoint(
        "serving_default",
        lambda source: search_with(model, source, limits, 4)._asdict(),
        [tf.TensorSpec([None, None], tf.int32, "source")],
    )
    archive.write_out(str(tmp_path / "saved"), verbose=False)
    expected = search_with(model, SOURCE, LIMITS, 4)

    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        graph = tf.compat.v1.saved_model.loader.load(
            session, ["serve"], str(tmp_path / "saved")
        )
        signature = graph.signature_def["serving_default"]
        names = {key: info.name for key, info in signature.outputs.items()}
        feed = {signature.inputs["source"].name: SOURCE}
        for _ in range(3):
            found = session.run(names, feed)
            np.testing.assert_array_equal(found["ids"], expected.ids)
            np.testing.assert_allclose(
                found["scores"], expected.scores, atol=1e-4
            )


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
def test_a_write_changes_the_slots_of_its_position_alone(dtype):
    batch, heads, beams, width = 2, 3, 5, 7
    slots = tf.cast(tf.fill([batch, heads, beams, width], 9.0), dtype)
    slots = extended(slots, 2 * beams)  # Room for positions 1 and 2.
    new = tf.reshape(
        tf.range(batch * heads * beams * width), [batch, heads, beams, width]
    )

    written = writer(slots, tf.constant(2), beams)(slots, tf.cast(new, dtype))

    expected = np.zeros([batch, heads, 3 * beams, width])
    expected[:, :, :beams] = 9
    expected[:, :, 2 * beams :] = new
    np.testing.assert_array_equal(tf.cast(written, tf.float32), expected)


def test_a_sentence_is_searched_alike_in_any_batch(model):
    run = graph_of(model, 4, n_best=2)
    together = run(SOURCE, LIMITS)
    for i in range(len(SOURCE)):
        alone = run(SOURCE[i : i + 1], LIMITS[i : i + 1])
        assert_same(as_hypotheses(alone, 0), as_hypotheses(together, i), 1e-4)


def test_a_batch_of_none_gives_a_result_of_none(model):
    none = tf.zeros([0, 3], tf.int32)
    for run in (graph_of(model, 4, n_best=2), None):
        limits = tf.zeros([0], tf.int32)
        found = (
            run(none, limits)
            if run
            else search_with(model, none, limits, 4, n_best=2)
        )
        assert found.ids.shape[:2] == found.scores.shape == (0, 2)


def test_finished_sentences_leave_after_a_block():
    sizes = []

    def step(ids, position, state, rows):
        sizes.append((int(position), rows.numpy().tolist()))
        # All end with the sixth token but those that have odd numbers.
        logits = np.zeros([*ids.shape, 7], "float32")
        logits[:, :, EOS] = -9.0
        if position == 5:
            logits[rows.numpy() % 2 == 0, :, EOS] = 30.0
        return tf.constant(logits), state, rows

    result = beam_search(
        step,
        (),
        max_lengths=tf.fill([5], 20),
        beam_size=2,
        length_penalty=0.0,
        shared=Shared(tf.range(5), lambda rows, steps: rows),
    )

    assert [rows for position, rows in sizes if position < 8] == [
        [0, 1, 2, 3, 4]
    ] * 8
    assert [rows for position, rows in sizes if position >= 8] == [[1, 3]] * 12
    np.testing.assert_array_equal(result.lengths[:, 0], [6, 20, 6, 20, 6])
