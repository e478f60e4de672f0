"""Reading TensorFlow Serving's batching file."""

import pytest

from keras_transformer.config import UserError
from keras_transformer.machine.batching_file import Batching
from keras_transformer.serving.limits import Limits


def test_the_file_of_an_export_says_what_the_server_does_without_one(tmp_path):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(Batching(max_batch_size=7).as_text())
    assert Batching.load(path) == Batching(max_batch_size=7)
    assert Batching() == Batching(32, 5_000, 2, 16)


def test_a_file_of_another_spelling_is_read(tmp_path):
    path = tmp_path / "batching.txt"
    path.write_text(
        "# max_batch_size { value: 2 }\n"
        "max_batch_size:{value:11}batch_timeout_micros { value : 0 }\n"
        "allowed_batch_sizes: 11\nnum_batch_threads { value: 3 } # Three.\n"
    )
    assert Batching.load(path) == Batching(11, 0, 3, 16)


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "cannot read them"),
        (b"num_batch_threads { value: 0 }", "at least 1 in .* found 0"),
        (b"max_batch_siz { value: 4 }", "did you mean max_batch_size"),
        (b"max_batch_size { value: four }", "max_batch_size { value: four }"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_sentence(tmp_path, text, said):
    path = tmp_path / "batching.txt"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(UserError, match=said):
        Batching.load(path)


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(
        UserError, match="max_texts. to be at least 1, received 0"
    ):
        Limits(max_texts=0)
