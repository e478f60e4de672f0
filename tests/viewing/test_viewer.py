"""What the viewer must never get wrong, in a real browser."""

import itertools

import numpy as np
import pytest
from playwright.sync_api import expect
from random_explanations import make_explanation
from viewer_handling import NEAR, arrays, choose, head, numbers

from keras_transformer.viewing.explanation import Fate

pytestmark = pytest.mark.stands_for("the viewer in a browser")


def test_the_numbers_are_the_arrays_of_every_layer_and_head(page, explanation):
    expected, pieces = arrays(explanation, explanation.leaves[0])
    source = explanation.source_pieces
    labels = {
        "Encoder": (source, source),
        "Decoder": (pieces, ["<s>", *pieces[:-1]]),
        "Cross": (pieces, source),
    }
    choose(page, "Numbers")
    for kind in labels:
        choose(page, kind)
        for layer, number in itertools.product(range(2), range(3)):
            head(page, layer, number)
            rows, columns, weights = numbers(page)
            assert (rows, columns) == labels[kind]
            np.testing.assert_allclose(
                weights, expected[kind][layer, number], atol=NEAR
            )
        head(page, 1, -1)
        mean = expected[kind][1].mean(axis=0)
        np.testing.assert_allclose(numbers(page)[2], mean, atol=NEAR)


def test_a_pruned_node_shows_the_attention_of_its_own_rows(page, explanation):
    number, node = next(
        (i, node)
        for i, node in enumerate(explanation.nodes)
        if node.fate is Fate.PRUNED and node.step == 3 and node.parent != 24
    )
    mark = page.locator(f'[data-node="{number}"]')
    mark.click()
    expect(mark).to_have_attribute("aria-pressed", "true")
    expected, pieces = arrays(explanation, number)
    looked_at = page.locator(".strip").nth(1).locator(".token")
    expect(looked_at).to_have_text(pieces)
    added = page.locator(".hypotheses tbody tr").last.inner_text()
    assert "pruned" in added and f"{-node.log_prob:.3f}" in added
    choose(page, "Numbers")
    for kind in ("Cross", "Decoder"):
        choose(page, kind)
        head(page, 0, 1)
        rows, _, weights = numbers(page)
        assert rows == pieces
        np.testing.assert_allclose(weights, expected[kind][0, 1], atol=NEAR)


def test_text_that_looks_like_markup_stays_text(opened):
    hostile = [
        "▁</script><script>window.struck=1</script>",
        '▁<img src=x onerror="window.struck=1">',
        "▁&amp;",
        "▁\u2028",
        "▁`${window.struck=1}`",
    ]
    made = make_explanation(source=hostile, target=hostile)
    page = opened(made.to_html())
    strips = page.locator(".strip")
    sides = made.source_pieces, made.attention().target_pieces
    for number, pieces in enumerate(sides):
        tokens = strips.nth(number).locator(".token")
        assert tokens.all_text_contents() == pieces
    for look in ("Lines", "Numbers"):
        choose(page, look)
    assert page.evaluate("window.struck") is None
    assert page.locator(".viewer img, .viewer script").count() == 0
