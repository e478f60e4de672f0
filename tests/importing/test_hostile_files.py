"""Files that would run code, show other files or fill the memory."""

import json
import pathlib
import pickle
import re
import zipfile

import numpy as np
import pytest
from imported_models import LANGUAGES, change_json

from keras_transformer.config import UserError
from keras_transformer.importing import run_directory, source_files

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
DEEP = "[" * 200_000


def refused(folder):
    """The reason why a folder is refused."""
    with pytest.raises(UserError) as refusal:
        run_directory.import_run(folder, folder.parent / "run", **LANGUAGES)
    said = str(refusal.value)
    assert "\n" not in said and len(said) < 2_000
    return said


@pytest.mark.parametrize(
    "kind, name, content",
    [
        ("npz", "decoder.yml", f"{LAUGHS}models: *a8\n"),
        ("npz", "opus.vocab.yml", DEEP),
        ("hf", "vocab.json", DEEP),
    ],
)
def test_no_alias_or_depth_is_followed(copy_of, kind, name, content):
    folder = copy_of(kind)
    (folder / name).write_text(content)
    assert name in refused(folder)


@pytest.mark.parametrize("setting", ["d_model", "ffn_dim"])
def test_settings_alone_make_no_large_model(copy_of, setting):
    path = copy_of("hf") / "config.json"
    said = json.loads(path.read_text())
    names = {setting, f"encoder_{setting}", f"decoder_{setting}"}
    change_json(path, dict.fromkeys(names & set(said), 22 * 50_000))
    assert " parameters" in refused(path.parent)


@pytest.mark.parametrize("name", ["../secret", "{elsewhere}/secret", "link"])
def test_no_line_of_a_file_elsewhere_is_told(copy_of, tmp_path, name):
    (tmp_path / "secret").write_text("password: 1234\n")
    path = copy_of("opennmt") / "data.yml"
    (path.parent / "link").symlink_to(tmp_path / "secret")
    vocabulary = f"source_vocabulary: {name.format(elsewhere=tmp_path)}"
    text = path.read_text()
    path.write_text(re.sub("source_vocabulary: .*", vocabulary, text))
    said = refused(path.parent)
    name = pathlib.PurePath(name).name
    assert "1234" not in said and f"no {name}; copy it there" in said


NAMED_TENSOR = b"\x80\x02}U\x01w"


def value(of):
    """The opcodes that push a value."""
    return pickle.dumps(of, 2)[2:-1]


def row(*opcodes):
    return b"(" + b"".join(opcodes) + b"t"


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def tensor(offset, shape, strides):
    storage = row(
        value("storage"),
        b"ctorch\nFloatStorage\n",
        value("0"),
        value("cpu"),
        value(4),
    )
    rest = map(value, (offset, shape, strides, False))
    return REBUILD + row(storage + b"Q", *rest, b"N") + b"R"


@pytest.fixture
def read_tensor(tmp_path):
    """Reads a `state_dict` of "w", over a storage of four numbers."""

    def read(opcodes):
        path = tmp_path / "w.bin"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a/data.pkl", NAMED_TENSOR + opcodes + b"s.")
            file.writestr("a/data/0", np.arange(4, dtype="float32").tobytes())
        return source_files.read_pickle(path)

    return read


def test_a_tensor_is_a_view_of_its_storage(read_tensor):
    found = read_tensor(tensor(1, (2, 1), (2, 1)))
    np.testing.assert_array_equal(found["w"], [[1], [3]])


@pytest.mark.parametrize(
    "offset, shape, strides",
    [
        (0, (2, 2), (-2, 2)),
        (3, (2,), (1,)),
        (4, (1,), (0,)),
        (-1, (1,), (1,)),
        # Bytes that come round to 8 or 0 where they are counted in 64 bits.
        (0, (4,), ((2**64 + 8) // 12,)),
        (0, (2**33 + 1,), (2**29,)),
        # Nowhere beyond, but gigabytes.
        (0, (2**31, 2**20), (0, 0)),
    ],
)
def test_nothing_outside_of_a_storage_is_read(
    read_tensor, offset, shape, strides
):
    with pytest.raises(UserError, match="reaches beyond its storage"):
        read_tensor(tensor(offset, shape, strides))


def test_a_pickle_changes_none_of_our_functions(read_tensor):
    attributes = value((None, {"__defaults__": ("a",)}))
    read_tensor(REBUILD + attributes + b"b")
    assert source_files._tensor.__defaults__ is None


def test_an_older_file_is_refused_wherever_it_is_cut_off(tmp_path):
    path = tmp_path / "w.bin"
    state = NAMED_TENSOR + tensor(0, (4,), (1,)) + b"s."
    numbers = np.arange(4, dtype="float32")
    whole = pickle.dumps(1, 2) * 3 + state + pickle.dumps(["0"], 2)
    whole += (4).to_bytes(8, "little") + numbers.tobytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="not a file of weights"):
            source_files.read_pickle(path)
    path.write_bytes(whole)
    np.testing.assert_array_equal(source_files.read_pickle(path)["w"], numbers)
