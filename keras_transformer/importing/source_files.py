"""The files of a folder, and what its name says."""

import pathlib
import re

import sentencepiece
from google.protobuf.message import DecodeError

from keras_transformer.config import UserError
from keras_transformer.data.bulk_tokenizer import parse_model

_POINTER = b"version https://git-lfs"


def check_file(path: pathlib.Path) -> None:
    """Refuse what is no file, or only stands for one.

    Raises:
        UserError: If so; it names the path.
    """
    if not path.is_file():
        raise UserError(
            f"Expected the file {path}, found none; download it into the "
            "folder of the model."
        )
    with open(path, "rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(
                f"{path} is a pointer of git-lfs, not the file itself; run "
                "`git lfs pull` in the folder, or download the file."
            )


def read_bytes(path: pathlib.Path) -> bytes:
    """Read a file that a model needs.

    Raises:
        UserError: If it is not there.
    """
    check_file(path)
    return path.read_bytes()


def read_sentencepiece(path: pathlib.Path) -> bytes:
    """Read a serialised sentencepiece model.

    Raises:
        UserError: If it is not there, or is none.
    """
    model = read_bytes(path)
    try:
        sentencepiece.SentencePieceProcessor(model_proto=model)
        # An empty model and the first half of one pass, but not this.
        if parse_model(model).HasField("trainer_spec"):
            return model
    except (RuntimeError, DecodeError):
        pass
    raise UserError(
        f"Expected a sentencepiece model in {path}, received {len(model)} "
        "bytes of something else; download it again."
    )


def languages(folder: pathlib.Path) -> tuple[str | None, str | None]:
    """Source and target, where the folder has a name like `opus-mt-en-de`."""
    named = re.search(
        r"opus-mt-(?:tc-[a-z]+-)?([a-z]+)-([a-z]+)$", folder.resolve().name
    )
    return (named[1], named[2]) if named else (None, None)


def is_language(name: object) -> bool:
    """Whether it can be a language code, and thus a part of a file's name."""
    return isinstance(name, str) and bool(re.fullmatch(r"[\w+-]+", name))
