"""Texts and pages of all kinds with the viewer, in a real browser."""

import dataclasses

import numpy as np
import pytest
from playwright.sync_api import expect
from random_explanations import make_explanation
from viewer_handling import arrays, choose, numbers

from keras_transformer.viewing.explanation import Fate

pytestmark = pytest.mark.slow


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
    length = 199
    made = make_explanation(
        layers=6,
        heads=8,
        source_length=length,
        target_length=length,
        beam_size=4,
    )
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
