"""TensorFlow Serving's batching file, written and read."""

import pytest

from keras_transformer.config import UserError
from keras_transformer.exporting.batching_file import (
    batching_text,
    read_batching,
)
from keras_transformer.serving.limits import Batching


def test_the_file_of_an_export_says_what_the_server_does_without_one(tmp_path):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(batching_text())
    assert Batching(**read_batching(path)) == Batching()


def test_a_file_of_another_spelling_is_read(tmp_path):
    path = tmp_path / "batching.txt"
    path.write_text(
        "# max_batch_size { value: 2 }\n"
        "max_batch_size:{value:11}batch_timeout_micros { value : 0 }\n"
        "allowed_batch_sizes: 11\nnum_batch_threads { value: 3 } # Three.\n"
    )
    assert Batching(**read_batching(path)) == Batching(11, 0, 3, 16)


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "cannot read them"),
        (b"num_batch_threads { value: 0 }", "num_batch_threads { value: 0 }"),
        (b"max_batch_siz { value: 4 }", "found none"),
        (b"max_batch_size { value: four }", "max_batch_size { value: four }"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_sentence(tmp_path, text, said):
    path = tmp_path / "batching.txt"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(UserError, match=said):
        read_batching(path)
