"""The exported model in the loader that TensorFlow Serving uses."""

import errno
import logging
import os
import re
import resource

import numpy as np
import pytest
import tensorflow as tf
from hypotheses import assert_answered
from sample_runs import DIGIT_SIZES, digit_lines
from session_loader import Served, operators

from keras_transformer import config
from keras_transformer.__main__ import main
from keras_transformer.data.pieces import TERM_SYMBOLS
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.exporting import saved_model as serving
from keras_transformer.model import Transformer
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.translator import Translator

TEXTS = [
    "ein kleiner Hund bellt",
    "",
    "the dog",
    " \u3000\u200b",
    "laut und laut und laut und laut und laut und laut und laut",
    "die Wiese",
]


def test_the_signatures_are_those_of_the_contract(served):
    def table(infos):
        return {
            name: [
                tf.dtypes.as_dtype(info.dtype).name,
                *(axis.size for axis in info.tensor_shape.dim),
            ]
            for name, info in infos.items()
        }

    found = {
        name: (table(signature.inputs), table(signature.outputs))
        for name, signature in served.signatures.items()
    }

    text, score, cut = (["string", -1], ["float32", -1], ["bool", -1])
    best = dict(translation=text, score=score, truncated=cut)
    three = dict(translations=[*text, 3], scores=[*score, 3], truncated=cut)
    pair = dict(source=text, target=text)
    pieces = dict(source_pieces=[*text, -1], target_pieces=[*text, -1])
    assert found == {
        "serving_default": (dict(text=text), best),
        "with_prefix": (dict(text=text, prefix=text), best),
        "n_best": (dict(text=text), three),
        "score": (pair, dict(score=score, num_tokens=["int32", -1])),
        "attention": (pair, dict(pieces, attention=[*score, -1, -1])),
    }


def test_nothing_in_the_graph_calls_python(exported):
    found = operators(exported)
    assert "SentencepieceTokenizeOp" in found  # We look where it matters.
    # PyFunc, PyFuncStateless, EagerPyFunc and NumpyFunction.
    assert not [name for name in found if re.search("Py|Numpy", name)]


@pytest.mark.stands_for("translations of an export")
def test_translations_are_those_of_the_translator(served, small_translator):
    expected = small_translator.translate(
        TEXTS, beam_size=5, length_penalty=0.9, n_best=3, max_source_length=11
    )

    found = served("n_best", text=TEXTS)
    best = served("serving_default", text=TEXTS)

    assert_answered(found, expected, n_best=3)
    assert (best["translation"] == found["translations"][:, 0]).all()
    np.testing.assert_allclose(best["score"], found["scores"][:, 0], rtol=1e-4)
    is_long = small_translator.tokenizer.tokenize(TEXTS).row_lengths() > 11
    assert 0 < np.sum(is_long) < len(TEXTS)
    np.testing.assert_array_equal(found["truncated"], is_long)
    np.testing.assert_array_equal(best["truncated"], is_long)


def test_scores_are_those_of_the_translator(served, small_translator):
    sources = ["the dog", "laut", "", "ein Hund"]
    targets = ["ein Hund", "", " ", "a small dog runs"]

    found = served("score", source=sources, target=targets)

    scores = small_translator.score(sources, targets, length_penalty=0.9)
    np.testing.assert_allclose(found["score"], scores, 1e-4, 1e-4)
    counts = small_translator.tokenizer.tokenize(targets).row_lengths().numpy()
    counts[2] = 0  # Blank on both sides.
    np.testing.assert_array_equal(found["num_tokens"], counts)


def test_a_version_is_never_overwritten(small_translator, exported):
    def times():
        return {path: path.stat().st_mtime_ns for path in exported.rglob("*")}

    before = times()
    with pytest.raises(config.UserError, match="17 exists already"):
        serving.export(small_translator, exported.parent, version=17)
    assert times() == before


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_half_written(
    small_translator, tmp_path, monkeypatch, one_signature
):
    output = tmp_path / "exported"
    monkeypatch.setattr(logging.root, "handlers", [])

    # As a full disk: larger files fail while they are being written.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(config.JobError, match=os.strerror(errno.EFBIG)):
            serving.export(small_translator, output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not any(output.iterdir())
    # TensorFlow's log would have set one up.
    assert logging.root.handlers == []


def test_the_command_prints_the_path_and_nothing_else(
    small_run, tmp_path, capfd, caplog, one_signature
):
    caplog.set_level(logging.INFO)
    arguments = [f"--run-dir={small_run}", f"--output={tmp_path}"]
    arguments += "--version=3 --average=1 --beam-size=2 --max-length=5".split()

    assert main(["export", *arguments]) == 0
    assert capfd.readouterr().out == f"{tmp_path / '3'}\n"
    # TensorFlow's and absl's notices are not for the user.
    assert {record.name for record in caplog.records} == {"keras_transformer"}
    search = ModelCard.load(tmp_path / "3").search
    found = search["beam_size"], search["n_best"], search["max_length"]
    # Two beams have no four best.
    assert found == (2, 2, 5)
    assert Served(tmp_path / "3")("serving_default", text=["laut"])


def test_8_bits_in_public_operators_alone_are_refused(
    small_run, tmp_path, capsys
):
    output = tmp_path / "exported"
    arguments = [f"--run-dir={small_run}", f"--output={output}"]
    code = main(["export", *arguments, "--precision=int8", "--portable"])
    assert code == 2 and not output.exists()
    (error,) = re.findall("^error: .*", capsys.readouterr().err, re.M)
    assert "int8" in error


def test_a_graph_keeps_what_a_mark_keeps_and_reads_marks_as_python_does(
    tmp_path_factory, one_signature
):
    folder = tmp_path_factory.mktemp("marks")
    path = folder / "model"
    tokenizer = Tokenizer.train(digit_lines(), 307, path, TERM_SYMBOLS)
    model = Transformer(vocab_size=tokenizer.vocab_size, **DIGIT_SIZES)
    translator = Translator(model, tokenizer, config.Search(max_length=13))
    texts = [
        "one <term>{a}<as></term> two",
        "<term>three<as>drei</term> four",
        "<term>https://x.org/?a=b<as></term> and <term>%s<as></term>",
    ]
    path = serving.export(translator, folder / "export")
    found = Served(path)("serving_default", text=texts)["translation"]
    expected = translator.translate(texts)
    assert [text.decode() for text in found] == expected
    # The beginning is given: whatever the model writes then.
    begun = translator.translate(
        texts, prefixes=["<kept0>", "<kept0>", "<kept1>"]
    )
    for text, start in zip(begun, ("{a}", "drei", "%s"), strict=True):
        assert text.startswith(start)
