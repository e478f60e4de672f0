"""Models from elsewhere, and copies of them to change."""

import pathlib
import shutil
import tarfile

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A folder with `hf` and `npz` of Marian, and `opennmt`."""
    folder = tmp_path_factory.mktemp("originals")
    with tarfile.open(HERE / "marian.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    shutil.copytree(HERE / "opennmt" / "separate", folder / "opennmt")
    return folder


@pytest.fixture
def copy_of(originals, tmp_path):
    return lambda kind: shutil.copytree(originals / kind, tmp_path / kind)
