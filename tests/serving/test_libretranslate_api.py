"""LibreTranslate's interface, with a client that others wrote."""

import threading
from concurrent import futures

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI
from running_server import running
from still_model import StillModel
from waiting import until
from word_by_word_model import WordByWord

from keras_transformer.serving import libretranslate_api
from keras_transformer.serving.libretranslate_api import MAX_HTML
from keras_transformer.serving.limits import Batching

TEXT = "Hund bellt."


@pytest.fixture(scope="module")
def translations(served):
    """The model's own translation of a sentence."""

    def translate(*texts):
        found = served("serving_default", text=texts)["translation"]
        return [text.decode() for text in found]

    return translate


def test_its_python_client_translates(server, translations):
    api = LibreTranslateAPI(server.url)
    assert api.translate(TEXT, "de", "en") == translations(TEXT)[0]
    languages = api.languages()
    assert [each["code"] for each in languages] == ["de", "en"]
    assert [each["name"] for each in languages] == ["German", "English"]
    assert [each["targets"] for each in languages] == [["en"], []]


def test_a_list_has_an_answer_for_each_and_auto_is_the_source(
    client, translations
):
    texts = ["Hund", "", "kleiner Hund"]
    body = {"q": texts, "source": "auto", "target": "en"}
    first, _, third = translations(*texts)
    assert client.post("/translate", json=body).json() == {
        "translatedText": [first, "", third],
        "detectedLanguage": [{"confidence": 100.0, "language": "de"}] * 3,
    }
    form = {"q": "Hund", "source": "auto", "target": "en"}
    for answer in (
        client.post("/translate", data=form),
        client.post("/translate", params=form),
    ):
        assert answer.json() == {
            "translatedText": first,
            "detectedLanguage": {"confidence": 100.0, "language": "de"},
        }


ASKED = {"q": "Hund", "source": "de", "target": "en"}


@pytest.mark.parametrize(
    "body, said",
    [
        ({**ASKED, "q": ""}, "Invalid request: missing q parameter"),
        ({**ASKED, "source": "fr"}, "fr is not supported"),
        ({**ASKED, "format": "pdf"}, "pdf format is not supported"),
        ({**ASKED, "q": "x" * (MAX_HTML + 1), "format": "html"}, "131072"),
        ({**ASKED, "q": ["a", 7]}, "a list of texts"),
        ({"q": "dog", "source": "en", "target": "de"}, "from English (en)"),
    ],
)
def test_a_wrong_request_is_refused_as_there(client, body, said):
    answer = client.post("/translate", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_half_a_character_becomes_a_sign_of_it(client, translations):
    content = b'{"q": "Hund \\ud83d", "source": "de", "target": "en"}'
    kind = {"Content-Type": "application/json"}
    answer = client.post("/translate", content=content, headers=kind)
    (expected,) = translations("Hund \ufffd")
    assert answer.json() == {"translatedText": expected}


def test_a_form_of_parts_is_read_line_by_line(client, translations):
    # As a browser's FormData: no part is a file.
    parts = {
        name: (None, value)
        for name, value in {**ASKED, "q": "Hund\r\nbellt\u2028laut"}.items()
    }
    answer = client.post("/translate", files=parts)
    one, two, three = translations("Hund", "bellt", "laut")
    assert answer.json() == {"translatedText": f"{one}\n{two}\u2028{three}"}


def test_what_is_no_form_of_texts_is_refused(client):
    answer = client.post("/translate", files={"q": b"Hund"})
    assert answer.status_code == 400 and "no file" in answer.text
    urlencoded = "application/x-www-form-urlencoded"
    parts = "multipart/form-data; boundary=x"
    nameless = b"Content-Disposition: form-data; name*=q\r\n\r\nHund"
    for kind, body in (
        (urlencoded, b"source=de&target=en&q=%ff%fe"),
        (parts, b""),
        (parts, b"--x\r\nContent-Type: a/b"),
        (parts, b"--x\r\n" + nameless + b"\r\n--x--"),
    ):
        headers = {"Content-Type": kind}
        answer = client.post("/translate", content=body, headers=headers)
        assert answer.status_code == 400, body


@pytest.mark.stands_for("n best of a real model")
def test_alternatives_are_the_next_best(client, served):
    texts = ["Hund bellt.", "kleiner Hund"]
    expected = [
        list(dict.fromkeys(text.decode() for text in row))
        for row in served("n_best", text=texts)["translations"]
    ]
    body = {**ASKED, "q": texts, "alternatives": 2}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"] == [row[0] for row in expected]
    assert answer["alternatives"] == [row[1:3] for row in expected]
    answer = client.post("/translate", data={**ASKED, "alternatives": "1"})
    assert len(answer.json()["alternatives"]) == 1
    answer = client.post("/translate", json={**ASKED, "alternatives": "x"})
    assert answer.status_code == 400


def test_codes_in_capitals_are_known_and_a_language_is_its_own(
    client, translations
):
    body = {**ASKED, "source": "DE", "target": "En"}
    expected = {"translatedText": translations("Hund")[0]}
    assert client.post("/translate", json=body).json() == expected
    for source, target in (("en", "en"), ("auto", "de")):
        body = {**ASKED, "source": source, "target": target}
        answer = client.post("/translate", json=body).json()
        assert answer["translatedText"] == "Hund"


def test_html_keeps_its_tags_around_the_words_that_come_from_theirs():
    text = "ein <b>kleiner</b> Hund<br>&lt;zwei&gt; Euro <code>Hund</code>"
    expected = "dog <b>small</b> a<br>euros &lt;zwei&gt; <code>Hund</code>"
    ask = {"q": text, "source": "de", "target": "en", "format": "html"}
    with running(WordByWord()) as server:
        url = f"{server.url}/translate"
        answer = httpx.post(url, json=ask)
        assert answer.json() == {"translatedText": expected}
        answer = httpx.post(url, data={**ask, "alternatives": 2})
        assert answer.json() == {"translatedText": expected, "alternatives": []}


@pytest.mark.parametrize("answers, code", [(True, 200), (False, 503)])
def test_a_full_queue_is_well_as_long_as_the_model_answers(
    monkeypatch, answers, code
):
    monkeypatch.setattr(
        libretranslate_api, "HEALTH_SECONDS", 60 if answers else 0.2
    )
    model = StillModel(is_open=False)
    body = {**ASKED, "q": "Hund"}
    with (
        running(model, Batching(1, 0, 1, 1)) as server,
        futures.ThreadPoolExecutor(2) as pool,
    ):
        url, batcher = f"{server.url}/translate", server.service.batcher
        asked = [pool.submit(httpx.post, url, json=body) for _ in range(2)]
        until(lambda: batcher.taken == 2)
        assert httpx.post(url, json=body).status_code == 503
        if answers:
            threading.Timer(0.3, model.gate.set).start()
        health = httpx.get(f"{server.url}/health")
        assert health.status_code == code
        assert (health.json() == {"status": "ok"}) == answers
        model.gate.set()
        assert {each.result().status_code for each in asked} == {200}


@pytest.mark.parametrize(
    "codes, spelling, own",
    [
        (("en", "zh-Hans"), "zh_CN", "zh-Hans"),
        (("en", "pt_BR"), "pb", "pt_BR"),
        (("en", "de"), "DEU", "de"),
        (("en-US", "en-GB"), "en-gb", "en-GB"),
    ],
)
def test_a_language_may_be_asked_for_in_any_spelling(codes, spelling, own):
    assert libretranslate_api.spelt_by_model(spelling, codes) == own
