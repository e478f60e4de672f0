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
    back = tf.function(put_back)(tf.constant(translations), kept).numpy()
    assert [[x.decode() for x in row] for row in back] == [
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
    back = put_back(tf.constant([["<kept0> <kept5> {6}"]]), kept)
    assert back.numpy() == [[b"{0} {5} {6}"]]


def test_no_texts_are_no_texts():
    away, kept = put_away(tf.constant([], tf.string))
    back = put_back(tf.zeros([0, 3], tf.string), kept)
    assert away.shape == [0] and back.shape == [0, 3]
