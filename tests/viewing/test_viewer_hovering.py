"""Pointing and the keyboard's focus, in all views, in a real browser."""

import pytest
from playwright.sync_api import expect
from viewer_handling import choose

pytestmark = pytest.mark.slow

FOCUS = """() => {
  const { activeElement } = document.querySelector(
    ".keras-transformer-viewer").shadowRoot;
  return activeElement && activeElement.innerText;
}"""


@pytest.fixture
def page(opened, explanation):
    """The page in a window that shows all of it: no view waits for its turn."""
    return opened(
        explanation.to_html(), viewport={"width": 1280, "height": 4000}
    )


def strip(page, number):
    return page.locator(".strip").nth(number).locator(".token")


def hovered(page, section):
    """The words that a section marks."""
    return page.locator(
        f'section[aria-label="{section}"] .hovered[data-key]'
    ).evaluate_all("marked => marked.map(element => element.textContent)")


def band(page, name):
    """The number of the row or column that the grid marks, and their count."""
    if not page.locator(f".grid.has-{name}").count():
        return None
    return page.locator(".grid").evaluate(
        "(grid, name) => [name, `of-${name}`].map("
        "name => Number(grid.style.getPropertyValue(`--${name}`)))",
        name,
    )


def test_a_target_piece_pointed_at_is_marked_in_every_section(
    page, explanation
):
    choose(page, "Lines")
    choose(page, "Cross")
    page.locator(".figures svg").first.wait_for()
    page.get_by_role("button", name="Step on").click(click_count=2)
    node = explanation.path(explanation.leaves[0])[2]
    piece = explanation.nodes[node].piece
    strip(page, 1).nth(2).hover()
    assert hovered(page, "Translation") == [piece]
    assert band(page, "row") == [2, 5] and band(page, "column") is None
    assert hovered(page, "One head") == [piece]
    # A bar, and a hypothesis weighed.
    marked = hovered(page, "Step by step")
    assert len(marked) == 2 and marked[0].startswith(piece)
    assert page.locator(f'.node.hovered[data-node="{node}"]').count() == 1
    assert len(hovered(page, "Beam search")) == 1
    # Figure 3 has one panel, figures 4 and 5 have two.
    assert hovered(page, "Figures 3 to 5") == [piece] * 5
    page.mouse.move(0, 0)
    assert page.locator(".hovered").count() == 0
    assert band(page, "row") is None


def test_a_word_is_marked_by_any_of_its_pieces(page):
    choose(page, "Words")
    strip(page, 2).nth(3).hover()  # "s" of "▁cost", "s".
    assert hovered(page, "Translation") == ["costs"]
    assert hovered(page, "Step by step") == ["▁cost", "s"]


def test_the_focus_stays_where_enter_was_pressed(page, explanation):
    piece = strip(page, 1).nth(1)
    strip(page, 1).first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(piece).to_have_attribute("aria-current", "step")
    assert page.evaluate(FOCUS) == piece.inner_text()
    row = page.locator(".hypotheses tbody button").nth(1)
    row.focus()
    page.keyboard.press("Enter")
    expect(row).to_have_attribute("aria-pressed", "true")
    assert page.evaluate(FOCUS) == row.inner_text()
    weighed = page.locator(".beam tbody button").nth(2)
    weighed.focus()
    text = weighed.inner_text()
    page.keyboard.press("Enter")
    expect(page.locator(".beam tbody tr").nth(2)).to_have_attribute(
        "aria-current", "true"
    )
    assert page.evaluate(FOCUS) == text
