"""What pyproject.toml promises, and the requirements beside it."""

import re

import pytest
import yaml
from packaging.requirements import Requirement
from project_table import EXTRAS, PROJECT, ROOT

import keras_transformer

# Extras of examples, which the package itself does not use.
OF_EXAMPLES = {"beam", "parsing"}
# sacreBLEU's, for the words of a language.
OF_LANGUAGES = {"ja", "ko"}
# Extras that the README's two commands need.
OF_MAKE = (*("plot", "sentences", "serve", "serving", "tfds", "words"),)


def parsed(lines):
    return {str(Requirement(line)) for line in lines}


def read(name):
    """The requirements of a file, without its comments."""
    lines = (ROOT / name).read_text().splitlines()
    return parsed(line for line in lines if line and line[0] != "#")


def test_make_installs_what_the_package_and_its_extras_ask_for():
    asked = PROJECT["dependencies"] + [x for e in OF_MAKE for x in EXTRAS[e]]
    assert read("requirements.txt") == parsed(asked)
    for extra in ("beam", "ctranslate2", "import", "ja", "ko", "parsing"):
        assert parsed(EXTRAS[extra]) < read("requirements-test.txt")


def test_the_extra_all_has_what_the_package_uses_but_what_is_large():
    (line,) = EXTRAS["all"]
    everything = Requirement(line)
    assert everything.name == PROJECT["name"]
    others = {"all", "gpu"} | OF_EXAMPLES | OF_LANGUAGES
    assert everything.extras == set(EXTRAS) - others
    # They take the same TensorFlow.
    (line,) = EXTRAS["gpu"]
    on_gpus = Requirement(line)
    assert on_gpus.extras == {"and-cuda"}
    on_gpus.extras = set()
    assert str(on_gpus) in parsed(PROJECT["dependencies"])


@pytest.mark.parametrize("pin", sorted(read("requirements-oldest.txt")))
def test_the_oldest_versions_are_within_the_bounds(pin):
    pin = Requirement(pin)
    (version,) = (part.version for part in pin.specifier)
    for line in read("requirements.txt"):
        bounds = Requirement(line)
        if (bounds.name, bounds.marker) == (pin.name, pin.marker):
            assert bounds.specifier.contains(version)


@pytest.mark.parametrize(
    "name", ["Containerfile", "examples/cluster/Containerfile"]
)
def test_an_image_is_made_of_what_there_is(name):
    text = (ROOT / name).read_text()
    copied = re.findall(r"^COPY (.*) /source/", text, re.MULTILINE)
    for path in " ".join(copied).split():
        assert (ROOT / path).exists()
    # A wheel is built from these.
    assert set(" ".join(copied).split()) >= {
        *("pyproject.toml", "keras_transformer"),
        *(PROJECT["readme"], *PROJECT["license-files"]),
    }
    (extras,) = re.findall(r"/source\[(.*)\]", text)
    assert set(extras.split(",")) <= set(EXTRAS)


def test_the_workflows_test_every_python_and_publish_without_a_password():
    def jobs(name):
        path = ROOT / ".github" / "workflows" / name
        return yaml.safe_load(path.read_text())["jobs"]

    tested = jobs("tests.yml")["test"]["strategy"]["matrix"]["python"]
    python = "Programming Language :: Python :: 3."
    assert [f"{python}{x.removeprefix('3.')}" for x in tested] == [
        x for x in PROJECT["classifiers"] if x.startswith(python)
    ]
    publish = jobs("release.yml")["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi" and publish["needs"] == "build"


def test_the_version_has_one_source_and_others_agree():
    version = keras_transformer.__version__
    assert "version" in PROJECT["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    first = re.search("^## (.*?) ", (ROOT / "CHANGELOG.md").read_text(), re.M)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert first[1] == cited["version"] == version
    assert cited["license"] == PROJECT["license"]
    assert cited["repository-code"] == PROJECT["urls"]["Repository"]
    assert cited["keywords"] == PROJECT["keywords"]
