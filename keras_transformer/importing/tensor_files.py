"""Reads the weights in PyTorch's files without PyTorch.

The package `safetensors` reads `model.safetensors`. We turn its bytes into
arrays, because it does not support bfloat16 for NumPy. `pytorch_model.bin` is a
pickle, which may run any code when it is loaded; here it can only make tensors
and dictionaries.
"""

import collections
import functools
import io
import math
import os
import pathlib
import pickle
import pickletools
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from keras_transformer.importing.source_files import (
    check_file,
    read_archive,
    read_bytes,
    refusing,
)
from keras_transformer.machine import extras

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
_NO_WEIGHTS = "{} is not a file of weights that can be read"
# Returns the values of a storage by its dtype, its key and their number.
_Storage = Callable[[str, str, int], np.ndarray]


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read a file in the safetensors format."""
    safetensors = extras.needs("safetensors", "import")
    with refusing(_NO_WEIGHTS.format(path), safetensors.SafetensorError):
        return {
            name: _values(of["data"], _DTYPES[of["dtype"]]).reshape(of["shape"])
            for name, of in safetensors.deserialize(read_bytes(path))
        }


def read_pickle(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read a `state_dict` that any version of `torch.save` wrote."""
    check_file(path)
    with refusing(
        _NO_WEIGHTS.format(path),
        advice="download it again, or give the model.safetensors of the same "
        "model",
    ):
        if zipfile.is_zipfile(path):
            state = _read_zip(read_archive(path))
        else:
            with open(path, "rb") as stream:
                state = _read_stream(stream)
        for name, tensor in state.items():
            # Nested lists could become arrays or text of any size.
            if not (isinstance(name, str) and isinstance(tensor, np.ndarray)):
                raise TypeError("it holds something else than named tensors")
        return dict(state)


def _read_zip(members: Mapping[str, bytes]) -> Mapping[str, np.ndarray]:
    """Read a file of PyTorch 1.6 or later: a pickle, and storages as files."""
    (name,) = (n for n in members if n.endswith("/data.pkl"))
    folder = name.removesuffix("data.pkl")

    @functools.cache
    def values(kind: str, key: str) -> np.ndarray:
        return _values(members[f"{folder}data/{key}"], kind)

    return _load(
        io.BytesIO(members[name]), lambda kind, key, size: values(kind, key)
    )


def _read_stream(stream: BinaryIO) -> Mapping[str, np.ndarray]:
    """Read an older file: pickles, then names and numbers of the storages."""
    storages: dict[str, np.ndarray] = {}
    left = stream.seek(0, os.SEEK_END)  # The most bytes of all storages.
    stream.seek(0)

    def storage(kind: str, key: str, size: int) -> np.ndarray:
        nonlocal left
        if key not in storages:
            length = size * np.dtype(kind).itemsize
            if length > left:
                raise ValueError("a storage is larger than the file")
            left -= length
            storages[key] = np.zeros(length, "uint8")
        return storages[key].view(kind)

    for _ in range(3):  # Magic number, version, machine.
        _load(stream, storage)
    state = _load(stream, storage)
    for key in _load(stream, storage):
        stream.read(8)  # The number of values.
        room = storages[key]
        room[:] = np.frombuffer(stream.read(room.size), "uint8")
    return state


def _load(stream: BinaryIO, storage: _Storage) -> Any:
    start = stream.tell()
    # A pickle reserves memory for its memo by the number that it gives, however
    # few bytes it has.
    numbers = [
        int(number or 0)
        for opcode, number, _ in pickletools.genops(stream)
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT")
    ]
    if max(numbers, default=0) > stream.tell() - start:
        raise pickle.UnpicklingError("it remembers more than it holds")
    stream.seek(start)
    return _Unpickler(stream, storage).load()


class _Unpickler(pickle.Unpickler):
    """Unpickles only the parts of a `state_dict` of tensors."""

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
    width = storage.itemsize
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    size = math.prod(shape)
    if (
        min((offset, *shape, *strides)) < 0
        or size > storage.size
        or (size and offset + last >= storage.size)
    ):
        raise ValueError("a tensor reaches beyond its storage")
    return np.lib.stride_tricks.as_strided(
        storage[offset:], shape, [s * width for s in strides], writeable=False
    )


def _values(content: bytes, dtype: str) -> np.ndarray:
    if dtype != "bfloat16":
        return np.frombuffer(content, dtype)
    halves = np.frombuffer(content, "uint16").astype("uint32")
    return (halves << 16).view("float32")
