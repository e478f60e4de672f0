"""The views in a real browser: what they show is what the arrays hold."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from explanations import END, make_explanation
from playwright.sync_api import expect

from keras_transformer.viewing.explanation import Fate

# Half of 1/255, and half of the last digit shown.
NEAR = 1 / 510 + 0.0005


def quantised(weights):
    """As the page has them; what it shows of these is exact."""
    return np.rint(255 * weights.astype("float64")) / 255


def choose(page, label):
    page.locator("label", has_text=re.compile(f"^{label}$")).click()


def head(page, layer, number):
    page.locator(f'[data-layer="{layer}"][data-head="{number}"]').click()


def numbers(page):
    """Row labels, column labels and weights of the table of the large head."""
    rows = page.locator(".numbers tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    weights = [[float(cell) for cell in row[1:]] for row in rows[1:]]
    return [row[0] for row in rows[1:]], rows[0][1:], np.array(weights)


def arrays(explanation, node):
    """The attention of a hypothesis, by walking from its end to its start."""
    rows, pieces = [], []
    while node >= 0:
        rows.insert(0, explanation.nodes[node].row)
        pieces.insert(0, explanation.nodes[node].piece)
        node = explanation.nodes[node].parent
    return {
        "Encoder": explanation.encoder,
        "Decoder": explanation.decoder[:, :, rows, : len(rows)],
        "Cross": explanation.cross[:, :, rows],
    }, pieces


def probability(log_prob):
    shown = f"{np.exp(log_prob):.3f}"
    return "<0.001" if shown == "0.000" else shown


@pytest.fixture
def page(opened, explanation):
    return opened(explanation._repr_html_())


def test_the_numbers_are_the_arrays_for_every_kind_layer_and_head(
    page, explanation
):
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


def test_the_entropy_of_a_head_is_the_mean_of_its_rows(page, explanation):
    cross = arrays(explanation, explanation.leaves[0])[0]["Cross"][1, 2]
    bits = -(cross * np.log2(cross)).sum(axis=-1).mean()
    label = page.locator('[data-layer="1"][data-head="2"]').get_attribute(
        "aria-label"
    )
    assert label == (f"Cross, layer 2, head 3, mean entropy {bits:.2f} bits")


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


def test_a_hypothesis_is_chosen_from_the_table_or_by_enter(page, explanation):
    second, third = explanation.leaves[1:3]
    looked_at = page.locator(".strip").nth(1).locator(".token")
    page.locator(".hypotheses tbody tr").nth(1).click()
    expect(looked_at).to_have_text(arrays(explanation, second)[1])
    mark = page.locator(f'[data-node="{third}"]')
    mark.focus()
    mark.press("Enter")
    expect(looked_at).to_have_text(arrays(explanation, third)[1])


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


def test_the_end_token_is_hidden(page, explanation):
    choose(page, "Numbers")
    choose(page, "Hide the end token")
    head(page, 1, 0)
    rows, columns, weights = numbers(page)
    assert END not in rows + columns
    cross = arrays(explanation, explanation.leaves[0])[0]["Cross"][1, 0]
    np.testing.assert_allclose(weights, cross[:-1, :-1], atol=NEAR)


def test_a_piece_pointed_at_is_marked_in_every_view(page, explanation):
    choose(page, "Numbers")
    page.locator(".strip").nth(1).locator(".token").nth(2).hover()
    assert page.locator(".numbers th.hovered").inner_text() == "▁kost"
    readout = page.locator(".readout").first
    cross = explanation.attention().cross[1].mean(axis=0)[2]
    largest = explanation.source_pieces[int(cross.argmax())]
    assert readout.inner_text().startswith(f"“▁kost” → “{largest}” 0.")
    choose(page, "Lines")
    page.locator(".strip").first.locator(".token").nth(1).hover()
    bright = page.locator(".lines line.bright")
    assert bright.evaluate_all(
        "lines => lines.every(line => line.dataset.column === '1')"
    )
    assert bright.count() == np.sum(
        quantised(explanation.attention().cross[1]).mean(axis=0)[:, 1] >= 0.01
    )


def test_the_heat_map_says_the_weight_pointed_at(page, explanation):
    head(page, 1, 1)
    heat_map = page.locator(".heat-map")
    said = page.locator(".readout").first
    cross = explanation.attention().cross[1, 1]
    heat_map.hover()
    row, column, weight = re.fullmatch(
        "“(.*)” → “(.*)”: (.*)", said.inner_text()
    ).groups()
    place = (
        explanation.attention().target_pieces.index(row),
        explanation.source_pieces.index(column),
    )
    assert float(weight) == pytest.approx(cross[place], abs=NEAR)
    page.mouse.move(0, 0)
    heat_map.focus()
    for key in (
        "End",
        "ArrowDown",
        "Home",
        "ArrowRight",
        "ArrowRight",
        "ArrowDown",
    ):
        heat_map.press(key)
    row, column = explanation.attention().target_pieces[2], "▁cost"
    assert said.inner_text().startswith(f"“{row}” → “{column}”: ")
    shown = float(said.inner_text().split(": ")[1])
    assert shown == pytest.approx(cross[2, 2], abs=NEAR)


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


def test_arrow_keys_go_from_head_to_head_and_from_node_to_node(
    page, explanation
):
    cell = page.locator('[data-layer="0"][data-head="1"]')
    cell.click()
    cell.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    title = page.locator('section[aria-label="One head"] h2')
    assert title.inner_text() == "Cross, layer 2, head 3"
    leaf = explanation.leaves[0]
    page.locator(f'[data-node="{leaf}"]').focus()
    page.keyboard.press("ArrowLeft")
    focused = "document.querySelector('.keras-transformer-viewer').shadowRoot"
    number = page.evaluate(f"{focused}.activeElement.dataset.node")
    assert int(number) == explanation.nodes[leaf].parent


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


def test_viewers_on_one_page_do_not_know_each_other(opened, explanation):
    other = make_explanation(seed=1)
    first, second = explanation._repr_html_(), other._repr_html_()
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
    page = opened(explanation._repr_html_())
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
        make_explanation(seed=2)._repr_html_(),
    )
    added = page.locator(".keras-transformer-viewer").nth(1)
    added.scroll_into_view_if_needed()
    added.locator(".grid canvas").first.wait_for()
    assert page.locator(".viewer").count() == 2


def test_dark_is_what_the_reader_asks_for_and_may_be_changed(
    opened, explanation
):
    page = opened(explanation._repr_html_(), color_scheme="dark")

    def brightness():
        colour = page.locator(".viewer").evaluate(
            "element => getComputedStyle(element).backgroundColor"
        )
        return sum(map(int, re.findall(r"\d+", colour)))

    assert brightness() < 200
    page.get_by_role("button", name="Light page").click()
    assert brightness() > 600


def test_text_that_looks_like_markup_stays_text(opened):
    hostile = [
        "▁</script><script>window.struck=1</script>",
        '▁<img src=x onerror="window.struck=1">',
        "▁&amp;",
        "▁\u2028",
        "▁`${window.struck=1}`",
    ]
    made = make_explanation(source=hostile, target=hostile)
    page = opened(made._repr_html_())
    strips = page.locator(".strip")
    for strip, pieces in (
        (0, made.source_pieces),
        (1, made.attention().target_pieces),
    ):
        tokens = strips.nth(strip).locator(".token")
        assert tokens.evaluate_all(
            "tokens => tokens.map(token => token.textContent)"
        ) == list(pieces)
    for look in ("Lines", "Numbers"):
        choose(page, look)
    assert page.evaluate("window.struck") is None
    assert page.locator(".viewer img, .viewer script").count() == 0


def test_without_scripts_the_table_and_a_picture_remain(opened, explanation):
    page = opened(explanation._repr_html_(), java_script_enabled=False)
    assert page.locator(".viewer").count() == 0
    assert page.locator("tbody tr").count() == 3
    for text in (explanation.source, *explanation.translations):
        assert page.get_by_text(text, exact=True).is_visible()
    picture = page.locator("img")
    assert "lines to the pieces of the source" in picture.get_attribute("alt")
    assert picture.bounding_box()["height"] > 100


def test_text_from_the_right_is_set_from_the_right(opened):
    arabic = "▁تكلف ▁المصباح ▁مئت ين ▁يورو".split()
    page = opened(make_explanation(target=arabic, seed=3)._repr_html_())
    source, target = (page.locator(".strip").nth(i) for i in range(2))
    assert source.get_attribute("dir") == "ltr"
    assert target.get_attribute("dir") == "rtl"
    first, second = (
        target.locator(".token").nth(i).bounding_box()["x"] for i in range(2)
    )
    assert second < first


def test_an_empty_translation_can_be_looked_at(opened):
    page = opened(make_explanation(target_length=0)._repr_html_())
    assert "(empty)" in page.locator(".hypotheses").inner_text()
    choose(page, "Numbers")
    assert numbers(page)[2].shape == (7, 7)
    choose(page, "Cross")
    assert page.get_by_text("No piece was written").is_visible()


def test_a_narrow_page_does_not_scroll_sideways(opened, explanation):
    viewport = {"width": 360, "height": 640}
    page = opened(explanation._repr_html_(), viewport=viewport)
    page.locator("footer").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
