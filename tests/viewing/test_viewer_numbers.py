"""What the views show in a real browser is what the arrays hold."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from random_explanations import END
from viewer_handling import arrays, choose, head, numbers, quantised

pytestmark = pytest.mark.slow


def test_a_darker_pixel_is_a_larger_weight(page, explanation):
    choose(page, "Encoder")
    pixels = page.locator('[data-layer="1"][data-head="0"] canvas').evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height)"
        ".data]"
    )
    red = np.array(pixels).reshape(7, 7, 4)[..., 0].ravel().astype(int)
    weights = quantised(explanation.encoder[1, 0]).ravel()
    order = np.argsort(weights, kind="stable")
    assert np.all(np.diff(red[order]) <= 0) and red.min() < red.max()


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
