"""The proxy of examples/serving holds slow clients off the server."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import httpx
import pytest
import yaml
from local_workers import free_ports
from project_table import ROOT
from running_server import running
from still_model import StillModel
from waiting import until

EXAMPLES = ROOT / "examples" / "serving"
PREDICT = "/v1/models/small:predict"
BODY = json.dumps({"inputs": ["Hund"]}).encode()

pytestmark = pytest.mark.example


def lacks(what):
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


def nginx():
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if not found:
        lacks("No nginx was found; install it with: make programs")
    return found


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    """The server, and the port of nginx in front of it, with less patience."""
    folder, program = tmp_path_factory.mktemp("proxy"), nginx()
    port = next(free_ports())
    with running(StillModel()) as server:
        text = (EXAMPLES / "nginx.conf").read_text()
        for old, new in (
            ("translator:8501", f"127.0.0.1:{server.port}"),
            ("listen 8080", f"listen 127.0.0.1:{port}"),
            ("/tmp/", f"{folder}/"),
            ("header_timeout 10s", "header_timeout 1s"),
            ("body_timeout 10s", "body_timeout 1s"),
        ):
            assert old in text
            text = text.replace(old, new)
        path = folder / "nginx.conf"
        path.write_text(text)
        process = subprocess.Popen(
            [program, "-c", path, "-g", "daemon off;", "-e", "stderr"]
        )
        try:
            until(lambda: is_open(port))
            yield server, port
        finally:
            process.terminate()
            process.wait(20)


def is_open(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True


def head(length):
    return (
        f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        f"{length}\r\n\r\n"
    ).encode()


def said(line):
    pieces = iter(lambda: line.recv(1 << 16), b"")
    return b"".join(pieces)


def test_requests_and_answers_pass_and_the_name_that_was_asked_for(proxied):
    server, port = proxied
    answer = httpx.post(f"http://127.0.0.1:{port}{PREDICT}", content=BODY)
    assert answer.json()["outputs"]["translation"] == ["dnuH"]
    origin = {"Origin": f"http://127.0.0.1:{port}"}
    url = f"http://127.0.0.1:{port}/languages"
    assert httpx.get(url, headers=origin).status_code != 403


def test_heads_and_bodies_that_do_not_come_never_reach_the_server(proxied):
    server, port = proxied
    for begun in (b"POST / HT", head("Content-Length: 9") + b"{"):
        with socket.create_connection(("127.0.0.1", port), 20) as line:
            line.sendall(begun)
            start = time.monotonic()
            assert said(line)[:12] in (b"", b"HTTP/1.1 408")
            assert time.monotonic() - start < 10
    assert server.service.held == 0


def test_one_address_cannot_take_all_connections(proxied):
    server, port = proxied
    with contextlib.ExitStack() as stack:
        for _ in range(250):  # Each has begun a body, so it counts.
            line = socket.create_connection(("127.0.0.1", port), 20)
            stack.enter_context(line).sendall(head("Content-Length: 9") + b"{")
        url = f"http://127.0.0.1:{port}/languages"
        until(lambda: httpx.get(url).status_code == 503)
        # Others do not notice.
        direct = httpx.get(f"{server.url}/languages")
        assert direct.status_code != 503


# A root that nobody can write to, with a new /tmp.
READ_ONLY = """
mount --make-rprivate / && mount --bind -o ro "$1" /srv &&
mount -t tmpfs tmpfs /tmp && mount -o remount,ro,bind / &&
! touch /a && ! touch /srv/a && shift && exec "$@"
"""


@pytest.mark.parametrize("what", ["export", "run"])
def test_the_server_starts_where_only_tmp_can_be_written(
    tmp_path, exported, small_run, what
):
    text = (EXAMPLES / "compose.embedded.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    assert "ports" not in services["translator"]
    for service in services.values():
        assert (service["read_only"], service["tmpfs"]) == (True, "/tmp")
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    if subprocess.run([*unshared, "mount --make-rprivate /"]).returncode:
        lacks("This machine allows no namespaces.")
    if ROOT.is_relative_to("/tmp"):
        lacks("The new /tmp would hide the package.")
    served = exported.parent if what == "export" else small_run
    command = [*unshared, READ_ONLY, "sh", served, sys.executable]
    command += ["-m", "keras_transformer", "serve", "/srv", "--port", "0"]
    # Whatever else is mounted here can be written, so nothing leads there.
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    env |= {"HOME": "/nonexistent", "TMPDIR": "/tmp"}
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd="/", env=env, stderr=file)
    try:

        def url():
            assert process.poll() is None, log.read_text()
            return re.search(r"Serving at (\S+)\n", log.read_text())

        until(url)
        assert httpx.get(f"{url()[1]}/health").status_code == 200
    finally:
        process.kill()
        process.wait()
