"""Pickles of weights that would read or write where they must not."""

import io
import pickle
import zipfile

import numpy as np
import pytest

from keras_transformer.config import UserError
from keras_transformer.importing import tensor_files

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


def zipped(path, opcodes):
    """A `state_dict` of "w", over a storage of four numbers."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("a/data.pkl", STATE + opcodes + b"s.")
        file.writestr("a/data/0", np.arange(4, dtype="float32").tobytes())
    path.write_bytes(packed.getvalue())
    return path


def test_a_tensor_is_a_view_of_its_storage(tmp_path):
    path = zipped(tmp_path / "w.bin", tensor(1, (2, 1), (2, 1)))
    np.testing.assert_array_equal(
        tensor_files.read_pickle(path)["w"], [[1], [3]]
    )


@pytest.mark.parametrize(
    "opcodes",
    [
        tensor(0, (2, 2), (-2, 2)),
        tensor(-1, (2,), (1,)),
        tensor(3, (2,), (1,)),
        tensor(0, (2**31, 2**20), (0, 0)),
    ],
)
def test_nothing_outside_of_a_storage_is_read(tmp_path, opcodes):
    path = zipped(tmp_path / "w.bin", opcodes)
    with pytest.raises(UserError, match="reaches beyond its storage"):
        tensor_files.read_pickle(path)


def test_a_view_is_no_storage(tmp_path):
    repeated = tensor(3, (4,), (0,))
    path = tmp_path / "w.bin"
    again = REBUILD + row(
        repeated, value(0), value((4,)), value((1,)), value(False), b"N"
    )
    with pytest.raises(UserError, match="made of no storage"):
        tensor_files.read_pickle(zipped(path, again + b"R"))


def test_the_size_of_a_storage_is_at_most_that_of_the_file(tmp_path):
    path = tmp_path / "w.bin"
    state = STATE + tensor(0, (2,), (1,), size=2**55) + b"s."
    path.write_bytes(pickle.dumps(1, 2) * 3 + state)
    with pytest.raises(UserError, match="storage is larger than the file"):
        tensor_files.read_pickle(path)


def test_a_pickle_changes_no_function_of_ours(tmp_path):
    attributes = value((None, {"__defaults__": ("a",)}))
    path = zipped(tmp_path / "w.bin", REBUILD + attributes + b"b")
    with pytest.raises(UserError, match="something else than named tensors"):
        tensor_files.read_pickle(path)
    assert tensor_files._tensor.__defaults__ is None
