"""Reading the page: by eye, by hand, by ear, from either side."""

import pytest
from axe_playwright_python.sync_playwright import Axe

# `make test` has one browser: test_page_api.py.
pytestmark = pytest.mark.slow

QUESTION = "**/api/translate"
MARKUP = (
    "</textarea><script>window.struck=1</script>"
    '<img src=x onerror="window.struck=1">&amp;&lt; <!-- translation -->'
)


def translated(visit, text="Ein kleiner Hund.\nDie Lampe.", **options):
    """A page with a translation, at its last sentence."""
    opened = visit(**options)
    opened.field.fill(text)
    opened.look_closer()
    return opened


def marked(opened):
    """The marked part of the text that is written."""
    return opened.page.locator("#mirror mark").all_text_contents()


def answers(source, *hypotheses, score=-0.5):
    """Says that the server answers so, whatever it is asked."""

    def prepare(page):
        answer = {
            "sentences": [
                {
                    "source": source,
                    "start": 0,
                    "end": len(source),
                    "hypotheses": [
                        {"text": text, "score": score} for text in hypotheses
                    ],
                    "words": [[i, i] for i in range(len(source.split()))],
                    "source_words": source.split(),
                    "target_words": hypotheses[0].split(),
                }
            ],
            "translation": hypotheses[0],
        }
        page.route(QUESTION, lambda route: route.fulfill(json=answer))

    return prepare


def test_words_light_up_with_what_they_come_from(visit):
    opened = translated(visit, "Die Lampe 💡 kostet. Ein kleiner Hund.")
    word = opened.output.locator(".word", has_text="dog")
    word.hover()
    lit = opened.page.locator(".lit").all_text_contents()
    assert sorted(lit) == ["Hund.", "dog.", "dog."]
    assert marked(opened) == ["Hund."]
    # And another sentence, once the pointer rests on it.
    opened.output.locator(".sentence").first.hover()
    opened.output.locator(".word", has_text="lamp").hover()
    assert marked(opened) == ["Lampe"]
    opened.page.mouse.move(0, 0)
    assert marked(opened) == [] == opened.page.locator(".lit").all()


def test_everything_is_done_with_a_keyboard(visit):
    opened = translated(visit)
    page, keys = opened.page, opened.page.keyboard

    def focused(attribute="id"):
        return page.evaluate("name => document.activeElement[name]", attribute)

    assert focused() == "text"
    stops = []
    while focused("tagName") != "BODY" and len(stops) < 20:
        stops.append(focused() or focused("textContent"))
        assert page.evaluate(
            "document.activeElement.id === 'text' ||"
            "getComputedStyle(document.activeElement).outlineStyle === 'solid'"
        )
        keys.press("Tab")
    assert stops == [
        *("text", "target-view", "copy", "Ein Hund.", "Die Lampe."),
        *("previous", "next", "Die", "lamp.", "explain"),
    ]
    page.locator("#previous").focus()
    keys.press("Enter")
    page.get_by_role("option", name="kleiner: small").wait_for()
    for _ in range(3):
        keys.press("Tab")
    assert focused("textContent") == "dog."
    keys.press("ArrowRight")
    assert (focused("textContent"), marked(opened)) == ("small", ["kleiner"])
    keys.press("End")
    assert (focused("textContent"), marked(opened)) == ("Ein", ["Ein"])
    keys.press("ArrowRight")
    keys.press("ArrowLeft")
    assert focused("textContent") == "small"


def test_the_translation_can_be_copied(visit):
    permissions = ["clipboard-read", "clipboard-write"]
    opened = translated(visit, permissions=permissions)
    opened.page.get_by_role("button", name="Copy").click()
    opened.page.get_by_role("button", name="Copied").wait_for()
    copied = opened.page.evaluate("navigator.clipboard.readText()")
    assert copied == "dog. small Ein\nlamp. Die"


def test_a_screen_reader_hears_the_translation(visit):
    opened = translated(visit, "Ein Hund.")
    opened.page.get_by_role("status").get_by_text("dog. Ein").wait_for()
    languages = {"#text": "de", "#translation": "en", "#hypotheses": "en"}
    for selector, language in languages.items():
        found = opened.page.locator(selector).get_attribute("lang")
        assert found == language


def test_axe_finds_nothing_that_hinders_people(visit):
    opened = translated(visit)
    opened.output.locator(".word").first.hover()
    for scheme, width in ("light", 1280), ("dark", 1280), ("dark", 360):
        opened.page.emulate_media(color_scheme=scheme)
        opened.page.set_viewport_size({"width": width, "height": 720})
        found = Axe().run(opened.page)
        assert found.violations_count == 0, found.generate_report()


def test_an_empty_hypothesis_that_has_no_score_is_shown(visit):
    prepare = answers("Ein Hund", "", score=None)
    opened = translated(visit, "Ein Hund", prepare=prepare)
    assert opened.page.inner_text("#hypotheses") == "(empty)\t−∞"


def test_text_from_the_right_is_set_from_the_right(visit):
    prepare = answers("Ein Hund läuft", "كلب صغير يركض", "كلب يركض")
    opened = translated(visit, "Ein Hund läuft", prepare=prepare)
    for selector in "#translation", "#target-words", "#hypotheses td":
        direction = opened.page.locator(selector).first.evaluate(
            "element => getComputedStyle(element).direction"
        )
        assert direction == "rtl"
    cells = opened.page.locator("#hypotheses tr").first.locator("td")
    text, score = (cells.nth(i).bounding_box()["x"] for i in range(2))
    assert text < score  # Under their headings.
    words = opened.page.locator("#target-words .word")
    first, second = (words.nth(i).bounding_box()["x"] for i in range(2))
    assert second < first
    words.first.focus()
    opened.page.keyboard.press("ArrowLeft")
    assert marked(opened) == ["Hund"]


def test_markup_in_any_answer_stays_text(visit):
    def prepare(page):
        card = {
            "name": MARKUP,
            "version": MARKUP,
            "source_lang": MARKUP,
            "target_lang": MARKUP,
            "source_name": MARKUP,
            "target_name": MARKUP,
            "scores": [{"name": MARKUP, "value": 1.0, "signature": MARKUP}],
            "subject": MARKUP,
            "examples": [MARKUP],
            "explain": True,
        }
        page.route("**/api/card", lambda route: route.fulfill(json=card))
        answers(MARKUP, MARKUP, MARKUP)(page)

    opened = translated(visit, MARKUP, prepare=prepare)
    opened.output.locator(".word").first.hover()
    assert opened.output.text_content() == MARKUP
    cell = opened.page.locator("#hypotheses td").first
    assert cell.text_content() == MARKUP
    assert MARKUP in opened.page.inner_text("dl")
    opened.page.unroute(QUESTION)
    opened.page.route(
        QUESTION, lambda route: route.fulfill(json={"error": MARKUP})
    )
    opened.field.fill("Hund")
    opened.status.get_by_text(MARKUP).wait_for()
    assert opened.page.locator("main img, main script").count() == 0
    assert opened.page.evaluate("window.struck") is None
