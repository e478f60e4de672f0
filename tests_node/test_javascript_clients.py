"""Clients of LibreTranslate in JavaScript, as npm has them.

`make test-node` runs this; it needs Node.js with npm.
"""

import json
import pathlib
import subprocess

import pytest
from running_server import running
from word_by_word_model import WordByWord

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The program beside the packages that it needs."""
    path = tmp_path_factory.mktemp("node")
    for name in ("clients.mjs", "package.json"):
        (path / name).write_bytes((HERE / name).read_bytes())
    subprocess.run(["npm", "install", "--silent"], cwd=path, check=True)
    return path


def test_they_translate_unchanged(folder):
    with running(WordByWord()) as server:
        found = subprocess.run(
            ["node", "clients.mjs", server.url],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
    answers = json.loads(found.stdout)
    assert answers["text"]["translatedText"] == "dog. small a"
    assert answers["other"] == "lamp. Die\n\ndog. Ein"
    assert "not available as a target" in answers["refused"]["error"]
