"""Where a package that an extra brings is missing, a sentence names it."""

import logging
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from project import EXTRAS
from sample_runs import OPTIONS

from keras_transformer.__main__ import parse_args
from keras_transformer.config import UserError
from keras_transformer.data import corpora, demo
from keras_transformer.exporting import ctranslate2, saved_model
from keras_transformer.machine import extras
from keras_transformer.runs import history
from keras_transformer.translation import sentences


def without(monkeypatch, *packages):
    """Do what Python does for packages that are not there."""
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            monkeypatch.delitem(sys.modules, name)
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def packages(words):
    """The packages that a command names, without the end of the sentence."""
    return {str(Requirement(word)) for word in shlex.split(words.rstrip("."))}


def asked_for(extra):
    return {str(Requirement(line)) for line in EXTRAS[extra]}


def start_server(folder):
    args = parse_args(["serve", str(folder)])
    args.verb(args)


def read_demo(_):
    list(corpora.open_corpus("demo", "en", "de").pairs("val"))


@pytest.mark.parametrize(
    "package, extra, use",
    [
        ("num2words", "demo", read_demo),
        ("babel", "demo", read_demo),
        (
            "tensorflow_datasets",
            "tfds",
            lambda _: corpora.open_corpus("tfds:wmt14_translate", "de", "en"),
        ),
        ("matplotlib", "plot", history.draw),
        ("sentencex", "sentences", lambda _: sentences.spans_of("A. B.", "en")),
        (
            "uvicorn",
            "serve",
            start_server,
        ),
        (
            "ctranslate2",
            "ctranslate2",
            lambda folder: ctranslate2.check_output(folder / "new"),
        ),
    ],
)
def test_a_missing_package_is_one_sentence_with_the_command(
    tmp_path, monkeypatch, package, extra, use
):
    for name in ("_all_splits", "_spell"):  # Without what they remember.
        function = getattr(demo, name).__wrapped__
        monkeypatch.setattr(demo, name, function)
    without(monkeypatch, package)
    with pytest.raises(UserError) as error:
        use(tmp_path)
    said = re.fullmatch(
        rf"Expected the package {package}, cannot import it \([^\n]*\); "
        r"install it with pip install (.*)\.",
        str(error.value),
    )
    assert said and packages(said[1]) == asked_for(extra)


def test_no_command_names_this_package_whose_name_is_anothers_on_pypi(
    monkeypatch,
):
    for extra in set(EXTRAS) - {"all"}:
        assert "keras" not in extras.install_command(extra)

    # Theirs, or none, in an environment that never installed this one.
    monkeypatch.setattr(extras.metadata, "requires", lambda name: ["numpy"])
    found = extras.install_command("demo")
    assert found == "pip install '.[demo]' in the clone"

    def none(name):
        raise extras.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras.metadata, "requires", none)
    assert extras.install_command("demo") == found


def test_a_package_that_is_there_is_imported():
    assert extras.needs("json.decoder", "demo").JSONDecoder


@pytest.mark.slow
def test_an_export_without_servings_messages_leaves_out_its_files_and_says_so(
    small_translator, tmp_path, monkeypatch, caplog
):
    without(monkeypatch, "tensorflow_serving")
    caplog.set_level(logging.WARNING, "keras_transformer")
    path = saved_model.export(small_translator, tmp_path / "new", 1, OPTIONS)
    assert (path / "saved_model.pb").exists()
    assert not (path / "assets.extra").exists()
    assert {file.name for file in path.parent.iterdir()} == {
        "1",
        "batching_parameters.txt",
    }
    (message,) = caplog.messages
    assert message.startswith("Leaving out models.config and the warm-up")
    assert packages(message.rpartition("pip install ")[2]) == asked_for(
        "serving"
    )


@pytest.mark.slow
def test_every_module_can_be_imported_without_any_extra():
    program = """
import importlib, pkgutil, sys
import keras_transformer
for name in sys.argv[1:]:
    sys.modules[name] = None
names = [
    module.name
    for module in pkgutil.walk_packages(
        keras_transformer.__path__, "keras_transformer."
    )
    # The server is made of its extra.
    if not module.name.startswith("keras_transformer.serving.")
]
assert len(names) > 50
for name in names:
    importlib.import_module(name)
"""
    packages = (
        *("babel", "num2words", "tensorflow_datasets", "importlib_resources"),
        *("matplotlib", "sentencex", "ctranslate2", "tensorflow_serving"),
        *("starlette", "uvicorn", "prometheus_client", "python_multipart"),
        "safetensors",
    )
    subprocess.run(
        [sys.executable, "-c", program, *packages],
        check=True,
        cwd=pathlib.Path(__file__).parents[1],
    )
