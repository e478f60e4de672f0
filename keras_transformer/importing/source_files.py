"""Reads the files of a folder, and the languages in its name.

Strangers have written the files. Anything that could turn a few bytes into
gigabytes is refused before it is read: YAML aliases, deep nesting, archives
that inflate.
"""

import contextlib
import os
import pathlib
import pickle
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError

from keras_transformer.config import UserError
from keras_transformer.data.sentencepiece_file import parse_model
from keras_transformer.machine import extras
from keras_transformer.machine.files import ZIP_DAMAGES

# Errors of reading a file that is damaged or malicious, or does not fit its
# format.
_MISFITS = (
    *ZIP_DAMAGES,
    ArithmeticError,
    AttributeError,
    DecodeError,
    LookupError,
    MemoryError,
    SyntaxError,
    TypeError,
    pickle.UnpicklingError,
)
_POINTER = b"version https://git-lfs"
# The deepest nesting of lists and mappings; settings have three levels.
_DEEPEST = 50
# The longest value; numbers of base 60 take the square of their length.
_LONGEST = 10_000


def check_folder(folder: pathlib.Path) -> None:
    """Refuse a folder that does not exist."""
    if not folder.is_dir():
        raise UserError(
            f"There is no folder {folder}; models are not downloaded here, so "
            "fetch the files first, such as with `git clone "
            f"https://huggingface.co/Helsinki-NLP/{folder.name}`, and give "
            "their folder."
        )


def check_file(path: pathlib.Path) -> None:
    """Refuse a missing file, or a pointer to one."""
    if not path.is_file():
        raise UserError(
            f"{path} is missing; download it into the folder of the model."
        )
    with open(path, "rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(
                f"{path} is a pointer of git-lfs, not the file itself; run "
                "`git lfs pull` in the folder, or download the file."
            )


@contextlib.contextmanager
def refusing(
    sentence: str,
    *errors: type[Exception],
    advice: str = "download it again",
) -> Iterator[None]:
    """Turn what a file of other content raises into a sentence.

    Args:
        sentence: What was expected, without its full stop.
        *errors: What a package raises, besides Python's own errors.
        advice: What to do.
    """
    try:
        yield
    except UserError:
        raise
    except (*_MISFITS, *errors) as error:
        # TensorFlow and PyYAML write several lines.
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UserError(f"{sentence} ({what}); {advice}.") from error


def read_bytes(path: pathlib.Path) -> bytes:
    """Read a file that a model needs; refuse it as `check_file` does."""
    check_file(path)
    return path.read_bytes()


def parse_yaml(
    content: bytes | str, path: pathlib.Path, plain: bool = False
) -> Any:
    """Parse YAML without aliases, deep nesting and very long values.

    With `plain` every scalar stays text: "no" is then a word.
    """
    yaml = extras.needs("yaml", "import")
    kind = "BaseLoader" if plain else "SafeLoader"
    loader = getattr(yaml, f"C{kind}", getattr(yaml, kind))
    depth = 0
    with refusing(
        f"Expected plain YAML in {path}, cannot read it",
        yaml.YAMLError,
        advice="download it again, or write out what aliases stand for",
    ):
        for event in yaml.parse(content, loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
                raise ValueError("it has aliases or is nested too deeply")
            if len(getattr(event, "value", "")) > _LONGEST:
                raise ValueError(
                    f"it has a value of more than {_LONGEST} letters"
                )
        return yaml.load(content, loader)


def read_archive(path: pathlib.Path) -> dict[str, bytes]:
    """Read the members of a zip file, unless they are much larger than it.

    Weights hardly compress, and most programs do not try.
    """
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
        inside = sum(member.file_size for member in members)
        if inside > 2 * os.path.getsize(path):
            raise ValueError(f"it would become {inside} bytes")
        # Only these stop inflating at the size asked for.
        if {member.compress_type for member in members} - {
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        }:
            raise ValueError("it is compressed in another way than by deflate")
        found = {}
        for member in members:
            # `ZipFile.read` inflates all of it and checks the size afterwards.
            with file.open(member) as stream:
                found[member.filename] = stream.read(member.file_size)
    return found


def read_sentencepiece(path: pathlib.Path) -> bytes:
    """Read a serialised sentencepiece model."""
    model = read_bytes(path)
    with refusing(f"Expected a sentencepiece model in {path}, cannot read it"):
        sentencepiece.SentencePieceProcessor(model_proto=model)
        # An empty model and the first half of one parse, but fail here.
        if not parse_model(model).HasField("trainer_spec"):
            raise ValueError("it does not say how it was trained")
    return model


def languages(folder: pathlib.Path) -> tuple[str | None, str | None]:
    """Read source and target from a folder's name like `opus-mt-en-de`."""
    named = re.search(
        r"opus-mt-(?:tc-[a-z]+-)?([a-z]+)-([a-z]+)$", folder.resolve().name
    )
    return (named[1], named[2]) if named else (None, None)


def is_language(name: object) -> bool:
    """Return whether a name can be a language code, and part of a file name."""
    return isinstance(name, str) and bool(re.fullmatch(r"[\w+-]+", name))
