"""TensorFlow Serving's REST interface, of the embedded server.

The expected answers follow TensorFlow Serving's documentation, or its sources
where that is silent; the numbers are those of the session loader.
"""

import base64
import gzip
import json

import httpx
import numpy as np
import pytest
from running_server import running
from still_model import StillModel

TEXTS = ["ein kleiner Hund bellt", "", "über die Wiese 😀"]
PREDICT = "/v1/models/small:predict"


@pytest.fixture(scope="module")
def expected(served):
    """The columns of `TEXTS`, as JSON has them."""
    found = served("serving_default", text=TEXTS)
    return {
        "translation": [text.decode() for text in found["translation"]],
        "score": pytest.approx(found["score"], rel=1e-4),
        "truncated": found["truncated"].tolist(),
    }


def test_status_tells_the_version(client):
    (status,) = client.get("/v1/models/small").json()["model_version_status"]
    assert status == {
        "version": "17",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    again = client.get("/v1/models/small/versions/17").json()
    assert again == {"model_version_status": [status]}


@pytest.mark.parametrize(
    "inputs", [TEXTS, {"text": TEXTS}], ids=["alone", "by name"]
)
@pytest.mark.parametrize(
    "path", [PREDICT, "/v1/models/small/versions/17:predict"]
)
def test_columns_are_answered_in_columns(client, expected, inputs, path):
    answer = client.post(path, json={"inputs": inputs})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"outputs": expected}


@pytest.mark.parametrize("by_name", [False, True])
def test_rows_are_answered_in_rows(client, expected, by_name):
    rows = [{"text": text} for text in TEXTS] if by_name else TEXTS
    found = client.post(PREDICT, json={"instances": rows}).json()["predictions"]
    assert {name: [row[name] for row in found] for name in expected} == expected
    assert all(row.keys() == expected.keys() for row in found)


def test_bytes_travel_in_base64(client, served, expected):
    def encoded(text, alphabet=b"+/"):
        return {"b64": base64.b64encode(text.encode(), alphabet).decode()}

    rows = [encoded(TEXTS[0]), encoded(""), encoded(TEXTS[2], b"-_")]
    rows[0]["b64"] = rows[0]["b64"].rstrip("=")
    rows[2]["b64"] = "\r\n".join(rows[2]["b64"])
    found = client.post(PREDICT, json={"inputs": rows}).json()
    assert found == {"outputs": expected}
    # This is no text in UTF-8.
    found = client.post(PREDICT, json={"instances": [{"b64": "/w=="}]}).json()
    (row,) = found["predictions"]
    (score,) = served("serving_default", text=[b"\xff"])["score"]
    assert row["score"] == pytest.approx(score, rel=1e-4)


def test_a_packed_body_is_refused_in_a_sentence(client):
    body = gzip.compress(json.dumps({"inputs": TEXTS}).encode())
    answer = client.post(PREDICT, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "Expected UTF-8 JSON, cannot read it."


def test_matrices_are_those_of_the_request_alone(client, served):
    pairs = {"source": TEXTS, "target": TEXTS[::-1]}
    body = {"signature_name": "attention", "inputs": pairs}
    found = client.post(PREDICT, json=body).json()["outputs"]
    answer = served("attention", **pairs)
    assert np.shape(found["attention"]) == answer["attention"].shape
    np.testing.assert_allclose(
        found["attention"], answer["attention"], rtol=1e-3, atol=1e-5
    )
    assert found["source_pieces"][1] == [
        piece.decode() for piece in answer["source_pieces"][1]
    ]


def test_minus_infinity_is_as_it_is_there(client):
    body = {"signature_name": "n_best", "inputs": [" "]}
    text = client.post(PREDICT, json=body).text
    assert "[0.0, -Infinity, -Infinity]" in text


def two_sided(signature, num_sources, num_targets):
    inputs = {"source": ["a"] * num_sources, "target": ["b"] * num_targets}
    return {"signature_name": signature, "inputs": inputs}


@pytest.mark.parametrize(
    "body, said",
    [
        (two_sided("attention", 33, 33), "at most 32 rows for attention"),
        (b"", "Expected UTF-8 JSON"),
        ({"inputs": ["a"], "instances": ["a"]}, "either instances"),
        ({"instances": "ab"}, "either instances"),
        ({"inputs": "ab"}, "either instances"),
        ({"inputs": []}, "either instances"),
        ({"instances": [{"text": "a"}, {"txt": "a"}]}, "Expected a text"),
        ({"inputs": [{"b64": "?"}]}, "Expected a text"),
        (b'{"inputs": ["\\ud83d"]}', "whole characters"),
        (two_sided("none", 1, 1), "one of attention, n_best, score, serving"),
        (two_sided("score", 2, 1), "as many texts"),
        ({"signature_name": "score", "instances": ["a"]}, "source, target"),
    ],
)
def test_a_wrong_request_is_a_sentence(client, body, said):
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(PREDICT, content=content)
    assert (answer.status_code, set(answer.json())) == (400, {"error"})
    assert said in answer.json()["error"]


@pytest.mark.parametrize(
    "path, status, said",
    [
        ("/large:predict", 404, "no model large"),
        ("/small/versions/3:predict", 404, "no version 3"),
        ("/small/versions/3", 404, "no version 3"),
        ("/small/metadata", 400, "no GET"),
        ("", 400, ""),
        ("/small%2Fversions", 404, ""),
    ],
)
def test_an_unknown_place_is_a_sentence_with_its_code(
    client, path, status, said
):
    body = {"json": {"instances": ["a"]}} if ":" in path else {}
    method = "POST" if body else "GET"
    answer = client.request(method, f"/v1/models{path}", **body)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})
    assert said in answer.json()["error"]


def test_one_output_stands_without_its_name():
    class WithLengths(StillModel):
        def run(self, signature, rows):
            return {"score": np.array([len(text) / 4 for (text,) in rows])}

    with running(WithLengths()) as server:
        for given, name in ("instances", "predictions"), ("inputs", "outputs"):
            body = {given: ["ab", "abcdef"]}
            answer = httpx.post(server.url + PREDICT, json=body, timeout=60)
            assert answer.json() == {name: [0.5, 1.5]}
