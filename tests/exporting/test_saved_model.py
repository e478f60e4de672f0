"""The exported model in the loader that TensorFlow Serving uses."""

import errno
import logging
import os
import re
import resource
from contextlib import contextmanager

import numpy as np
import pytest
import tensorflow as tf
from sample_runs import OPTIONS
from session_loader import Served
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer import config
from keras_transformer.__main__ import main
from keras_transformer.exporting import saved_model as serving
from keras_transformer.machine import files
from keras_transformer.translation.text_model import TextModel

TEXTS = [
    "ein kleiner Hund bellt",
    "",
    "the dog",
    "  ",
    "laut und laut und laut und laut und laut und laut und laut",
    "die Wiese",
]


def test_the_version_and_two_files_are_all_that_is_left(exported):
    assert exported.name == "17"
    assert sorted(os.listdir(exported.parent)) == [
        "17",
        "batching_parameters.txt",
        "models.config",
    ]
    assert (exported / "saved_model.pb").is_file()


def test_the_signatures_are_those_of_the_contract(served):
    def table(infos):
        return {
            name: (
                tf.dtypes.as_dtype(info.dtype).name,
                [axis.size for axis in info.tensor_shape.dim],
            )
            for name, info in infos.items()
        }

    found = {
        name: (table(signature.inputs), table(signature.outputs))
        for name, signature in served.signatures.items()
    }

    text = ("string", [-1])
    assert found == {
        "serving_default": (
            {"text": text},
            {
                "translation": text,
                "score": ("float32", [-1]),
                "truncated": ("bool", [-1]),
            },
        ),
        "with_prefix": (
            {"text": text, "prefix": text},
            {
                "translation": text,
                "score": ("float32", [-1]),
                "truncated": ("bool", [-1]),
            },
        ),
        "n_best": (
            {"text": text},
            {
                "translations": ("string", [-1, 3]),
                "scores": ("float32", [-1, 3]),
                "truncated": ("bool", [-1]),
            },
        ),
        "score": (
            {"source": text, "target": text},
            {"score": ("float32", [-1]), "num_tokens": ("int32", [-1])},
        ),
        "attention": (
            {"source": text, "target": text},
            {
                "source_pieces": ("string", [-1, -1]),
                "target_pieces": ("string", [-1, -1]),
                "attention": ("float32", [-1, -1, -1]),
            },
        ),
    }


def test_nothing_in_the_graph_calls_python(exported):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((exported / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def

    nodes = [
        *graph.node,
        *(node for f in graph.library.function for node in f.node_def),
    ]

    operations = {node.op for node in nodes}
    assert "SentencepieceTokenizeOp" in operations  # We look where it matters.
    # PyFunc, PyFuncStateless, EagerPyFunc and NumpyFunction.
    assert not [name for name in operations if re.search("Py|Numpy", name)]


@pytest.mark.slow
def test_the_best_translation_is_that_of_the_translator(
    served, small_translator
):
    expected = small_translator.translate(
        TEXTS, beam_size=5, length_penalty=0.9, n_best=1, max_source_length=11
    )

    found = served("serving_default", text=TEXTS)

    assert [text.decode() for text in found["translation"]] == [
        hypotheses[0].text for hypotheses in expected
    ]
    np.testing.assert_allclose(
        found["score"],
        [hypotheses[0].score for hypotheses in expected],
        rtol=1e-4,
        atol=1e-4,
    )
    is_long = small_translator.tokenizer.tokenize(TEXTS).row_lengths() > 11
    assert 0 < np.sum(is_long) < len(TEXTS)
    np.testing.assert_array_equal(found["truncated"], is_long)


@pytest.mark.slow
def test_the_n_best_are_those_of_the_translator(served, small_translator):
    expected = small_translator.translate(
        TEXTS, beam_size=5, length_penalty=0.9, n_best=3, max_source_length=11
    )

    found = served("n_best", text=TEXTS)

    for row, hypotheses in enumerate(expected):
        texts = [text.decode() for text in found["translations"][row]]
        missing = 3 - len(hypotheses)
        assert texts == [item.text for item in hypotheses] + [""] * missing
        np.testing.assert_allclose(
            found["scores"][row],
            [item.score for item in hypotheses] + [-np.inf] * missing,
            rtol=1e-4,
            atol=1e-4,
        )


def test_scores_are_those_of_the_translator(served, small_translator):
    sources = ["the dog", "laut", "", "ein Hund"]
    targets = ["ein Hund", "", " ", "a small dog runs"]

    found = served("score", source=sources, target=targets)

    np.testing.assert_allclose(
        found["score"],
        small_translator.score(sources, targets, length_penalty=0.9),
        rtol=1e-4,
        atol=1e-4,
    )
    counts = small_translator.tokenizer.tokenize(targets).row_lengths().numpy()
    counts[2] = 0  # Blank on both sides.
    np.testing.assert_array_equal(found["num_tokens"], counts)


def test_an_empty_batch_gives_empty_answers(served):
    found = served("serving_default", text=[])
    assert [len(value) for value in found.values()] == [0, 0, 0]
    found = served("n_best", text=[])
    assert found["translations"].shape == found["scores"].shape == (0, 3)
    found = served("score", source=[], target=[])
    assert [len(value) for value in found.values()] == [0, 0]


def test_blank_and_broken_text_gets_a_row_each(served):
    found = served("serving_default", text=["", b"\xff\xfe", " \n", "\0"])

    assert found["translation"].tolist()[0::2] == [b"", b""]
    assert found["score"].tolist()[0::2] == [0.0, 0.0]
    assert np.isfinite(found["score"]).all()


def test_neighbours_in_a_batch_do_not_matter(served):
    together = served("serving_default", text=TEXTS)
    for row, text in enumerate(TEXTS):
        alone = served("serving_default", text=[text])
        assert alone["translation"][0] == together["translation"][row]
        np.testing.assert_allclose(
            alone["score"][0], together["score"][row], rtol=1e-4, atol=1e-4
        )


def test_a_version_is_never_overwritten(small_translator, exported):
    before = {path: path.stat().st_mtime_ns for path in exported.rglob("*")}

    with pytest.raises(config.UserError) as error:
        serving.export(small_translator, exported.parent, version=17)

    assert "17 exists already and is left as it is" in str(error.value)
    after = {path: path.stat().st_mtime_ns for path in exported.rglob("*")}
    assert after == before


def test_every_signature_is_traced_once(
    small_translator, tmp_path, monkeypatch
):
    """Tracing is most of the time of an export."""
    traced = []

    def count(name):
        trace = getattr(TextModel, name)

        def counting(self, *args):
            traced.append(name)
            return trace(self, *args)

        monkeypatch.setattr(TextModel, name, counting)

    for name in ("search", "score_text", "attention_text"):
        count(name)
    serving.export(small_translator, tmp_path, 1, OPTIONS)
    expected = ["search"] * 3 + ["score_text", "attention_text"]
    assert sorted(traced) == sorted(expected)


@pytest.mark.parametrize("version", [0, -3])
def test_versions_start_at_one(tmp_path, version):
    with pytest.raises(config.UserError) as error:
        files.version_path(tmp_path, version)
    assert f"at least 1, received {version}" in str(error.value)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(config.UserError, match="file is a file; choose"):
        files.version_path(tmp_path / "file", 1)


@contextmanager
def files_of_at_most(num_bytes):
    """As a full disk: larger files fail while they are being written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_half_written(
    small_translator, tmp_path, monkeypatch
):
    output = tmp_path / "exported"
    monkeypatch.setattr(logging.root, "handlers", [])

    with files_of_at_most(10_000), pytest.raises(config.JobError) as error:
        serving.export(small_translator, output)

    assert str(error.value) == (
        f"Could not write the model to {output / '1'} "
        f"({os.strerror(errno.EFBIG)}); free space or choose a folder that "
        "can be written."
    )
    assert not output.exists()
    # TensorFlow's log would have set one up.
    assert logging.root.handlers == []


def test_a_folder_that_cannot_be_made_is_one_sentence(
    small_translator, tmp_path
):
    (tmp_path / "file").write_text("")
    with pytest.raises(config.UserError, match="choose a folder that can be"):
        serving.export(small_translator, tmp_path / "file" / "exported")


@pytest.mark.slow
def test_an_export_from_python_names_no_folder_that_is_gone(
    small_translator, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "tensorflow")
    greedy = config.Search(beam_size=1, n_best=1)
    serving.export(small_translator, tmp_path, options=greedy)
    assert "partial" not in caplog.text
    assert logging.getLogger("tensorflow").level == logging.INFO


@pytest.mark.slow
def test_the_command_prints_the_path_and_nothing_else(
    small_run, tmp_path, capfd, caplog
):
    caplog.set_level(logging.INFO)
    code = main(
        [
            "export",
            f"--run-dir={small_run}",
            f"--output={tmp_path}",
            "--version=3",
            "--average=1",
            "--beam-size=2",
            "--max-length=5",
        ]
    )

    assert code == 0
    assert capfd.readouterr().out == f"{tmp_path / '3'}\n"
    # TensorFlow's and absl's notices are not for the user.
    assert {record.name for record in caplog.records} == {"keras_transformer"}
    found = Served(tmp_path / "3")("n_best", text=["laut"])
    # Two beams have no four best.
    assert found["translations"].shape == (1, 2)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--run-dir=nowhere"], "Expected a run directory with a config.json"),
        (["--version=0"], "Expected a version of at least 1, received 0"),
        (["--average=0"], "Expected --average of at least 1"),
        (["--beam-size=0"], "Expected --beam-size to be at least 1"),
        (["--n-best=7"], "Expected --n-best to be at most 4, the --beam"),
        (["--n-best=0"], "Expected --n-best to be at least 1, received 0"),
        (["--max-source-length=1"], "--max-source-length to be at least 2"),
        (["--length-penalty=-1"], "Expected --length-penalty to be at least"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(
    small_run, tmp_path, capsys, arguments, message
):
    output = tmp_path / "exported"
    code = main(
        ["export", f"--run-dir={small_run}", f"--output={output}", *arguments]
    )

    assert code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    errors = [
        line for line in printed.err.splitlines() if line.startswith("error: ")
    ]
    assert len(errors) == 1 and message in errors[0]
    assert not output.exists()


def test_an_unknown_flag_exits_with_2(capsys):
    with pytest.raises(SystemExit) as error:
        main(["export", "--run-dir=r", "--output=o", "--beams=3"])
    assert error.value.code == 2
    assert "--beams=3" in capsys.readouterr().err
