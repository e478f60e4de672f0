"""LibreTranslate's interface, with a client that others wrote."""

import urllib.error

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

TEXT = "Hund bellt."


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


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


def test_its_python_client_is_refused_what_the_model_cannot_do(server):
    api = LibreTranslateAPI(server.url)
    for source, target in ("en", "de"), ("fr", "en"), ("de", "de"):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            api.translate(TEXT, source, target)
    with pytest.raises(urllib.error.HTTPError, match="501"):
        api.detect(TEXT)


def test_documents_keep_their_paragraphs(client, translations):
    text = "Hund bellt. Die Wiese!\n\n  grüne Wiese\n"
    one, two, three = translations("Hund bellt.", "Die Wiese!", "grüne Wiese")
    body = {"q": text, "source": "de", "target": "en", "format": "text"}
    answer = client.post("/translate", json=body)
    assert answer.json() == {"translatedText": f"{one} {two}\n\n  {three}\n"}


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
        ({"q": "a", "target": "en"}, "missing source parameter"),
        ({"q": "a", "source": "de"}, "missing target parameter"),
        ({**ASKED, "source": "fr"}, "fr is not supported"),
        ({**ASKED, "target": "fr"}, "fr is not supported"),
        ({**ASKED, "target": "auto"}, "auto is not supported"),
        ({**ASKED, "target": ["en"]}, "is not supported"),
        ({**ASKED, "format": "html"}, "html format is not supported"),
        ({**ASKED, "q": ["a", 7]}, "a list of texts"),
        ({**ASKED, "q": {"a": "b"}}, "a list of texts"),
        (
            {"q": "dog", "source": "en", "target": "de"},
            "German (de) is not available as a target language from English "
            "(en)",
        ),
        ({**ASKED, "q": ["a"] * 2_049}, "exceeds text limit (2048)"),
    ],
)
def test_a_wrong_request_is_refused_as_there(client, body, said):
    answer = client.post("/translate", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_half_a_character_becomes_a_sign_of_it(client, translations):
    content = b'{"q": "Hund \\ud83d", "source": "de", "target": "en"}'
    answer = client.post(
        "/translate",
        content=content,
        headers={"Content-Type": "application/json"},
    )
    (expected,) = translations("Hund \ufffd")
    assert answer.json() == {"translatedText": expected}


def test_files_are_refused(client):
    answer = client.post("/translate", files={"q": b"Hund"})
    assert answer.status_code == 415


def test_the_settings_name_both_languages(client):
    found = client.get("/frontend/settings").json()
    assert found["language"] == {
        "source": {"code": "de", "name": "German"},
        "target": {"code": "en", "name": "English"},
    }
    assert found["charLimit"] == 2**20 // 6
    assert not (found["keyRequired"] or found["filesTranslation"])
