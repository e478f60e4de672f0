"""Pickles of weights that would read or write where they must not."""

import pickle
import zipfile

import numpy as np
import pytest

from keras_transformer.config import UserError
from keras_transformer.importing import source_files

STATE = b"\x80\x02}U\x01w"


def value(of):
    """The opcodes that push a value."""
    return pickle.dumps(of, 2)[2:-1]


def row(*opcodes):
    return b"(" + b"".join(opcodes) + b"t"


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def tensor(offset, shape, strides, size=4):
    storage = row(
        value("storage"),
        b"ctorch\nFloatStorage\n",
        value("0"),
        value("cpu"),
        value(size),
    )
    rest = map(value, (offset, shape, strides, False))
    return REBUILD + row(storage + b"Q", *rest, b"N") + b"R"


@pytest.fixture
def read(tmp_path):
    """Reads a `state_dict` of "w", over a storage of four numbers."""

    def read(opcodes):
        path = tmp_path / "w.bin"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a/data.pkl", STATE + opcodes + b"s.")
            file.writestr("a/data/0", np.arange(4, dtype="float32").tobytes())
        return source_files.read_pickle(path)

    return read


REPEATED = tensor(3, (4,), (0,))
ATTRIBUTES = value((None, {"__defaults__": ("a",)}))


def test_a_tensor_is_a_view_of_its_storage(read):
    found = read(tensor(1, (2, 1), (2, 1)))
    np.testing.assert_array_equal(found["w"], [[1], [3]])


@pytest.mark.parametrize(
    "opcodes, message",
    [
        (tensor(0, (2, 2), (-2, 2)), "reaches beyond its storage"),
        (tensor(3, (2,), (1,)), "reaches beyond its storage"),
        (tensor(0, (2**31, 2**20), (0, 0)), "reaches beyond its storage"),
        # A view is no storage.
        (
            REBUILD
            + row(REPEATED, *map(value, (0, (4,), (1,), False)), b"N")
            + b"R",
            "made of no storage",
        ),
        # Would change a function of ours.
        (REBUILD + ATTRIBUTES + b"b", "something else than named tensors"),
    ],
)
def test_nothing_outside_of_a_storage_is_read_or_written(
    read, opcodes, message
):
    with pytest.raises(UserError, match=message):
        read(opcodes)
    assert source_files._tensor.__defaults__ is None


def test_the_size_of_a_storage_is_at_most_that_of_the_file(tmp_path):
    path = tmp_path / "w.bin"
    state = STATE + tensor(0, (2,), (1,), size=2**55) + b"s."
    path.write_bytes(pickle.dumps(1, 2) * 3 + state)
    with pytest.raises(UserError, match="storage is larger than the file"):
        source_files.read_pickle(path)
