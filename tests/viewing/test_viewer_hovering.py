"""Pointing and the keyboard's focus, in all views, in a real browser."""

import pytest
from playwright.sync_api import expect
from viewer_handling import choose, head

from keras_transformer.viewing.explanation import Fate

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


@pytest.mark.parametrize(
    "place",
    [
        ".looks .token >> nth=3",
        ".figures figure:nth-child(2) svg:first-child text[data-key=s3]",
        ".numbers thead th >> nth=3",
    ],
)
def test_a_source_piece_is_marked_wherever_it_is_pointed_at(
    page, explanation, place
):
    choose(page, "Numbers")
    page.locator(".figures svg").first.wait_for()
    page.locator(place).hover()
    piece = explanation.source_pieces[3]
    assert hovered(page, "Translation") == [piece]
    assert hovered(page, "Step by step") == [piece]
    assert hovered(page, "One head") == [piece]
    assert band(page, "column") == [3, 7]
    # A figure's word has a colour of its own then.
    word = page.locator(".figures text.hovered").first
    fill = "element => getComputedStyle(element).fill"
    marked = word.evaluate(fill)
    page.mouse.move(0, 0)
    plain = page.locator(".figures text[data-key=s3]").first.evaluate(fill)
    assert marked != plain


def test_the_grid_marks_what_has_the_focus_when_it_comes_into_sight(
    opened, explanation
):
    page = opened(explanation.to_html())
    page.get_by_role("button", name="Download figure 5").focus()
    weighed = page.locator(".beam tbody button").first
    weighed.evaluate("button => button.focus({ preventScroll: true })")
    expect(page.locator(".beam tbody tr").first).to_have_class("hovered")
    assert page.locator(".grid").bounding_box()["y"] < -500
    assert band(page, "row") is None
    page.locator(".grid").scroll_into_view_if_needed()
    page.locator(".grid.has-row").wait_for()
    assert band(page, "row") == [0, 5]


def test_a_word_is_marked_by_any_of_its_pieces(page):
    choose(page, "Words")
    strip(page, 2).nth(3).hover()  # "s" of "▁cost", "s".
    assert hovered(page, "Translation") == ["costs"]
    assert hovered(page, "Step by step") == ["▁cost", "s"]


def test_a_picture_of_the_grid_answers_to_the_pointer(page, explanation):
    choose(page, "Decoder")
    picture = page.locator('[data-layer="0"][data-head="1"] .picture')
    box = picture.bounding_box()
    side = box["height"] / 5
    picture.hover(position={"x": side * 0.5, "y": side * 3.5})
    assert band(page, "row") == [3, 5] and band(page, "column") == [0, 5]
    piece = explanation.attention().target_pieces[3]
    readout = page.locator(".readout").first
    expect(readout).to_contain_text(f"“{piece}” → “<s>”: ")


def test_bars_hypotheses_and_nodes_off_the_way_answer(page, explanation):
    tree = page.locator(".tree")
    tree.scroll_into_view_if_needed()
    number, node = next(
        (i, node)
        for i, node in enumerate(explanation.nodes)
        if node.fate is Fate.PRUNED and node.step == 0
    )
    mark = page.locator(f'[data-node="{number}"]')
    bar = page.locator(".bars li", has_text=node.piece)
    row = page.locator(".beam tr", has_text=f"{-node.log_prob:.3f}")
    readout = page.locator('section[aria-label="Beam search"] .readout')
    boxed = readout.inner_text()
    for pointed_at in (mark, bar.locator("bdi"), row):
        pointed_at.hover()
        for answer in (mark, bar, row):
            assert "hovered" in answer.get_attribute("class")
        assert readout.inner_text().startswith(f"“{node.piece}”, step 1: ")
        page.mouse.move(0, 0)
        assert readout.inner_text() == boxed


def test_a_hypothesis_pointed_at_shows_its_way_in_the_tree(page, explanation):
    page.locator(".node").first.wait_for()
    page.locator(".hypotheses tbody tr").nth(2).hover()
    marked = page.locator(".node.hovered").evaluate_all(
        "nodes => nodes.map(node => Number(node.dataset.node))"
    )
    assert marked == explanation.path(explanation.leaves[2])


def test_the_tree_tells_of_the_step_that_is_boxed(page, explanation):
    readout = page.locator('section[aria-label="Beam search"] .readout')
    path = explanation.path(explanation.leaves[0])
    for step in (0, 1):
        boxed = page.locator(".node.now")
        expect(boxed).to_have_attribute("data-node", str(path[step]))
        piece = explanation.nodes[path[step]].piece
        assert readout.inner_text().startswith(f"“{piece}”, step {step + 1}: ")
        page.get_by_role("button", name="Step on").click()


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


def test_the_heat_map_keeps_the_focus_when_the_page_changes(page):
    head(page, 0, 0)
    page.locator(".heat-map").focus()
    width = page.locator(".heat-map").bounding_box()["width"]
    page.set_viewport_size({"width": 700, "height": 640})
    page.wait_for_function(
        "width => document.querySelector('.keras-transformer-viewer')"
        ".shadowRoot.querySelector('.heat-map').clientWidth !== width",
        arg=width,
    )
    focused = "document.querySelector('.keras-transformer-viewer').shadowRoot"
    assert page.evaluate(f"{focused}.activeElement.className") == "heat-map"
