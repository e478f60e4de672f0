"""The server holds: limits, clients that leave or do nothing, odd bytes."""

import contextlib
import json
import logging
import socket
import time

import httpx
import numpy as np
import pytest
from running_server import running
from still_model import StillModel
from waiting import until

from keras_transformer.config import UserError
from keras_transformer.serving import server as server_module
from keras_transformer.serving.limits import Batching, Limits
from keras_transformer.serving.server import bind, names_of

PREDICT = "/v1/models/small:predict"
SECRET = "Geheimnis"
# Room for three texts.
BATCHING = Batching(1, 0, num_batch_threads=1, max_enqueued_batches=2)
LIMITS = Limits(max_body_bytes=4_096, timeout=20)


@pytest.fixture
def model():
    found = StillModel()
    yield found
    found.gate.set()


@pytest.fixture
def held(model):
    """A server of that model, with little room."""
    with running(model, BATCHING, LIMITS) as server:
        yield server


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), 20)


def head(size):
    """The head of a question whose body has that many bytes."""
    lines = f"POST {PREDICT} HTTP/1.1", "Host: a", f"Content-Length: {size}"
    return "\r\n".join([*lines, "\r\n"]).encode()


def talk(server, *requests):
    """The server's answers to each of these bytes, at once, until it closes."""
    with contextlib.ExitStack() as stack:
        lines = []
        for sent in requests:
            lines.append(stack.enter_context(connect(server)))
            lines[-1].sendall(sent)
        answers = []
        for line in lines:
            said = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := line.recv(1 << 16):
                    said += piece
            answers.append(said)
    return answers


@contextlib.contextmanager
def asking(server, text=SECRET):
    """A client that has asked and waits."""
    body = json.dumps({"inputs": [text]}).encode()
    with connect(server) as line:
        line.sendall(head(len(body)) + body)
        yield line


def test_a_full_queue_is_a_503_and_others_are_answered_meanwhile(held, model):
    model.gate.clear()
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(asking(held)) for _ in range(3)]
        until(lambda: held.service.batcher.taken == 3)
        for path, body in (
            (PREDICT, {"inputs": ["a"]}),
            ("/translate", {"q": "a", "source": "de", "target": "en"}),
            ("/api/translate", {"text": "a"}),
        ):
            answer = httpx.post(held.url + path, json=body)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert "try again" in answer.json()["error"]
        assert httpx.get(f"{held.url}/languages").status_code == 200
        model.gate.set()
        for line in lines:
            assert line.recv(1 << 16).startswith(b"HTTP/1.1 200")
    assert held.service.batcher.taken == 0


def test_a_client_that_leaves_frees_its_place(held, model):
    model.gate.clear()
    with asking(held, "first"):
        until(lambda: model.texts)
        with asking(held, "second"):
            until(lambda: held.service.batcher.taken == 2)
        until(lambda: held.service.batcher.taken == 1)
    until(lambda: held.service.batcher.taken == 0)
    model.gate.set()
    httpx.post(held.url + PREDICT, json={"inputs": ["third"]})
    # The first was with the model already; the second never came there.
    assert model.texts == [b"first", b"third"]


def test_no_request_takes_longer_than_the_limit(model):
    limits = Limits(timeout=0.2)
    model.gate.clear()
    with running(model, BATCHING, limits) as server:
        answer = httpx.post(server.url + PREDICT, json={"inputs": ["a"]})
        assert (answer.status_code, set(answer.json())) == (504, {"error"})
        # The answer comes before the place is given back.
        until(lambda: server.service.batcher.taken == 0)
        model.gate.set()


def test_a_body_beyond_the_limit_is_refused_announced_or_not(held):
    body = b"x" * 4_097
    announced = httpx.post(held.url + PREDICT, content=body)
    piecemeal = httpx.post(
        held.url + PREDICT, content=iter([body[:4_000], body[4_000:]])
    )
    for answer in announced, piecemeal:
        assert answer.status_code == 413
        assert "at most 4096 bytes" in answer.json()["error"]


def test_a_body_of_two_lengths_is_refused(held):
    length = b"Transfer-Encoding: chunked\r\nContent-Length: "
    sent = head(5).replace(b"Content-Length: ", length) + b"0\r\n\r\n"
    (said,) = talk(held, sent)
    assert said.startswith(b"HTTP/1.1 400") and b"one length" in said


def test_a_body_that_trickles_in_has_no_longer_time_than_another(model):
    limits = Limits(body_seconds=0.3)
    with running(model, limits=limits) as server, connect(server) as line:
        line.sendall(head(4_000))
        line.settimeout(0.05)  # A byte at a time, far within the limit.
        said, end = b"", time.monotonic() + 60
        while not said and time.monotonic() < end:
            with contextlib.suppress(ConnectionError):  # It has answered.
                line.sendall(b"{")
            with contextlib.suppress(TimeoutError):
                said = line.recv(1 << 16)
    assert said.startswith(b"HTTP/1.1 408")


def test_bodies_have_one_room_until_they_are_answered(model):
    body = json.dumps({"inputs": [SECRET]}).encode().ljust(4_000)
    model.gate.clear()
    limits = Limits(body_seconds=20, max_bytes_held=5_000)
    with running(model, limits=limits) as server, connect(server) as first:
        service = server.service
        first.sendall(head(4_000) + body[:3_000])
        until(lambda: service.held == 3_000)
        with connect(server) as other:
            other.sendall(head(4_000) + body[:3_000])
            assert other.recv(1 << 16).startswith(b"HTTP/1.1 503")
        until(lambda: service.held == 3_000)
        first.sendall(body[3_000:])
        until(lambda: service.batcher.taken == 1)
        refused = httpx.post(server.url + PREDICT, content=body)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        with asking(server) as short:
            until(lambda: service.batcher.taken == 2)
            model.gate.set()
            for line in first, short:
                assert b"HTTP/1.1 200" in line.recv(1 << 16)
        until(lambda: service.held == 0)


def test_connections_beyond_the_limit_are_told_to_come_again(model):
    limits = Limits(max_connections=3)
    with running(model, limits=limits) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(connect(server)).sendall(b"GET")
            assert httpx.get(f"{server.url}/languages").status_code == 503
        until(lambda: httpx.get(f"{server.url}/languages").status_code == 200)


def test_no_client_puts_off_the_end(model, monkeypatch):
    monkeypatch.setattr(server_module, "SHUTDOWN_SECONDS", 0.3)
    with running(model) as server:
        line = connect(server)
        line.sendall(head(9) + b" ")
        until(lambda: server.service.held)
        start = time.monotonic()
    assert time.monotonic() - start < 10
    line.close()


def test_a_name_that_another_page_led_here_is_refused(model):
    names = names_of("127.0.0.1", ["translate.example"])
    with running(model, hosts=names) as server:
        for name, status in (
            ("localhost", 200),
            ("[::1]:8501", 200),
            ("translate.example", 200),
            ("evil.example", 400),
            ("localhost.evil.example", 400),
        ):
            found = httpx.get(f"{server.url}/languages", headers={"Host": name})
            assert found.status_code == status, name
    assert names_of("0.0.0.0") == ["*"]
    assert "*" not in names_of("0.0.0.0", ["translate.example"])


def test_a_page_of_another_site_makes_the_model_do_nothing(model):
    friend, allowed = "https://example.org", "access-control-allow-origin"
    cross = {"Sec-Fetch-Site": "cross-site"}
    link = {**cross, "Sec-Fetch-Mode": "navigate"}
    proxied = {"Origin": "https://a.org"}
    with running(model, origins=[friend], explain="{} {}".format) as server:
        for path, headers, status in (
            ("/explain?text=a", {**cross, "Sec-Fetch-Mode": "no-cors"}, 403),
            ("/explain?text=a", link, 403),
            ("/explain?text=a", {"Sec-Fetch-Site": "same-origin"}, 200),
            ("/", link, 200),
            ("/languages", {**cross, "Origin": friend}, 200),
            ("/languages", {**cross, "Origin": "https://other.org"}, 403),
            # Over plain HTTP on a network.
            ("/languages", {"Origin": f"http://127.0.0.1:{server.port}"}, 200),
            ("/languages", {"Origin": "http://127.0.0.1:1"}, 403),
            # As a proxy writes it that has the name of the site.
            ("/languages", {**proxied, "Host": "a.org:443"}, 200),
            ("/languages", {**proxied, "Host": "a.org:80"}, 403),
            ("/languages", {"Origin": "null"}, 403),
            ("/languages", {"Origin": friend}, 200),
        ):
            found = httpx.get(server.url + path, headers=headers)
            assert found.status_code == status, (path, headers)
            named = friend if headers.get("Origin") == friend else None
            assert found.headers.get(allowed) == named
            exposed = found.headers.get("access-control-expose-headers")
            assert exposed == "Retry-After" or not named
        # A form of another site navigates, too.
        found = httpx.post(server.url, data={"text": "a"}, headers=link)
        assert found.status_code == 403
    other = {**cross, "Origin": "https://other.org"}
    for origins, status, named in ((["*"], 200, "*"), ([], 403, None)):
        with running(model, origins=origins) as server:
            found = httpx.get(f"{server.url}/languages", headers=other)
        assert (found.status_code, found.headers.get(allowed)) == (
            status,
            named,
        )


def test_a_mistake_of_ours_is_a_500_and_no_text_goes_to_the_log(
    held, model, caplog
):
    model.error = ValueError(f"cannot translate {SECRET}")
    with caplog.at_level(logging.DEBUG):
        answer = httpx.post(held.url + PREDICT, json={"inputs": [SECRET]})
        ours = "No answer because of ValueError in still_model.py"
        until(lambda: ours in caplog.text)
        # Nor from what nobody waited for.
        server_module.log_lost(None, {"exception": OverflowError(SECRET)})
        assert "ended because of OverflowError" in caplog.text
    assert answer.status_code == 500
    assert answer.json() == {"error": "Internal error"}
    assert SECRET not in caplog.text
    model.error = None
    again = httpx.post(held.url + PREDICT, json={"inputs": [SECRET]})
    assert again.status_code == 200


def test_an_address_is_taken_before_anybody_is_served():
    with bind("127.0.0.1", 0) as first:
        address = first.getsockname()
        # Not yet: its model would have to answer first.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        first.listen()
        said = f"cannot listen at .* {address[1]}"
        with pytest.raises(UserError, match=said):
            bind(*address)


def odd_requests(draw):
    """Heads and bodies, each a little wrong."""
    paths = [PREDICT, "/translate", "/api/translate", "/", "/explain", "/v1/"]
    kinds = ["application/json", "application/x-www-form-urlencoded", "\xff"]
    bodies = [None, 10**30, {"inputs": float("nan")}, {"text": {"text": "b64"}}]
    bodies += {"instances": [{"b64": True}]}, {"q": [["de"]], "source": "auto"}
    for _ in range(60):
        path = str(draw.choice(paths)) + draw.bytes(2).hex()[: draw.integers(3)]
        body = bytearray(json.dumps(draw.choice(bodies)).encode())
        if draw.integers(2):
            body[draw.integers(len(body))] = draw.integers(256)
        head = (
            f"{draw.choice(['POST', 'GET', 'PUT', 'x'])} {path} HTTP/1.1\r\n"
            f"Host: a\r\nContent-Type: {draw.choice(kinds)}\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1")
        yield head + body


def test_every_odd_request_is_answered(held):
    sent = list(odd_requests(np.random.default_rng(11)))
    for request, said in zip(sent, talk(held, *sent), strict=True):
        assert said.startswith(b"HTTP/1.1 "), request
        assert not said.startswith(b"HTTP/1.1 500"), request
    assert held.service.batcher.taken == 0
    answer = httpx.post(held.url + PREDICT, json={"inputs": ["a"]})
    assert answer.status_code == 200
