"""A missing package of an extra is a sentence with the command."""

import logging
import re
import shlex
import sys
import types
from importlib import metadata

import pytest
from programs import python
from project_table import EXTRAS, PROJECT
from sample_runs import OPTIONS

from keras_transformer.__main__ import parse_args
from keras_transformer.config import UserError
from keras_transformer.data.corpora import open_corpus
from keras_transformer.exporting import saved_model
from keras_transformer.exporting.ctranslate2 import check
from keras_transformer.machine import extras
from keras_transformer.runs import history
from keras_transformer.translation import sentences


@pytest.fixture
def installed(monkeypatch):
    """Let `extras` see this package installed."""
    replacement = types.SimpleNamespace(
        version=lambda name: "1.2.3",
        PackageNotFoundError=metadata.PackageNotFoundError,
    )
    monkeypatch.setattr(extras, "metadata", replacement)


def without(monkeypatch, *packages):
    """Do what Python does for missing packages."""
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            monkeypatch.delitem(sys.modules, name)
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def is_asked_for(command, extra):
    """Tell whether a command, which may end a sentence, installs an extra."""
    assert extra in EXTRAS
    asked = f"{PROJECT['name']}[{extra}]"
    return shlex.split(command.rstrip(".")) == ["pip", "install", asked]


def start_server(folder):
    (folder / "1").mkdir()
    (folder / "1" / "saved_model.pb").touch()
    args = parse_args(["serve", str(folder)])
    args.verb(args)


@pytest.mark.parametrize(
    "package, extra, use",
    [
        ("tensorflow_datasets", "tfds", lambda _: open_corpus("tfds:a")),
        ("matplotlib", "plot", history.plot),
        ("sentencex", "sentences", lambda _: sentences.Splitter("en", "de")),
        ("uvicorn", "serve", start_server),
        ("ctranslate2", "ctranslate2", lambda at: check(at / "new", "int8")),
    ],
)
def test_a_missing_package_is_one_sentence_with_the_command(
    tmp_path, monkeypatch, installed, package, extra, use
):
    without(monkeypatch, package)
    with pytest.raises(UserError) as error:
        use(tmp_path)
    said = re.fullmatch(rf".* {package}[^\n]* (pip .*)\.", str(error.value))
    assert said and is_asked_for(said[1], extra)


@pytest.mark.slow
def test_an_export_without_servings_messages_has_no_warm_up_and_says_so(
    small_translator, tmp_path, monkeypatch, installed, one_signature, caplog
):
    without(monkeypatch, "tensorflow_serving")
    caplog.set_level(logging.WARNING, "keras_transformer")
    path = saved_model.export(small_translator, tmp_path / "new", 1, OPTIONS)
    assert (path / "saved_model.pb").exists()
    assert not (path / "assets.extra").exists()
    beside = {file.name for file in path.parent.iterdir()}
    assert beside == {"1", "batching_parameters.txt"}
    (message,) = caplog.messages
    assert is_asked_for(message[message.index("pip install ") :], "serving")


IMPORT_ALL = """
import importlib, pkgutil, sys
import keras_transformer
sys.modules.update(dict.fromkeys(sys.argv[1:]))
found = pkgutil.walk_packages(keras_transformer.__path__, "keras_transformer.")
# The server is made of its extra.
names = [x.name for x in found if ".serving." not in x.name]
assert len(names) > 50
for name in names:
    importlib.import_module(name)
"""


@pytest.mark.slow
def test_every_module_can_be_imported_without_any_extra():
    packages = (
        *("tensorflow_datasets", "importlib_resources"),
        *("matplotlib", "sentencex", "ctranslate2", "tensorflow_serving"),
        *("starlette", "uvicorn", "icu4py"),
        *("safetensors", "yaml"),
    )
    python("-c", IMPORT_ALL, *packages)
