"""Pointing, clicking and typing in the views, in a real browser."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from random_explanations import END, make_explanation
from viewer_handling import NEAR, arrays, choose, head, numbers, quantised

from keras_transformer.viewing.explanation import Fate

pytestmark = pytest.mark.slow


def probability(log_prob):
    shown = f"{np.exp(log_prob):.3f}"
    return "<0.001" if shown == "0.000" else shown


def test_an_encoder_of_another_depth_shows_its_own_layers(opened):
    made = make_explanation(layers=3, encoder_layers=5)
    page = opened(made.to_html())
    choose(page, "Numbers")
    best = made.attention()
    for kind, expected in (
        ("Cross", best.cross),
        ("Encoder", best.encoder),
        ("Decoder", best.decoder),
    ):
        choose(page, kind)
        # Three heads and their mean in each row, and the mean of all.
        assert page.locator(".grid button").count() == len(expected) * 4 + 1
        # A layer that the decoder lacks becomes its last.
        if kind != "Decoder":
            head(page, len(expected) - 1, 1)
        np.testing.assert_allclose(numbers(page)[2], expected[-1, 1], atol=NEAR)


def test_a_step_shows_what_might_have_come(page, explanation):
    slider = page.locator('input[type="range"]')
    slider.focus()
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    node = explanation.nodes[explanation.path(explanation.leaves[0])[2]]
    shown = page.locator(".bars li").evaluate_all(
        "items => items.map(item => [item.querySelector('bdi').innerText,"
        " item.querySelector('.number').innerText,"
        " item.querySelector('.taken') !== null])"
    )
    kept = {
        other.piece
        for other in explanation.nodes
        if other.parent == node.parent and other.fate is not Fate.PRUNED
    }
    assert shown == [
        [piece, probability(log_prob), piece in kept]
        for piece, log_prob in explanation.alternatives[node.row]
    ]
    beam = page.locator(".beam tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].slice(1).map("
        "cell => cell.innerText.replace('−', '-')))"
    )
    assert [(row[0], row[1]) for row in beam] == [
        (f"{other.log_prob:.3f}", f"{other.score:.3f}")
        for other in explanation.nodes
        if other.step == 2
    ]


def test_the_tree_has_every_node_and_folds_the_pruned(page, explanation):
    nodes = explanation.nodes
    page.locator(".tree").scroll_into_view_if_needed()
    page.locator(".node").first.wait_for()
    labels = page.locator(".node").evaluate_all(
        "nodes => nodes.map(node => node.getAttribute('aria-label'))"
    )
    assert len(labels) == len(nodes)
    for label, node in zip(labels, nodes, strict=True):
        assert label.startswith(f"“{node.piece}”, step {node.step + 1}: ")
        assert node.fate.value in label
    pruned = sum(node.fate is Fate.PRUNED for node in nodes)
    choose(page, f"Hide the {pruned} pruned")
    assert page.locator(".node").count() == len(nodes) - pruned


def test_words_add_columns_and_average_rows(page, explanation):
    expected, pieces = arrays(explanation, explanation.leaves[0])
    assert pieces == ["▁Die", "▁Lampe", "▁kost", "et", END]
    assert explanation.source_pieces[2:4] == ["▁cost", "s"]
    choose(page, "Numbers")
    choose(page, "Words")
    head(page, 0, 2)
    rows, columns, weights = numbers(page)
    assert rows == ["Die", "Lampe", "kostet", END]
    assert columns == ["The", "lamp", "costs", "two", "hundred", END]
    cross = quantised(expected["Cross"][0, 2])
    cross = np.stack([*cross[:2], cross[2:4].mean(axis=0), cross[4]])
    cross = np.delete(cross, 3, axis=1) + np.eye(6)[2] * cross[:, 3:4]
    np.testing.assert_allclose(weights, cross, atol=0.0006)
    choose(page, "Decoder")
    rows, columns, weights = numbers(page)
    assert columns == ["<s>", "Die", "Lampe", "kostet"]
    decoder = quantised(expected["Decoder"][0, 2])
    kostet = decoder[2:4].mean(axis=0)
    assert weights[2, 3] == pytest.approx(kostet[3:].sum(), abs=0.0006)


def test_the_alignment_is_the_largest_mean_of_all_cross_heads(
    page, explanation
):
    choose(page, "Lines")
    choose(page, "Word alignment")
    aligned = page.locator(".lines line.aligned").evaluate_all(
        "lines => lines.map(line => Number(line.dataset.column))"
    )
    mean = quantised(explanation.attention().cross).mean(axis=(0, 1))
    assert aligned == list(mean.argmax(axis=-1))


def test_a_figure_is_saved_with_the_weights_of_its_heads(page, explanation):
    choose(page, "Encoder")
    head(page, 0, 2)
    page.locator(".figures").scroll_into_view_if_needed()
    page.get_by_text("Encoder, layer 1: head 3 and head 2 in full").wait_for()
    with page.expect_download() as download:
        page.get_by_text("Download figure 5 as SVG").click()
    tree = ElementTree.parse(download.value.path())
    namespace = "{http://www.w3.org/2000/svg}"
    panels = tree.findall(f"{namespace}svg")
    # The second head is head 2.
    for panel, number in zip(panels, (2, 1), strict=True):
        shown = [
            float(line.get("stroke-opacity"))
            for line in panel.iter(f"{namespace}line")
        ]
        weights = quantised(explanation.encoder[0, number])
        np.testing.assert_allclose(shown, weights[weights >= 0.01], atol=0.0006)
