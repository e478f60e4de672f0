"""Reads the files of a folder: languages in its name, archives, weights.

Strangers have written the files. Anything that could turn a few bytes into
gigabytes is refused before it is read: YAML aliases, deep nesting, archives
that inflate.

PyTorch's weights are read without PyTorch. The package `safetensors` reads
`model.safetensors`; we turn its bytes into arrays, because it does not support
bfloat16 for NumPy. `pytorch_model.bin` is a pickle, which may run any code when
it is loaded; here it can only make tensors and dictionaries.
"""

import collections
import contextlib
import functools
import io
import math
import pathlib
import pickle
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
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
    struct.error,
)
_POINTER = b"version https://git-lfs"
# The deepest nesting of lists and mappings; settings have three levels.
_DEEPEST = 50
# The longest value; numbers of base 60 take the square of their length.
_LONGEST = 10_000


def check_folder(folder: pathlib.Path) -> None:
    """Refuse what is no folder."""
    if not folder.is_dir():
        raise UserError(
            f"Expected the folder of a model, found none at {folder}; unpack "
            "an archive, or fetch the files, such as with `git clone "
            "https://huggingface.co/Helsinki-NLP/opus-mt-en-de`."
        )


def read_bytes(path: pathlib.Path) -> bytes:
    """Read a file that a model needs; refuse a pointer to one."""
    content = path.read_bytes()
    if content.startswith(_POINTER):
        raise UserError(
            f"{path} is a pointer of git-lfs, not the file itself; run "
            "`git lfs pull` in the folder, or download the file."
        )
    return content


@contextlib.contextmanager
def refusing(
    path: pathlib.Path,
    kind: str,
    *errors: type[Exception],
    advice: str = "download it again",
) -> Iterator[None]:
    """Turn what a file of another kind raises into a sentence.

    `errors` are those of a package, besides Python's own.
    """
    try:
        yield
    except UserError:
        raise
    except (*_MISFITS, *errors) as error:
        # TensorFlow and PyYAML write several lines.
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UserError(
            f"{path} is not {kind} that can be read ({what}); {advice}."
        ) from error


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
    advice = "download it again, or write out what aliases stand for"
    with refusing(path, "plain YAML", yaml.YAMLError, advice=advice):
        for event in yaml.parse(content, loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
                raise ValueError("it has aliases or is nested too deeply")
            if len(getattr(event, "value", "")) > _LONGEST:
                raise ValueError(f"a value is longer than {_LONGEST} letters")
        return yaml.load(content, loader)


def read_archive(content: bytes) -> dict[str, bytes]:
    """Read the members of a zip file, unless they are much larger than it.

    Weights hardly compress, and most programs do not try.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = file.infolist()
        inside = sum(member.file_size for member in members)
        if inside > 2 * len(content):
            raise ValueError(f"it would become {inside} bytes")
        # Only these stop inflating at the size asked for.
        known = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
        if any(member.compress_type not in known for member in members):
            raise ValueError("it is compressed in another way than by deflate")
        contents = {}
        for member in members:
            # `ZipFile.read` inflates all of it and checks the size afterwards.
            with file.open(member) as stream:
                contents[member.filename] = stream.read(member.file_size)
    return contents


def read_sentencepiece(path: pathlib.Path) -> bytes:
    """Read a serialised sentencepiece model."""
    model = read_bytes(path)
    with refusing(path, "a sentencepiece model"):
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


# Types by their names in either file; bfloat16 is the upper half of a float32.
_DTYPES = {
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
}
_WEIGHTS = "a file of weights"
# Returns the values of a storage by its dtype, its key and their number.
_Storage = Callable[[str, str, int], np.ndarray]


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read a file in the safetensors format."""
    safetensors = extras.needs("safetensors", "import")
    with refusing(path, _WEIGHTS, safetensors.SafetensorError):
        return {
            name: _values(of["data"], _DTYPES[of["dtype"]]).reshape(of["shape"])
            for name, of in safetensors.deserialize(read_bytes(path))
        }


def read_pickle(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read a `state_dict` that any version of `torch.save` wrote."""
    content = read_bytes(path)
    with refusing(path, _WEIGHTS):
        is_zip = zipfile.is_zipfile(io.BytesIO(content))
        state = _read_zip(content) if is_zip else _read_older(content)
        for name, tensor in state.items():
            # Nested lists could become arrays or text of any size.
            if not (isinstance(name, str) and isinstance(tensor, np.ndarray)):
                raise TypeError("it holds something else than named tensors")
        return dict(state)


def _read_zip(content: bytes) -> Mapping[str, np.ndarray]:
    """Read a file of PyTorch 1.6 or later: a pickle, and storages as files."""
    members = read_archive(content)
    (name,) = (n for n in members if n.endswith("/data.pkl"))
    folder = name.removesuffix("data.pkl")

    @functools.cache
    def values(kind: str, key: str) -> np.ndarray:
        return _values(members[f"{folder}data/{key}"], kind)

    stream = io.BytesIO(members[name])
    return _Unpickler(stream, lambda kind, key, size: values(kind, key)).load()


def _read_older(content: bytes) -> Mapping[str, np.ndarray]:
    """Read an older file: pickles, then names and numbers of the storages."""
    stream = io.BytesIO(content)
    storages: dict[str, np.ndarray] = {}
    left = len(content)  # The most bytes of all storages.

    def storage(kind: str, key: str, size: int) -> np.ndarray:
        nonlocal left
        if key not in storages:
            length = size * np.dtype(kind).itemsize
            if length > left:
                raise ValueError("a storage is larger than the file")
            left -= length
            storages[key] = np.zeros(length, "uint8")
        return storages[key].view(kind)

    # Magic number, version, machine, tensors, names of storages.
    *_, state, keys = (_Unpickler(stream, storage).load() for _ in range(5))
    for key in keys:
        stream.read(8)  # The number of values.
        room = storages[key]
        room[:] = np.frombuffer(stream.read(room.size), "uint8", room.size)
    return state


class _Unpickler(pickle._Unpickler):
    """Unpickles only the parts of a `state_dict` of tensors.

    In Python, since C reserves memory for as many objects as a pickle says, and
    without the one opcode for which Python does so too.
    """

    dispatch = {
        opcode: load
        for opcode, load in pickle._Unpickler.dispatch.items()
        if opcode != pickle.BYTEARRAY8[0]
    }

    def __init__(self, file: Any, storage: _Storage) -> None:
        super().__init__(file, encoding="utf-8")
        self._storage = storage

    def persistent_load(self, pid: Any) -> np.ndarray:
        _, kind, key, _, size, *_ = pid
        if not (isinstance(kind, str) and isinstance(key, str)):
            raise pickle.UnpicklingError("a storage has no name")
        return self._storage(kind, key, size)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            # A new function, since a pickle can set the attributes of it.
            return lambda *args: _tensor(*args)
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *_: tensor
        if module in ("torch", "torch.storage") and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _tensor(
    storage: np.ndarray, offset: int, shape: tuple, strides: tuple, *_: Any
) -> np.ndarray:
    """Make a view of a storage, whose numbers may come later."""
    if storage.ndim != 1 or not storage.flags.c_contiguous:
        raise ValueError("a tensor is made of no storage")
    if math.prod(shape) > storage.size or min((0, *strides)) < 0:
        raise ValueError("a tensor reaches beyond its storage")
    width = storage.itemsize
    places = offset * width, [stride * width for stride in strides]
    # NumPy refuses what reaches beyond the storage.
    return np.ndarray(shape, storage.dtype, storage, *places)


def _values(content: bytes, dtype: str) -> np.ndarray:
    if dtype != "bfloat16":
        return np.frombuffer(content, dtype)
    halves = np.frombuffer(content, "uint16").astype("uint32")
    return (halves << 16).view("float32")
