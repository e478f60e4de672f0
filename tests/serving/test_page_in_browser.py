"""The page in a browser: what is asked, when, and what all of us can read."""

import json

import pytest
from axe_playwright_python.sync_playwright import Axe
from running_server import running
from word_by_word_model import Obedient, WordByWord, translation

from keras_transformer.serving.limits import Limits

# `make test` has one browser: test_page_api.py.
pytestmark = pytest.mark.slow

QUESTION = "**/api/translate"


def test_a_text_is_translated_as_one_types(visit):
    opened = visit(lambda page: page.clock.install(time=0))
    opened.page.clock.pause_at(60_000)
    questions = opened.questions()
    for letter in "ein kleiner Hund.":
        opened.page.clock.run_for(290)
        opened.field.press_sequentially(letter)
    assert questions == []
    opened.page.clock.run_for(300)
    opened.wait_for("dog. small a")
    # Not at every key.
    assert questions == ["ein kleiner Hund."]
    counted = "17 characters, less than 1 % of the limit"
    assert opened.page.inner_text("#counter") == counted


def test_a_glossary_counts_as_soon_as_it_is_written(visit):
    with running(Obedient()) as server:
        opened = visit(server=server)
        opened.field.fill("ein Hund.")
        opened.wait_for("dog. a")
        opened.page.locator("#glossary summary").click()
        opened.page.locator("#terms").fill("Hund ＝ hound\n\n=")
        opened.wait_for("hound. a")
        opened.look_closer()
        opened.page.locator("#terms").fill("")
        opened.wait_for("dog. a")
        opened.page.close()


def test_a_model_without_terms_has_no_glossary(visit):
    assert visit().page.locator("#glossary").is_hidden()


def test_what_an_input_method_composes_is_translated_where_it_rests(visit):
    opened = visit(lambda page: page.clock.install(time=0))
    opened.page.clock.pause_at(60_000)
    questions = opened.questions()
    keys = opened.page.context.new_cdp_session(opened.page)
    for text in "ein Hun", "ein Hund":
        keys.send(
            "Input.imeSetComposition",
            {"text": text, "selectionStart": 8, "selectionEnd": 8},
        )
        assert opened.field.input_value() == text
        # Half a word of Japanese seldom rests as long.
        opened.page.clock.run_for(999)
    assert questions == []
    opened.page.clock.run_for(1)
    opened.wait_for("dog a")
    assert questions == ["ein Hund"]
    assert opened.page.inner_text("#counter").startswith("8 characters")


def test_a_late_answer_never_overwrites_a_newer_one(visit):
    late = []

    def hold(route):
        if json.loads(route.request.post_data)["text"] == "ein Hund":
            late.append(route)
        else:
            route.continue_()

    def prepare(page):
        # Not even the browser cancels the page's request.
        page.add_init_script(
            """const native = fetch;
            fetch = (path, options) => native(path, {...options, signal: null});
            """
        )
        page.route(QUESTION, hold)

    opened = visit(prepare)
    with opened.page.expect_request(QUESTION):
        opened.field.fill("ein Hund")
    opened.field.fill("eine Wiese")
    opened.wait_for("meadow a")
    question = late[0].request
    with opened.page.expect_event(
        "requestfinished", lambda request: request == question
    ):
        late[0].continue_()
    opened.page.evaluate("new Promise(requestAnimationFrame)")
    assert opened.output.text_content() == "meadow a"


def test_a_thousand_sentences_pasted_come_back_each_in_its_line(visit):
    opened = visit(permissions=["clipboard-read", "clipboard-write"])
    lines = [f"Zwei Euro kostet Lampe {i}." for i in range(1_000)]
    opened.page.evaluate(
        "text => navigator.clipboard.writeText(text)", "\n".join(lines)
    )
    opened.field.press("Control+V")
    opened.wait_for("\n".join(map(translation, lines)))
    assert opened.page.locator("#translation .sentence").count() == 1_000
    opened.look_closer()
    # 1,000 of 2,048.
    assert "49 % of the limit" in opened.page.inner_text("#counter")
    # The place of the caret.
    assert opened.page.inner_text("#place") == "1,000 of 1,000"
    opened.page.get_by_role("button", name="Previous").click()
    opened.page.get_by_role("option", name="998.").first.wait_for()
    assert opened.page.inner_text("#place") == "999 of 1,000"
    # Both sides scroll to what is looked at.
    for view in "#source-view", "#target-view":
        assert opened.page.locator(view).evaluate("view => view.scrollTop") > 0


def test_a_busy_server_is_asked_again_when_it_says(visit):
    opened = visit(lambda page: page.clock.install(time=0), expected="503")
    opened.page.clock.pause_at(60_000)
    questions = opened.questions()
    opened.page.route(
        QUESTION,
        lambda route: route.fulfill(status=503, headers={"Retry-After": "23"}),
    )
    opened.field.fill("ein Hund")
    opened.page.clock.run_for(300)
    opened.page.get_by_text("The server is busy.").wait_for()
    assert "trying again in 23 s" in opened.status.text_content()
    # Writing on does not ask earlier.
    opened.field.fill("ein kleiner Hund")
    opened.page.clock.run_for(22_999)
    assert questions == ["ein Hund"]
    opened.page.unroute(QUESTION)
    opened.page.clock.run_for(1)
    opened.wait_for("dog small a")
    assert questions == ["ein Hund", "ein kleiner Hund"]


def test_what_the_server_refuses_is_said_in_its_words(visit):
    with running(WordByWord(), limits=Limits(max_texts=2)) as server:
        opened = visit(expected="400", server=server)
        opened.field.fill("Ein Hund.\nZwei Euro.\nDie Wiese.")
        said = "(3 sentences or more) exceeds text limit (2)"
        opened.page.get_by_text(said).wait_for()
        opened.field.fill("Ein Hund.\nZwei Euro.")
        opened.wait_for("dog. Ein\neuros. Zwei")


MARKUP = (
    "</textarea><script>window.struck=1</script>"
    '<img src=x onerror="window.struck=1">&amp;&lt;'
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


def test_axe_finds_nothing_that_hinders_people(visit):
    opened = translated(visit)
    opened.output.locator(".word").first.hover()
    for scheme, width in ("light", 1280), ("dark", 1280), ("dark", 360):
        opened.page.emulate_media(color_scheme=scheme)
        opened.page.set_viewport_size({"width": width, "height": 720})
        found = Axe().run(opened.page)
        assert found.violations_count == 0, found.generate_report()


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
        sides = "source_lang", "target_lang", "source_name", "target_name"
        card = dict.fromkeys(["name", "version", "subject", *sides], MARKUP)
        score = {"name": MARKUP, "value": 1.0, "signature": MARKUP}
        card |= {"scores": [score], "examples": [MARKUP], "explain": True}
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
