"""Handling the views, and texts of all kinds in them, in a real browser."""

import dataclasses
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from playwright.sync_api import expect
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


def byte_pieces(word):
    return ["▁", *(f"<0x{byte:02X}>" for byte in word.encode())]


def test_a_language_from_the_right_is_set_so_whatever_its_first_letter(opened):
    words = "▁HTTP ▁ضوء ▁مئت ين ▁يورو".split()
    made = make_explanation(source=words, target=words, languages=("fa", "he"))
    page = opened(made.to_html())
    strips = page.locator(".strip")
    languages = [strips.nth(i).get_attribute("lang") for i in range(3)]
    assert languages == ["fa", "he", "fa"]
    for strip in strips.all():
        assert strip.get_attribute("dir") == "rtl"
    for text in page.locator("h1 bdi, .source, .hypotheses .text").all():
        assert text.get_attribute("dir") == "rtl"
    assert page.locator(".tree [lang=he]").count() > 0
    # The key with the arrow to the left goes on, to the word on the left.
    first, second = (strips.nth(1).locator(".token").nth(i) for i in range(2))
    first.press("ArrowLeft")
    expect(second).to_be_focused()
    second.press("ArrowRight")
    expect(first).to_be_focused()


def test_bytes_are_read_as_the_characters_they_are(opened):
    pieces = [*byte_pieces("ضوء"), "▁مئت", "ين"]
    made = make_explanation(
        source=pieces, source_length=10, target=pieces, target_length=10
    )
    made = dataclasses.replace(made, source="ضوء مئتين")
    page = opened(made.to_html())
    assert page.locator(".source").inner_text() == "ضوء مئتين"
    strips = [page.locator(".strip").nth(i) for i in range(3)]
    assert strips[0].locator(".token").nth(1).inner_text() == "<0xD8>"
    # The page spells hypotheses that were not returned.
    numbers_of = range(len(made.nodes))
    part = next(i for i in numbers_of if arrays(made, i)[1] == pieces[:8])
    page.locator(f'[data-node="{part}"]').click()
    row = page.locator(".hypotheses tr[aria-current] .text")
    expect(row).to_have_text("ضوء مئت")
    weighed = page.locator(".beam tr[aria-current] .text")
    expect(weighed).to_have_text("ضوء مئت")
    choose(page, "Words")
    for strip, word in zip(strips[:2], ("مئتين", "مئت"), strict=True):
        words = strip.locator(".token").all_inner_texts()
        assert words[:2] == ["ضوء", word]
    for strip in strips:
        assert strip.get_attribute("dir") == "rtl"


def test_a_source_that_was_cut_is_said_to_be(opened, explanation):
    cut = make_explanation(truncated=True).to_html()
    for scripts in (True, False):
        page = opened(cut, java_script_enabled=scripts)
        said = page.get_by_text("only its beginning was translated")
        assert said.last.is_visible()
    page = opened(explanation.to_html())
    assert page.get_by_text("only its beginning").count() == 0


def test_an_empty_translation_or_text_can_be_looked_at(opened):
    page = opened(make_explanation(target_length=0).to_html())
    assert "(empty)" in page.locator(".hypotheses").inner_text()
    choose(page, "Numbers")
    assert numbers(page)[2].shape == (7, 7)
    choose(page, "Cross")
    assert page.get_by_text("No piece was written").is_visible()
    # A source of its end token alone, which is hidden.
    page = opened(make_explanation(source_length=1, target_length=0).to_html())
    assert page.locator(".viewer h1 bdi").inner_text() == "(empty)"
    choose(page, "Encoder")
    choose(page, "Hide the end token")
    assert page.get_by_text("Only the end token is there").is_visible()


def test_a_page_of_the_base_model_opens(opened):
    sizes = dict(layers=6, heads=8, source_length=199, target_length=199)
    made = make_explanation(**sizes)
    page = opened(made.to_html())
    page.locator(".grid").scroll_into_view_if_needed()
    page.locator(".grid canvas").first.wait_for()
    assert page.locator(".grid button").count() == 6 * 9 + 1
    choose(page, "Encoder")
    choose(page, "Lines")
    lines = page.locator(".lines line")
    mean = made.encoder[5].mean(axis=0)
    # Half a 255th of a weight may be on the other side of what is drawn.
    expected = [np.sum(mean >= 0.01 + off) for off in (0.002, -0.002)]
    assert expected[0] <= lines.count() <= expected[1]
    page.locator(".figures svg").first.wait_for()
    pruned = sum(node.fate is Fate.PRUNED for node in made.nodes)
    assert page.locator(".node").count() == len(made.nodes) - pruned


def test_viewers_on_one_page_do_not_know_each_other(opened, explanation):
    other = make_explanation(seed=1)
    first, second = explanation.to_html(), other.to_html()
    page = opened(f"<!doctype html>{first}<p>Text.</p>{second}{first}")
    viewers = page.locator(".keras-transformer-viewer")
    strips = [viewers.nth(i).locator(".strip").nth(1) for i in range(3)]
    for i in range(3):
        viewers.nth(i).scroll_into_view_if_needed()
        strips[i].locator(".token").first.wait_for()
    before = [strip.inner_text() for strip in strips]
    assert before[0] == before[2] != before[1]
    viewers.nth(0).locator(".hypotheses tbody tr").nth(1).click()
    choose(viewers.nth(0), "Words")
    after = [strip.inner_text() for strip in strips]
    assert after[0] != before[0] and after[1:] == before[1:]


def test_a_notebook_may_insert_it_later(opened, explanation):
    """As Jupyter does: by innerHTML, with scripts made again."""
    page = opened(explanation.to_html())
    page.evaluate(
        """html => {
          const cell = document.createElement("div");
          cell.innerHTML = html;
          document.body.append(cell);
          for (const old of cell.querySelectorAll("script")) {
            const made = document.createElement("script");
            for (const { name, value } of old.attributes) {
              made.setAttribute(name, value);
            }
            made.textContent = old.textContent;
            old.replaceWith(made);
          }
        }""",
        make_explanation(seed=2).to_html(),
    )
    viewers = page.locator(".keras-transformer-viewer")
    for i in range(2):  # All drawn, so that nothing moves any more.
        figures = viewers.nth(i).locator(".viewer > section").last
        figures.locator("svg").first.wait_for(state="attached")
    viewers.nth(1).locator(".grid").scroll_into_view_if_needed()
    viewers.nth(1).locator(".grid canvas").first.wait_for()
    assert page.locator(".viewer").count() == 2


def test_without_scripts_the_texts_remain(opened, explanation):
    page = opened(explanation.to_html(), java_script_enabled=False)
    assert page.locator(".viewer").count() == 0
    assert page.locator("li").count() == 3
    for text in (explanation.source, *explanation.translations):
        assert page.get_by_text(text, exact=True).last.is_visible()
    assert page.locator("h1").inner_text() == explanation.source
