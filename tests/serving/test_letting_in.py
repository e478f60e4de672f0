"""What is let in, in which order it is worked on, and what is refused."""

import asyncio
import json
import threading

import httpx
import pytest
from running_server import running
from still_model import StillModel
from waiting import until_in_loop
from word_by_word_model import WordByWord

from keras_transformer.serving import libretranslate_api
from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.limits import Batching, RefusalError
from keras_transformer.serving.service import Job

PREDICT = "/v1/models/small:predict"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data; boundary=x"
DE_EN = {"source": "de", "target": "en"}


@pytest.fixture(scope="module")
def still():
    model = StillModel()
    with running(model) as server:
        yield server, model


def post(server, path, body, kind=JSON, **headers):
    headers = {"Content-Type": kind, **headers}
    content = json.dumps(body) if isinstance(body, dict) else body
    return httpx.post(server.url + path, content=content, headers=headers)


@pytest.mark.parametrize(
    "path, kind, body, said",
    [
        ("/translate", JSON, {"q": [""] * 2_049, **DE_EN}, "(2049) exceeds"),
        (PREDICT, JSON, b'{"inputs":[' + b"[]," * 99_999, "10304 values"),
        ("/api/translate", JSON, b"[" * 9_999, "cannot read it"),
        ("/api/translate", JSON, {"text": "Go.\n" * 2_049}, "limit (2048)"),
        ("/translate", FORM, b"a=b&" * 99_999, "at most 64 fields"),
        ("/translate", PARTS, b"--x\r\n\r\n\r\n" * 99_999, "64 fields"),
        ("/translate", FORM, b"q=a&q=b&source=de&target=en", "in JSON"),
    ],
)
def test_what_is_dear_to_read_is_refused(still, path, kind, body, said):
    server, model = still
    model.batches.clear()
    answer = post(server, path, body, kind)
    assert answer.status_code == 400
    assert said in answer.text
    assert not model.texts


def test_long_bodies_are_read_and_answered_beside_the_loop(monkeypatch):
    threads = set()

    def note(place, name):
        read = getattr(place, name)

        def noting(*inputs):
            threads.add(threading.current_thread().name)
            return read(*inputs)

        monkeypatch.setattr(place, name, noting)

    note(Job, "as_json")
    note(libretranslate_api, "as_form")
    with running(WordByWord()) as server:
        for path, fields in (
            ("/translate", {"q": "Ein Hund.\n" * 300, **DE_EN}),
            ("/api/translate", {"text": "Ein Hund.\n" * 300}),
            (PREDICT, {"inputs": ["Ein Hund."] * 300}),
        ):
            answer = post(server, path, fields)
            assert answer.status_code == 200
            assert answer.text.count("dog. Ein") >= 300
        # The address may be long, too.
        address = f"/translate?q={'Hund+' * 500}&source=de&target=en"
        assert post(server, address, b"", FORM).status_code == 200
    assert threads and all(x.startswith("reader") for x in threads)


@pytest.mark.anyio
async def test_long_requests_leave_places_and_turns_to_short_ones():
    # Room for 32 texts, 24 of them for long requests.
    batching = Batching(8, 0, num_batch_threads=1, max_enqueued_batches=3)
    model, batcher = StillModel(), Batcher(batching)

    def begin(rows):
        run = batcher.run(model, "serving_default", rows)
        return asyncio.ensure_future(run)

    model.gate.clear()
    long = [(b"long",)] * 20
    tasks = [begin(long) for _ in range(3)]
    await until_in_loop(lambda: model.texts)
    assert (batcher.taken, batcher.taken_by_long) == (24, 24)
    with pytest.raises(RefusalError, match="try again"):
        await asyncio.wait_for(begin(long), 2)
    tasks += [begin([(b"short",)]) for _ in range(8)]
    await until_in_loop(lambda: batcher.taken == 32)
    model.gate.set()
    await asyncio.gather(*tasks)
    assert (batcher.taken, batcher.taken_by_long) == (0, 0)
    # One batch was in work.
    assert model.texts[8:16] == [b"short"] * 8
    assert model.texts.count(b"long") == 60


def test_no_field_of_a_request_reaches_the_log(caplog):
    caplog.set_level("DEBUG")
    secret = "Geheimnis"
    part = f'\r\nContent-Disposition: form-data; name="{secret}"; {secret}'
    fields = [{**DE_EN, "q": "a", x: secret} for x in ("q", "source", "x")]
    asked = [
        *[("/translate", JSON, each) for each in fields],
        ("/translate", FORM, f"q={secret}&source={secret}"),
        ("/translate", FORM, f"%{secret}"),
        ("/translate", PARTS, f"--x{part}\r\n\r\n{secret}\r\n--x--"),
        ("/translate", PARTS, f"--x\r\n{secret}\r\n\r\n{secret}"),
        ("/translate", f"multipart/form-data; boundary={secret}", "--"),
        ("/translate", secret, secret),
        ("/api/translate", JSON, {"text": secret}),
        (PREDICT, JSON, {"instances": [{secret: secret}]}),
        (PREDICT, JSON, secret),
        (f"/v1/models/{secret}:predict", JSON, "{}"),
        (f"/{secret}", JSON, secret),
    ]
    with running(WordByWord(), explain="{}".format) as server:
        for path, kind, body in asked:
            post(server, path, body, kind, Cookie=secret)
        for path in ("/explain?text=", "/v1/", "/languages?"):
            httpx.get(f"{server.url}{path}{secret}", headers={"Host": secret})
    said = [record.getMessage() for record in caplog.records]
    said = [text for text in said if not text.startswith("HTTP Request:")]
    assert secret not in " ".join(said)
