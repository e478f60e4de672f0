"""Reads the files of a folder, and the languages in its name.

Strangers have written the files. Anything that could turn a few bytes into
gigabytes is refused before it is read: YAML aliases, deep nesting, archives
that inflate.
"""

import os
import pathlib
import re
import zipfile
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError

from keras_transformer.config import UserError
from keras_transformer.data.bulk_tokenizer import parse_model
from keras_transformer.machine import extras
from keras_transformer.machine.files import ZIP_DAMAGES

# Errors of reading a file that is damaged or malicious, or does not fit its
# format.
MISFITS = (
    *ZIP_DAMAGES,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
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
    try:
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
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(
            f"Expected plain YAML in {path}, cannot read it "
            f"({' '.join(str(error).split())[:200]}); download it again, or "
            "write out what aliases stand for."
        ) from None


def check_archive(path: pathlib.Path) -> None:
    """Refuse a zip file that would inflate to much more than its size.

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


def read_member(file: zipfile.ZipFile, name: str) -> bytes:
    """Read as many bytes of a member as its header says."""
    # `ZipFile.read` inflates all of it and checks the size afterwards.
    with file.open(name) as stream:
        return stream.read(file.getinfo(name).file_size)


def read_sentencepiece(path: pathlib.Path) -> bytes:
    """Read a serialised sentencepiece model."""
    model = read_bytes(path)
    try:
        sentencepiece.SentencePieceProcessor(model_proto=model)
        # An empty model and the first half of one parse, but fail here.
        if parse_model(model).HasField("trainer_spec"):
            return model
    except (RuntimeError, DecodeError):
        pass
    raise UserError(
        f"Expected a sentencepiece model in {path}, received {len(model)} "
        "bytes of something else; download it again."
    )


def languages(folder: pathlib.Path) -> tuple[str | None, str | None]:
    """Read source and target from a folder's name like `opus-mt-en-de`."""
    named = re.search(
        r"opus-mt-(?:tc-[a-z]+-)?([a-z]+)-([a-z]+)$", folder.resolve().name
    )
    return (named[1], named[2]) if named else (None, None)


def is_language(name: object) -> bool:
    """Return whether a name can be a language code, and part of a file name."""
    return isinstance(name, str) and bool(re.fullmatch(r"[\w+-]+", name))
