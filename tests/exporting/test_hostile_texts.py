"""Whatever a request holds, every row has its answer, within the limits.

However long its texts, its tensors stay within them.
"""

import numpy as np
import pytest
import tensorflow as tf
from hostile_requests import KINDS, assert_same, check, requests, siege
from sample_runs import OPTIONS, SMALL_SIZES
from sample_runs import WORDS as SMALL_WORDS

draw = np.random.default_rng(0)
TEXTS = [kind(draw, size) for kind in KINDS for size in (40, 2**16)]
TEXTS += [
    *(b"", b"\0", "ä".encode()[:1], "ein kleiner Hund läuft".encode()),
    bytes(range(1, 32)) + b"\x7f\xc2\x85",
    "\u00a0\u2003\u3000\u200b\U0010ffff\uffff\ufffe\ufeff\u200c".encode(),
    "▁▁<s></s><unk><pad><0x41>".encode(),
]


def test_every_awkward_text_is_answered(served):
    for signature in served.signatures:
        check(served.everywhere(signature, TEXTS), len(TEXTS))


@pytest.mark.slow
def test_every_awkward_text_is_answered_whatever_its_neighbours(served):
    together = served.everywhere("n_best", TEXTS)
    for row, text in enumerate(TEXTS):
        for name, values in served.everywhere("n_best", [text]).items():
            assert_same(values, together[name][row : row + 1])


@pytest.mark.stands_for("hostile input")
def test_clients_get_their_own_answers_beside_hostile_requests(served):
    hostile = requests(served, 20, seed=3, longest=1_000)
    failures, rows, _ = siege(served, hostile, SMALL_WORDS[:3], 2, 4)
    assert failures == []
    assert set(rows) == set(served.signatures)


# More rows and words than any limit allows for.
ROWS, WORDS = 37, 3_000
LONG_TEXT = "laut und " * (WORDS // 2)
LONGEST_SOURCE = OPTIONS.max_source_length
LONGEST_TARGET = LONGEST_SOURCE + 50


def shapes_of_a_request(served, signature, **inputs):
    """The shape of every tensor that TensorFlow made for it."""
    definition = served.signatures[signature]
    metadata = tf.compat.v1.RunMetadata()
    served._session.run(
        {name: info.name for name, info in definition.outputs.items()},
        {
            definition.inputs[name].name: np.asarray(value, object)
            for name, value in inputs.items()
        },
        tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE),
        metadata,
    )
    return {
        tuple(axis.size for axis in output.tensor_description.shape.dim)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        for output in node.output
    }


def test_a_prefix_is_no_longer_than_a_translation_may_be(served):
    shapes = shapes_of_a_request(
        served,
        "with_prefix",
        text=[LONG_TEXT] + ["the dog"] * (ROWS - 1),
        prefix=[LONG_TEXT] + ["die"] * (ROWS - 1),
    )

    assert (ROWS,) in shapes  # We look where it matters.
    # Except for what the texts hold end to end, which has no axis of rows.
    columns = {shape[1] for shape in shapes if shape[:1] == (ROWS,) != shape}
    assert LONGEST_TARGET in columns and max(columns) < WORDS


def test_no_logits_of_whole_batches_make_scores(served, small_translator):
    shapes = shapes_of_a_request(
        served, "score", source=[LONG_TEXT] * ROWS, target=[LONG_TEXT] * ROWS
    )

    vocabulary = small_translator.tokenizer.vocab_size
    logits = {shape for shape in shapes if shape[-1:] == (vocabulary,)}
    tokens = {int(np.prod(shape[:-1])) for shape in logits}
    # 37 rows of 61 tokens in pieces, the last of them not full.
    assert 256 in tokens and ROWS * LONGEST_TARGET % 256 in tokens
    assert max(tokens) < ROWS * LONGEST_TARGET


def test_attention_of_all_layers_is_never_held_together(served):
    pairs = dict(source=[LONG_TEXT] * ROWS, target=[LONG_TEXT] * ROWS)
    found = served("attention", **pairs)["attention"]
    shapes = shapes_of_a_request(served, "attention", **pairs)

    batch, target, source = found.shape
    assert (batch, target, source) == (ROWS, LONGEST_TARGET, LONGEST_SOURCE)
    of_layer = batch * SMALL_SIZES["num_heads"] * target * source
    sizes = {int(np.prod(shape)) for shape in shapes}
    assert of_layer in sizes
    assert SMALL_SIZES["num_layers"] * of_layer not in sizes


def test_a_prefix_beyond_the_limit_is_all_there_is(served, small_translator):
    # Its source has fewer tokens than the longest, so that its limit is less.
    found = served("with_prefix", text=["the dog"], prefix=[LONG_TEXT])

    tokenizer = small_translator.tokenizer
    (source,) = tokenizer.tokenize(["the dog"])
    (prefix,) = tokenizer.tokenize([LONG_TEXT])
    limit = len(source) + 50
    assert limit < LONGEST_TARGET
    expected = tokenizer.detokenize(prefix[None, :limit]).numpy()
    assert found["translation"].tolist() == expected.tolist()
    assert found["truncated"].tolist() == [False]
