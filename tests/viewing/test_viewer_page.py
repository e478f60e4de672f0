"""The viewer within pages of all kinds, in a real browser."""

import re

import pytest
from nbconvert import HTMLExporter
from nbformat import v4
from random_explanations import make_explanation
from viewer_handling import choose, numbers

pytestmark = pytest.mark.slow


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
    # Names that a window has here, and an empty one has not.
    assert (
        page.evaluate(
            """() => {
              const names = Object.getOwnPropertyNames(window);
              const frame = document.createElement("iframe");
              document.body.append(frame);
              const usual = Object.getOwnPropertyNames(frame.contentWindow);
              return names.filter(name => !usual.includes(name));
            }"""
        )
        == []
    )


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


def test_a_notebook_exported_to_html_shows_it(browser, explanation, tmp_path):
    shown = v4.new_output("display_data", {"text/html": explanation.to_html()})
    cell = v4.new_code_cell("explained", outputs=[shown], execution_count=1)
    html, _ = HTMLExporter().from_notebook_node(v4.new_notebook(cells=[cell]))
    path = tmp_path / "notebook.html"
    path.write_text(html, encoding="utf-8")
    context = browser.new_context()
    # The page around the viewer asks for MathJax and more: not to be had.
    context.route(re.compile("^https?:"), lambda route: route.abort())
    page = context.new_page()
    page.goto(path.as_uri())

    choose(page, "Cross")
    choose(page, "Numbers")

    _, columns, weights = numbers(page)
    assert columns == explanation.source_pieces
    assert weights.shape == explanation.attention().cross.shape[2:]
    assert page.locator(".viewer").count() == 1
    context.close()
