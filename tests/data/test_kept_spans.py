"""What a mark leaves as it is, put away and put back, by hand."""

import tensorflow as tf

from keras_transformer.data.kept_spans import put_away, put_back


def test_spans_become_symbols_and_come_back():
    texts = [
        "a <term>b<as>c d</term> <term>{x}<as></term>,<term><y/><as></term>",
        "plain < as > text <as>",
        "",
        "<term>\u3042\\1<as></term>",
    ]
    away, kept = put_away(tf.constant(texts))
    assert [x.decode() for x in away.numpy()] == [
        "a <kept0> c d</term> <kept1> </term>,<kept2> </term>",
        "plain < as > text <as>",
        "",
        "<kept0> </term>",
    ]
    translations = [
        ["<kept1> A <kept0>", "<kept0><kept2>"],
        ["<kept3>x", "x"],
        ["", ""],
        ["(<kept0>)", ""],
    ]
    # In a graph, as in a SavedModel.
    back, faults = tf.function(put_back)(tf.constant(translations), kept)
    # A mark left out, or a symbol of none.
    assert faults.numpy().tolist() == [[1, 1], [1, 0], [0, 0], [0, 1]]
    assert [[x.decode() for x in row] for row in back.numpy()] == [
        ["{x} A c d", "c d<y/>"],
        ["x", "x"],
        ["", ""],
        ["(\u3042\\1)", ""],
    ]


def test_more_spans_than_symbols_stand_in_the_text():
    text = "".join(f"<term>{{{n}}}<as></term> " for n in range(7))
    away, kept = put_away(tf.constant([text]))
    symbols = "".join(f"<kept{n}> </term> " for n in range(6))
    assert away.numpy() == [f"{symbols}{{6}} ".encode()]
    back, faults = put_back(tf.constant([["<kept0> <kept5> {6}"]]), kept)
    assert back.numpy() == [[b"{0} {5} {6}"]]
    assert faults.numpy() == [[4]]


def test_no_texts_are_no_texts():
    away, kept = put_away(tf.constant([], tf.string))
    back, faults = put_back(tf.zeros([0, 3], tf.string), kept)
    assert away.shape == [0] and back.shape == faults.shape == [0, 3]
