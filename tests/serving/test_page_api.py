"""The requests of the page to the embedded server."""

import base64
import contextlib
import hashlib
import json
import pathlib
import re
import socket
import threading
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from random_explanations import make_explanation
from running_server import running
from sample_runs import CARD, OPTIONS
from still_model import StillModel
from waiting import until
from word_by_word_model import Obedient, WordByWord

from keras_transformer.commands.serve import explainer
from keras_transformer.config import UserError
from keras_transformer.run import Run
from keras_transformer.runs.averaging import Chosen
from keras_transformer.runs.weights import Weights
from keras_transformer.viewing import viewer

POLICY = "content-security-policy"


def test_the_card_says_what_the_export_says(client):
    card = client.get("/api/card").json()
    assert (card["name"], card["version"]) == ("small", 17)
    assert (card["source_lang"], card["target_lang"]) == ("de", "en")
    assert card["source_name"] == "German"
    assert card["parameters"] == CARD.parameters
    assert card["limits"]["max_source_length"] == OPTIONS.max_source_length
    assert card["limits"]["max_texts"] == 2048
    assert (card["n_best"], card["explain"]) == (OPTIONS.n_best, True)


@pytest.mark.stands_for("n best of a real model")
def test_sentences_come_with_their_places_and_hypotheses(client, served):
    text = "Hund bellt.\n\n die Wiese! "
    body = {"text": text, "n_best": 2, "alignment": False}
    found = client.post("/api/translate", json=body).json()
    sentences = ["Hund bellt.", "die Wiese!"]
    expected = served("n_best", text=sentences)
    best = []
    for number, (one, sentence) in enumerate(
        zip(found["sentences"], sentences, strict=True)
    ):
        assert text[one["start"] : one["end"]] == one["source"] == sentence
        texts = [each["text"].encode() for each in one["hypotheses"]]
        assert texts == expected["translations"][number, :2].tolist()
        assert [each["score"] for each in one["hypotheses"]] == pytest.approx(
            expected["scores"][number, :2], rel=1e-4
        )
        assert one["words"] is None
        best.append(one["hypotheses"][0]["text"])
    assert found["translation"] == f"{best[0]}\n\n {best[1]} "


def test_a_search_that_finds_nothing_is_answered_in_plain_json():
    class Empty(WordByWord):
        def run(self, signature, rows):
            found = super().run(signature, rows)
            found["translations"][:], found["scores"][:] = b"", -np.inf
            return found

    with running(Empty()) as server:
        body = {"text": "Ein Hund.", "n_best": 3}
        found = httpx.post(f"{server.url}/api/translate", json=body)
    # JSON knows no -Infinity.
    found = json.loads(found.text, parse_constant=pytest.fail)
    (sentence,) = found["sentences"]
    assert sentence["hypotheses"] == [{"text": "", "score": None}]


def test_words_are_those_of_the_model_s_own_alignment(client, small_translator):
    source = "Hund bellt laut"
    body = {"text": source, "n_best": 1, "alignment": True}
    (sentence,) = client.post("/api/translate", json=body).json()["sentences"]
    translation = sentence["hypotheses"][0]["text"]
    (pairs,) = small_translator.align([source], [translation])
    assert [tuple(pair) for pair in sentence["words"]] == pairs


@pytest.mark.parametrize("body", [{"text": 7}, {"text": "a", "n_best": 0}])
def test_a_wrong_request_is_a_sentence(client, body):
    answer = client.post("/api/translate", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Expected ")


def test_the_page_is_strict(client):
    answer = client.get("/")
    policy = dict(
        part.split(" ", 1) for part in answer.headers[POLICY].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert "unsafe" not in answer.headers[POLICY]
    # Otherwise its questions could come without an origin.
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.text.count("<script") == 1


def test_the_viewer_may_run_its_own_script_alone():
    fragment = make_explanation().to_html()
    (script,) = re.findall("<script>(.*?)</script>", fragment, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    assert f"script-src 'sha256-{digest.decode()}';" in viewer.policy()


def test_a_sentence_is_explained_where_there_is_a_run():
    with running(
        StillModel(), explain=lambda text, version: f"<p>{text}"
    ) as server:
        url = f"{server.url}/explain"
        answer = httpx.get(url, params={"text": "Hund & Wiese"})
        assert answer.text == "<p>Hund & Wiese"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers[POLICY] == viewer.policy()
        answer = httpx.get(url, params={"text": " "})
        assert answer.status_code == 400
    with running(StillModel()) as server:
        answer = httpx.get(f"{server.url}/explain", params={"text": "Hund"})
        assert answer.status_code == 404
        assert "--run-dir" in answer.json()["error"]
        card = httpx.get(f"{server.url}/api/card").json()
        assert card["explain"] is False


def test_explanations_that_nobody_waits_for_take_no_other_thread():
    begun, are_alone = [], []
    may_end, at_work = threading.Event(), threading.Lock()

    def explain(text, version):
        begun.append(text)
        are_alone.append(at_work.acquire(blocking=False))
        may_end.wait(120)
        at_work.release()
        return text

    with running(StillModel(), explain=explain) as server:
        url = f"{server.url}/explain"
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(
                b"GET /explain?text=Hund+0 HTTP/1.1\r\nHost: a\r\n\r\n"
            )
            until(lambda: begun)
        for i in range(1, 9):
            with contextlib.suppress(httpx.TimeoutException):
                httpx.get(url, params={"text": f"Hund {i}"}, timeout=0.3)
        for _ in range(2):  # By then the server knows who has left.
            httpx.get(f"{server.url}/languages")
        # The first runs on alone; those whose clients left never begin, except
        # perhaps the last, whose end may not be known yet.
        assert begun == ["Hund 0"]
        may_end.set()
        answer = httpx.get(url, params={"text": "Wiese"})
        assert answer.text == "Wiese"
    assert set(begun) <= {"Hund 0", "Hund 8", "Wiese"}
    assert all(are_alone)


def test_a_version_is_explained_by_its_own_weights_or_not_at_all(monkeypatch):
    read = []

    def translator(run):
        read.append(run)
        page = f"<p>read {len(read)} times"
        explained = SimpleNamespace(to_html=lambda: page)
        return SimpleNamespace(explain=lambda *_, **__: explained)

    monkeypatch.setattr(Run, "__init__", lambda self, path: None)
    monkeypatch.setattr(Run, "translator", translator)
    monkeypatch.setattr(Run, "chosen", lambda self: now)
    explain = explainer(pathlib.Path("runs/mine"))
    now, later = (
        Weights(chosen=(Chosen((step,), 7),)) for step in ("step-3", "step-4")
    )
    assert "<p>read 1 times" in explain("Hund", "step-3 00000007")
    assert "<p>read 1 times" in explain("Hund", "step-3 00000007")
    now = later
    assert "<p>read 1 times" in explain("Hund", "step-3 00000007")
    assert "<p>read 2 times" in explain("Hund", "step-4 00000007")
    with pytest.raises(UserError, match="start the server again"):
        explain("Hund", "step-3 00000007")


@pytest.fixture(scope="module")
def obedient():
    """A server whose model writes what marks want."""
    with running(Obedient()) as found:
        yield found


def test_terms_of_a_request_come_out_as_they_are_wanted(obedient):
    client = httpx.Client(base_url=obedient.url, timeout=60)
    terms = {"hund": "hound"}
    body = {"text": "Ein Hund. Die Lampe {x}.", "terms": terms}
    found = client.post("/api/translate", json=body).json()
    assert found["translation"] == "hound. Ein {x}. lamp Die"
    body = {"q": "ein Hund", "source": "de", "target": "en", "terms": terms}
    found = client.post("/translate", json=body).json()
    assert found["translatedText"] == "hound a"
    for no_terms in (["a"], "a", {"a": 1}):
        body["terms"] = no_terms
        assert client.post("/translate", json=body).status_code == 400
    assert client.get("/api/card").json()["terms"] is True


def test_a_model_that_never_met_marks_refuses_terms(client):
    body = {"text": "Hund", "terms": {"Hund": "hound"}}
    found = client.post("/api/translate", json=body)
    assert found.status_code == 400 and "@terms" in found.json()["error"]
    body["terms"] = {}
    assert client.post("/api/translate", json=body).status_code == 200


@pytest.mark.stands_for("the server's page in a browser")
def test_a_browser_gets_from_a_text_to_the_viewer(visit, server, served):
    """The other tests of the page have a predictable model."""
    text = "Hund & Wiese"
    texts = served("n_best", text=[text])["translations"]
    opened = visit(server=server)
    with opened.page.expect_response("**/api/translate") as response:
        opened.field.fill(text)
    opened.wait_for(response.value.json()["translation"])
    opened.look_closer()
    rows = opened.page.locator("#hypotheses tr")
    # Where a text would come twice, the last places are empty.
    assert rows.count() == len(set(texts[0]) - {b""}) > 0
    with opened.page.context.expect_page() as found:
        opened.page.get_by_role("link", name="Explain this sentence").click()
    content = found.value.content().replace("&amp;", "&")
    assert text in content
    # Its script has drawn it.
    found.value.locator(".viewer .grid button").first.wait_for()
    scripts = found.value.locator("script:not([type])")
    assert scripts.count() == 1
