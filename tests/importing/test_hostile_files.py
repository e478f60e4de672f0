"""Files that would fill the memory, end the process or show other files."""

import json
import pathlib
import pickle
import re
import zipfile

import numpy as np
import pytest
from imported_models import change_json

from keras_transformer.config import UserError
from keras_transformer.importing import run_directory, source_files

MOST_BYTES = 200e6
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
MERGES = "a0: &a0 {x: y}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n"
    for i in range(1, 9)
)
DEEP = "[" * 200_000
# A list of nine lists of nine lists … of nine ones, in the opcodes of pickle.
LISTS = b"]q\0(" + b"K\1" * 9 + b"e0"
for i in range(1, 8):
    LISTS += b"]q%c(" % i + b"h%c" % (i - 1) * 9 + b"e0"
STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\n"


def kilobytes(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status)[1])


def refused(folder):
    """The reason why a folder is refused; finding it takes little memory."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # Forget the peak.
    before = kilobytes("VmRSS")
    with pytest.raises(UserError) as refusal:
        run_directory.import_run(folder, folder.parent / "run", "en", "de")
    assert 1_024 * (kilobytes("VmHWM") - before) < MOST_BYTES
    said = str(refusal.value)
    assert "\n" not in said and len(said) < 2_000
    return said


ALIASES = "write out what aliases stand for"


@pytest.mark.parametrize(
    "kind, name, content, said",
    [
        ("npz", "decoder.yml", f"{LAUGHS}models: *a8\n", ALIASES),
        ("npz", "decoder.yml", f"{MERGES}models: *a8\n", ALIASES),
        # A number of many digits of 60.
        ("npz", "decoder.yml", "x: 1" + ":1" * 10_000, "is longer than"),
        ("npz", "opus.vocab.yml", DEEP, "opus.vocab.yml"),
        ("opennmt", "model_description.py", "a" + ".a" * 60_000 + "()", ".py"),
        ("hf", "vocab.json", DEEP, "vocab.json"),
    ],
)
def test_no_alias_depth_or_number_is_followed(
    copy_of, kind, name, content, said
):
    folder = copy_of(kind)
    (folder / name).write_text(content)
    assert said in refused(folder)


def with_pickle(folder, content, is_zip):
    """Replace the weights by a pickle."""
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    if is_zip:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a/data.pkl", content)
    else:
        path.write_bytes(pickle.dumps(1, 2) * 3 + content)


REMEMBERS = b"}r" + (300_000_000).to_bytes(4, "little") + b"."


@pytest.mark.parametrize(
    "content, is_zip, message",
    [
        (REMEMBERS, True, "it lacks shared.weight"),
        (LISTS + b"}X\1\0\0\0wh\7s.\x80\2].", False, "else than named tensors"),
        # An array of two gigabytes in eleven bytes.
        (b"\x96" + (2 << 30).to_bytes(8, "little") + b".", True, "weights"),
        # Not even to name the storage, whose key they are.
        (LISTS + STORAGE + b"h\7NK\1tQ.", True, "a storage has no name"),
    ],
)
def test_a_pickle_of_other_or_too_many_things_is_refused(
    copy_of, content, is_zip, message
):
    folder = copy_of("hf")
    with_pickle(folder, b"\x80\x02" + content, is_zip)
    assert message in refused(folder)


def zeros(folder, name, member):
    """A file of a few kilobytes that would become gigabytes."""
    piece = bytes(1 << 20)
    with zipfile.ZipFile(
        folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as file:
        with file.open(member, "w", force_zip64=True) as stream:
            for _ in range(400):
                stream.write(piece)


@pytest.mark.slow
def test_an_archive_does_not_inflate(copy_of):
    folder = copy_of("npz")
    zeros(folder, "opus.npz", "special:model.yml.npy")
    assert "not a file of weights" in refused(folder)
    folder = copy_of("hf")
    (folder / "model.safetensors").unlink()
    zeros(folder, "pytorch_model.bin", "a/data.pkl")
    assert "would become 419430400 bytes" in refused(folder)


@pytest.mark.parametrize("size", [b"J\0\0\x40\0", b"K%c"])
def test_a_storage_that_is_named_often_is_read_once(copy_of, size):
    """Always with its whole size, or each time with another."""
    row = STORAGE + b"X\x01\0\0\0" + b"0X\x03\0\0\0cpu" + size + b"tQ"
    rows = b"".join(row.replace(b"%c", bytes([i])) for i in range(40))
    folder = copy_of("hf")
    with_pickle(folder, b"\x80\x02](" + rows + b"e.", is_zip=True)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "a") as file:
        file.writestr("a/data/0", np.zeros(1 << 22, "float32").tobytes())
    assert "not a file of weights" in refused(folder)


@pytest.mark.slow
def test_a_member_that_lies_about_its_size_does_not_inflate(copy_of):
    folder = copy_of("hf")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    content = bytes(400 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data.pkl", content)
    archive = bytearray(path.read_bytes())
    # The size in the table of contents, which is at the end.
    said = archive.rindex(b"PK\1\2") + 24
    archive[said : said + 4] = (1_000).to_bytes(4, "little")
    path.write_bytes(archive)
    del content
    assert "pytorch_model.bin is not a file of weights" in refused(folder)


@pytest.mark.parametrize("setting", ["d_model", "ffn_dim"])
def test_settings_alone_make_no_large_model(copy_of, setting):
    path = copy_of("hf") / "config.json"
    said = json.loads(path.read_text())
    names = {setting, f"encoder_{setting}", f"decoder_{setting}"}
    change_json(path, dict.fromkeys(names & set(said), 22 * 50_000))
    assert " parameters" in refused(path.parent)


@pytest.mark.parametrize(
    "name, message",
    [
        ("../secret", "found no"),
        ("{elsewhere}/secret", "found no"),
        ("link", "found no"),
        ("a" * 9_000, "File name too long"),
    ],
)
def test_no_line_of_a_file_elsewhere_is_told(copy_of, tmp_path, name, message):
    (tmp_path / "secret").write_text("password: 1234\n")
    path = copy_of("opennmt") / "data.yml"
    (path.parent / "link").symlink_to(tmp_path / "secret")
    vocabulary = f"source_vocabulary: {name.format(elsewhere=tmp_path)}"
    text = path.read_text()
    path.write_text(re.sub("source_vocabulary: .*", vocabulary, text))
    said = refused(path.parent)
    assert "1234" not in said and message in said


NAMED_TENSOR = b"\x80\x02}U\x01w"


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
def read_tensor(tmp_path):
    """Reads a `state_dict` of "w", over a storage of four numbers."""

    def read(opcodes):
        path = tmp_path / "w.bin"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a/data.pkl", NAMED_TENSOR + opcodes + b"s.")
            file.writestr("a/data/0", np.arange(4, dtype="float32").tobytes())
        return source_files.read_pickle(path)

    return read


REPEATED = tensor(3, (4,), (0,))
ATTRIBUTES = value((None, {"__defaults__": ("a",)}))


def test_a_tensor_is_a_view_of_its_storage(read_tensor):
    found = read_tensor(tensor(1, (2, 1), (2, 1)))
    np.testing.assert_array_equal(found["w"], [[1], [3]])


@pytest.mark.parametrize(
    "opcodes, message",
    [
        (tensor(0, (2, 2), (-2, 2)), "reaches beyond its storage"),
        (tensor(0, (2**31, 2**20), (0, 0)), "reaches beyond its storage"),
        (tensor(3, (2,), (1,)), "size of buffer"),
        (tensor(4, (1,), (0,)), "size of buffer"),
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
def test_nothing_outside_of_a_storage_is_read(read_tensor, opcodes, message):
    with pytest.raises(UserError, match=message):
        read_tensor(opcodes)
    assert source_files._tensor.__defaults__ is None


def test_the_size_of_a_storage_is_at_most_that_of_the_file(tmp_path):
    path = tmp_path / "w.bin"
    state = NAMED_TENSOR + tensor(0, (2,), (1,), size=2**55) + b"s."
    path.write_bytes(pickle.dumps(1, 2) * 3 + state)
    with pytest.raises(UserError, match="storage is larger than the file"):
        source_files.read_pickle(path)


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
