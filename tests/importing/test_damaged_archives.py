"""Archives in which a bit has changed: read, or refused in one sentence."""

import io
import pathlib
import zipfile

import numpy as np
import pytest

from keras_transformer.config import UserError
from keras_transformer.data.paired_tokenizer import pack
from keras_transformer.importing import marian, source_files
from keras_transformer.importing.source_files import refusing
from keras_transformer.runs.run_config import load_tokenizer

HERE = pathlib.Path(__file__).parent


def damaged(content, count):
    """Copies with one other bit each, half of them in the directory.

    It is at the end of a zip file, and what it says is believed.
    """
    start = zipfile.ZipFile(io.BytesIO(content)).start_dir
    places = np.concatenate(
        [
            np.linspace(first, end, count // 2, endpoint=False, dtype=int)
            for first, end in ((0, start), (start, len(content)))
        ]
    )
    for i, place in enumerate(places):
        copy = bytearray(content)
        copy[place] ^= 1 << i % 8
        yield bytes(copy)


def refusals(read, path, copies):
    """Count the copies that are refused; any other error ends the test."""
    refused = 0
    for copy in copies:
        path.write_bytes(copy)
        try:
            read(path)
        except UserError:
            refused += 1
    return refused


def test_a_damaged_vocabulary_of_two_sides_is_refused(originals, tmp_path):
    models = (originals / "npz" / f"{x}.spm" for x in ("source", "target"))
    pieces = ["<pad>", "<unk>", "<s>", "</s>", "▁a", "b"]
    content = pack(*(model.read_bytes() for model in models), pieces)

    refused = refusals(
        load_tokenizer, tmp_path / "tokenizer.model", damaged(content, 400)
    )

    assert refused > 100  # A date that nobody reads is no damage.


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, read",
    [
        ("hf/pytorch_model.bin", source_files.read_pickle),
        ("npz/opus.npz", marian._arrays),
    ],
)
def test_damaged_weights_are_refused(originals, tmp_path, name, read):
    content = (originals / name).read_bytes()

    def read_all(path):
        with refusing(path, "whole"):
            read(path)

    path = tmp_path / pathlib.Path(name).name
    assert refusals(read_all, path, damaged(content, 400)) > 100
