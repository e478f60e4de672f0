"""`keras-transformer serve` as a process."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from project_table import ROOT
from waiting import until

from keras_transformer.__main__ import main


def test_wrong_arguments_are_a_sentence(tmp_path, capsys):
    for path in tmp_path / "1", tmp_path / "1" / "variables":
        path.mkdir()
        (path / "saved_model.pb").touch()
    for arguments, said in (
        ((), "expected either EXPORTED or --run-dir"),
        ((tmp_path / "1",), "folder of all versions of an export"),
        (("--run-dir", tmp_path), "run directory .*, not of an export"),
        ((tmp_path, "--cors", "example.org"), "origin such as https://"),
        ((tmp_path, "--allow-host", "https://example.org"), "scheme and port"),
        ((tmp_path, "--name", "a/b"), "model name without / and :"),
        ((tmp_path, "--ensemble", tmp_path), "--run-dir beside --ensemble"),
    ):
        try:
            code = main(["serve", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code
        assert code == 2
        assert re.search(said, capsys.readouterr().err)


@pytest.mark.slow
def test_a_server_answers_changes_over_and_finishes_what_it_took(
    exported, served, tmp_path
):
    folder = tmp_path / "small"
    shutil.copytree(exported, folder / "17")
    command = [sys.executable, "-m", "keras_transformer", "serve", folder]
    process = subprocess.Popen(
        [*command, "--port", "0", "--cors", "https://Example.org"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        line = process.stderr.readline()
        url = re.fullmatch(
            r"\d\d:\d\d:\d\d Serving at (http://127.0.0.1:\d+)\n", line
        )[1]
        text = "Hund bellt"
        (expected,) = served("serving_default", text=[text])["translation"]
        # Browsers write the names of sites in small letters.
        site = {"Origin": "https://example.org", "Sec-Fetch-Site": "cross-site"}
        answer = httpx.get(f"{url}/api/card", headers=site)
        assert answer.headers["Access-Control-Allow-Origin"] == site["Origin"]

        # A newer version comes, and no request is lost meanwhile.
        shutil.copytree(exported, tmp_path / "18")
        (tmp_path / "18").rename(folder / "18")
        path = "/v1/models/small:predict"

        def is_newer():
            answer = httpx.post(url + path, json={"inputs": [text]})
            found = answer.raise_for_status().json()["outputs"]["translation"]
            assert found == [expected.decode()]
            answer = httpx.get(f"{url}/v1/models/small")
            newest = answer.json()["model_version_status"][0]
            return (newest["version"], newest["state"]) == ("18", "AVAILABLE")

        until(is_newer)

        # Accepted requests are finished, then the process ends.
        body = json.dumps({"inputs": [f"{text} {i}" for i in range(97)]})
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        )
        head += f"Content-Length: {len(body)}\r\n\r\n"
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 60) as line:
            line.sendall(f"{head}{body}".encode())
            # Who comes later has an answer: the server has read that one.
            httpx.get(f"{url}/languages")
            process.send_signal(signal.SIGTERM)
            said = b"".join(iter(lambda: line.recv(1 << 16), b""))
        outputs = json.loads(said.partition(b"\r\n\r\n")[2])["outputs"]
        assert len(outputs["translation"]) == 97
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert re.fullmatch(r"\S+ Version 18 takes over from 17\n", errors)
    finally:
        process.kill()
        process.communicate()
