"""The pictures that Python draws, read back as XML."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from random_explanations import make_explanation

from keras_transformer.viewing import pictures
from keras_transformer.viewing.explanation import Fate

NAMESPACE = "{http://www.w3.org/2000/svg}"


def read(picture):
    return ElementTree.fromstring(picture)


def drawn(picture):
    """The weight of each line, by where it starts and ends: `(y1, y2)`."""
    return {
        (float(line.get("y1")), float(line.get("y2"))): float(
            line.get("stroke-opacity")
        )
        for line in read(picture).iter(f"{NAMESPACE}line")
    }


def texts(picture):
    return [
        (element.text, float(element.get("x")), float(element.get("y")))
        for element in read(picture).iter(f"{NAMESPACE}text")
    ]


def test_a_line_goes_from_each_piece_to_each_with_its_weight(explanation):
    picture = explanation.to_svg("cross", layer=1, heads=[2])
    found = explanation.attention()
    queries, keys = found.target_pieces, found.source_pieces
    words = texts(picture)
    assert [word for word, *_ in words] == ["head 3", *queries, *keys]
    words = words[1:]
    at = [y for *_, y in words]
    lines_drawn = drawn(picture)
    for i in range(len(queries)):
        for j in range(len(keys)):
            weight = found.cross[1, 2, i, j]
            place = (at[i], at[len(queries) + j])
            if weight >= pictures.FAINTEST:
                assert lines_drawn.pop(place) == pytest.approx(weight, abs=6e-4)
    assert not lines_drawn


def test_the_decoder_attends_to_what_it_read(explanation):
    words = [word for word, *_ in texts(explanation.to_svg("decoder"))]
    pieces = explanation.attention().target_pieces
    heads = [f"head {number}" for number in (1, 2, 3)]
    assert words == heads + pieces + ["<s>", *pieces[:-1]]


def test_one_row_alone_is_drawn(explanation):
    picture = explanation.to_svg("cross", heads=[1], row=-2)
    words = explanation.attention().target_pieces
    y = texts(picture)[1 + len(words) - 2][2]
    assert {start for start, _ in drawn(picture)} == {y}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(kind="self"), r"`kind` must be one of .*Received: kind='self'"),
        (dict(layer=2), "`layer` must be from -2 to 1.*Received: 2"),
        (dict(heads=[0, 3]), "`head` must be from -3 to 2.*Received: 3"),
        (dict(hypothesis=5), "`hypothesis` must be from -3 to 2.*Received: 5"),
        (dict(row=17), "`row` must be from .*Received: 17"),
    ],
)
def test_what_is_not_there_is_one_sentence(explanation, arguments, message):
    with pytest.raises(ValueError, match=message):
        explanation.to_svg(**arguments)


def test_an_empty_translation_has_no_row_to_choose():
    empty = make_explanation(target_length=0)
    with pytest.raises(ValueError, match="none to choose. Received: 0"):
        empty.to_svg("cross", row=0)
    assert drawn(empty.to_svg("encoder", row=0))
    assert not drawn(empty.to_svg("cross"))


def test_a_head_has_its_colour_whichever_others_are_drawn():
    made = make_explanation(heads=11, layers=1)
    alone = set()
    for head in range(11):
        picture = read(made.to_svg("encoder", heads=[head]))
        looks = {
            (line.get("stroke"), line.get("stroke-dasharray"))
            for line in picture.iter(f"{NAMESPACE}line")
        }
        alone |= looks
        assert len(looks) == 1
        assert f"head {head + 1}" in [word.text for word in picture.iter()]
    every = read(made.to_svg("encoder")).iter(f"{NAMESPACE}line")
    assert {
        (line.get("stroke"), line.get("stroke-dasharray")) for line in every
    } == alone
    assert len(alone) == 11


def test_no_piece_breaks_the_picture():
    pieces = ["</svg>", "&amp;", "\x00\x1f", '"<script>']
    picture = pictures.lines(pieces, pieces, {0: np.eye(4)})
    words = [word for word, *_ in texts(picture)]
    assert words[1:] == 2 * ["</svg>", "&amp;", "\ufffd\ufffd", '"<script>']


def test_every_node_of_the_tree_is_drawn_with_its_fate(explanation):
    """A line ends where the mark of its node lies, below its piece."""
    picture = read(explanation.tree_svg())
    links, marks = picture.findall(f"{NAMESPACE}g")
    ends = [
        tuple(map(float, re.findall(r"[\d.]+", path.get("d"))))
        for path in links
    ]
    places = {}
    for mark in marks.iter(f"{NAMESPACE}path"):
        x, y = map(float, re.findall(r"[\d.]+", mark.get("transform")))
        places[x, y] = mark.get("d")
    written = {(x, y): word for word, x, y in texts(explanation.tree_svg())}
    assert len(places) == len(ends) == len(explanation.nodes)
    for node, end in zip(explanation.nodes, ends, strict=True):
        x0, y0, *_, x, y = end
        before = ends[node.parent][-2:] if node.parent >= 0 else (44.0, 44.0)
        assert (x0, y0) == before and x == x0 + pictures.STEP
        assert places[x, y] == pictures.MARKS[node.fate][2]
        assert written[x, y - 13] == node.piece
        if node.rank >= 0:
            assert written[x, y] == str(node.rank + 1)


def test_fates_differ_by_shape_and_not_by_colour_alone():
    assert len({shape for *_, shape in pictures.MARKS.values()}) == len(Fate)


def test_an_empty_search_has_a_tree_too():
    assert read(pictures.tree([])).tag == f"{NAMESPACE}svg"


def test_wide_characters_take_more_room():
    assert pictures.width_of("灯笼") > pictures.width_of("la")
