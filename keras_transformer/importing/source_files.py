"""Reads the files of a folder: settings, weights and sentencepiece models.

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

# Errors of reading a file that is damaged or does not fit its format.
_MISFITS = (
    *ZIP_DAMAGES,
    AttributeError,
    DecodeError,
    LookupError,
    MemoryError,
    TypeError,
    pickle.UnpicklingError,
)
_POINTER = b"version https://git-lfs"


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
    """Parse YAML without aliases; with `plain` every scalar stays text."""
    yaml = extras.needs("yaml", "import")
    kind = "BaseLoader" if plain else "SafeLoader"
    loader = getattr(yaml, f"C{kind}", getattr(yaml, kind))
    advice = "download it again, or write out what aliases stand for"
    with refusing(path, "plain YAML", yaml.YAMLError, advice=advice):
        tokens = yaml.scan(content, loader)
        # A few lines of aliases would become gigabytes.
        if any(isinstance(token, yaml.AliasToken) for token in tokens):
            raise ValueError("it has aliases")
        return yaml.load(content, loader)


def read_sentencepiece(path: pathlib.Path) -> bytes:
    """Read a serialised sentencepiece model."""
    model = read_bytes(path)
    with refusing(path, "a sentencepiece model"):
        sentencepiece.SentencePieceProcessor(model_proto=model)
        # An empty model and the first half of one parse, but fail here.
        if not parse_model(model).HasField("trainer_spec"):
            raise ValueError("it does not say how it was trained")
    return model


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
        return dict(_read_zip(content) if is_zip else _read_older(content))


def _read_zip(content: bytes) -> Mapping[str, np.ndarray]:
    """Read a file of PyTorch 1.6 or later: a pickle, and storages as files."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        (name,) = (x for x in file.namelist() if x.endswith("/data.pkl"))
        folder = name.removesuffix("data.pkl")

        @functools.cache
        def storage(kind: str, key: str, _: int) -> np.ndarray:
            return _values(file.read(f"{folder}data/{key}"), kind)

        return _Unpickler(io.BytesIO(file.read(name)), storage).load()


def _read_older(content: bytes) -> Mapping[str, np.ndarray]:
    """Read an older file: pickles, then names and numbers of the storages."""
    stream = io.BytesIO(content)
    storages: dict[str, np.ndarray] = {}

    def storage(kind: str, key: str, size: int) -> np.ndarray:
        if key not in storages:
            storages[key] = np.zeros(size * np.dtype(kind).itemsize, "uint8")
        return storages[key].view(kind)

    # Magic number, version, machine, tensors, names of storages.
    *_, state, keys = (_Unpickler(stream, storage).load() for _ in range(5))
    for key in keys:
        stream.read(8)  # The number of values.
        room = storages[key]
        room[:] = np.frombuffer(stream.read(room.size), "uint8", room.size)
    return state


class _Unpickler(pickle.Unpickler):
    """Unpickles only the parts of a `state_dict` of tensors."""

    def __init__(self, file: Any, storage: _Storage) -> None:
        super().__init__(file, encoding="utf-8")
        self._storage = storage

    def persistent_load(self, pid: Any) -> np.ndarray:
        _, kind, key, _, size, *_ = pid
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
    # NumPy adds these up in 64 bits, where they may come round to 0.
    last = offset + sum(
        (size - 1) * stride for size, stride in zip(shape, strides, strict=True)
    )
    is_whole = storage.ndim == 1 and storage.flags.c_contiguous
    inside = is_whole and last < storage.size >= math.prod(shape)
    if not inside or min(offset, *shape, *strides, 0) < 0:
        raise ValueError("a tensor reaches beyond its storage")
    width = storage.itemsize
    places = offset * width, [stride * width for stride in strides]
    return np.ndarray(shape, storage.dtype, storage, *places)


def _values(content: bytes, dtype: str) -> np.ndarray:
    if dtype != "bfloat16":
        return np.frombuffer(content, dtype)
    halves = np.frombuffer(content, "uint16").astype("uint32")
    return (halves << 16).view("float32")
