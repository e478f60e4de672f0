"""Runs and exports that tests share, made once for all workers and sessions.

They lie in a folder named after a checksum of the package, each under a name
with a checksum of the module that makes it: what has changed is made again.
"""

import functools
import hashlib
import inspect
import pathlib
import shutil
from importlib import metadata

import filelock
from project_table import ROOT

FOLDER = ROOT / ".pytest_cache" / "artifacts"
PACKAGES = ("keras", "sentencepiece", "tensorflow", "tensorflow-text")


def checksum(*parts):
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


@functools.cache
def of_this_package():
    """The folder of all artifacts that today's package makes."""
    files = sorted(
        path
        for path in (ROOT / "keras_transformer").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    )
    versions = [metadata.version(name).encode() for name in PACKAGES]
    return FOLDER / checksum(*versions, *(path.read_bytes() for path in files))


def forget_others():
    """Remove what older states of the package have made."""
    for path in FOLDER.glob("*"):
        if path != of_this_package():
            shutil.rmtree(path, ignore_errors=True)


def made_once(make):
    """Call a function that fills a folder once; return the folder from then on.

    Tests copy the folder if they change it.
    """

    @functools.cache
    def made(*arguments):
        source = checksum(
            pathlib.Path(inspect.getsourcefile(make)).read_bytes()
        )
        name = "-".join(map(str, (make.__name__, *arguments, source)))
        path, done = (
            of_this_package() / f"{name}{end}" for end in ("", ".done")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{path}.lock"):
            if not done.exists():
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir()
                make(path, *arguments)
                done.touch()
        return path

    return functools.wraps(make)(made)
