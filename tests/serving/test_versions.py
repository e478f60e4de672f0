"""Which version is served, and the change to a newer one."""

import asyncio
import os
import weakref

import pytest
from waiting import until_in_loop

from keras_transformer.config import UserError
from keras_transformer.serving import versions
from keras_transformer.serving.versions import Versions
from keras_transformer.translation.model_card import ModelCard

FAILING = "partly", "n_best"
SIGNATURES = {
    "partly": ["n_best", "serving_default"],
    "foreign": ["other"],
    "several": ["serving_default", "n_best", "attention"],
}


class Model:
    """Stands for a version.

    One whose file says `broken` cannot be loaded, one that says `half` cannot
    answer, nor one that says `partly` in its first signature.
    """

    def __init__(self, path, threads=0):
        self.text = (path / "saved_model.pb").read_text()
        if self.text == "broken":
            raise UserError(f"Expected a SavedModel in {path}.")
        self.version = int(path.name)
        self.card = ModelCard.load(path)
        self.called = []
        names = SIGNATURES.get(self.text, ["serving_default"])
        self.signatures = dict.fromkeys(names)

    def run(self, signature, rows):
        if self.text == "half" or (self.text, signature) == FAILING:
            raise RuntimeError("a table was not there")
        self.called.append((signature, len(rows[0])))

    def inputs(self, signature):
        return ["source", "target"] if signature == "attention" else ["text"]


@pytest.fixture(autouse=True)
def with_stand_ins(monkeypatch):
    monkeypatch.setattr(versions, "COPY_SECONDS", 0.0)
    monkeypatch.setattr(versions, "ServedModel", Model)


@pytest.fixture
def folder(tmp_path):
    for name in ("2", "9", "models.config", "beta", "10.part", "³"):
        write(tmp_path, name)
    (tmp_path / "11").mkdir()  # Not whole.
    return tmp_path


def write(folder, name, text="whole"):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "saved_model.pb").write_text(text)


def test_the_highest_number_takes_over_and_the_older_one_finishes(folder):
    served = Versions(folder)
    served.change_over()
    of_a_request = served.current
    write(folder, "12")
    served.change_over()
    assert (of_a_request.version, served.current.version) == (9, 12)
    older = weakref.ref(of_a_request)
    del of_a_request
    assert older() is None


@pytest.mark.parametrize(
    "text, said",
    [
        ("broken", "Expected a SavedModel"),
        ("half", "a table was"),
        ("partly", "a table was"),
        ("foreign", "no signature serving_default"),
    ],
)
def test_a_broken_version_is_told_and_tried_again(folder, text, said):
    served = Versions(folder)
    write(folder, "12", text)
    with pytest.raises(UserError, match=said):
        served.change_over()
    assert served.current.version == 9
    write(folder, "12")
    served.change_over()
    assert served.current.version == 12


def test_a_version_that_is_being_copied_waits_until_it_is_whole(
    folder, monkeypatch
):
    monkeypatch.setattr(versions, "COPY_SECONDS", 100.0)
    served = Versions(folder)
    write(folder, "12")
    served.change_over()
    assert served.current.version == 9
    for path in folder / "12", folder / "12" / "saved_model.pb":
        os.utime(path, (0, 0))
    served.change_over()
    assert served.current.version == 12


@pytest.mark.anyio
async def test_whatever_a_version_holds_the_next_one_is_served(
    folder, monkeypatch, caplog
):
    served = Versions(folder)
    write(folder, "12", "half")
    monkeypatch.setattr(versions, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(versions, "RETRY_SECONDS", 0.001)
    task = asyncio.ensure_future(served.follow())
    await until_in_loop(lambda: caplog.text)
    write(folder, "13")
    await until_in_loop(lambda: served.current.version == 13)
    assert not task.done()
    task.cancel()
    assert "cannot load it (RuntimeError: a table was" in caplog.text


def test_every_signature_is_warm_before_a_version_takes_over(
    folder, monkeypatch
):
    served, serving, run = Versions(folder), [], Model.run
    first = served.current

    def note(self, signature, rows):
        run(self, signature, rows)
        serving.append(served.current)

    monkeypatch.setattr(Model, "run", note)
    write(folder, "12", "several")
    served.change_over()
    assert served.current.called == [
        ("serving_default", 1),
        ("n_best", 1),
        ("attention", 2),
    ]
    # The older one served until all were.
    assert serving == [first] * 3


def test_the_version_before_comes_back_when_the_newest_goes(folder):
    served = Versions(folder)
    (folder / "9" / "saved_model.pb").unlink()
    served.change_over()
    assert served.current.version == 2
    (folder / "2" / "saved_model.pb").unlink()
    served.change_over()
    assert served.current.version == 2
