"""Marian models in both of their formats, against what made or reads them.

`make_marian.py` has recorded what `MarianMTModel` and `MarianTokenizer` make of
the models, of that in Marian's form with Marian's own arithmetic.
"""

import json
import pickle

import numpy as np
import pytest
import tensorflow as tf
from imported_models import LANGUAGES, check_logits

from keras_transformer.config import PAD_ID, Search, UserError
from keras_transformer.importing import run_directory
from keras_transformer.importing.run_directory import import_run
from keras_transformer.importing.source_files import (
    read_pickle,
    read_safetensors,
)
from keras_transformer.run import Run, train

LONGEST = 40  # Tokens, as in make_marian.py.


@pytest.fixture(scope="module")
def expected(originals):
    return json.loads((originals / "expected.json").read_text())


@pytest.fixture(scope="module")
def run_dir(originals):
    return import_run(originals / "hf", originals / "run")


@pytest.fixture(scope="module")
def translator(run_dir):
    return Run(run_dir).translator()


@pytest.fixture(scope="module")
def of_npz(originals):
    run_dir = import_run(originals / "npz", originals / "run-npz", **LANGUAGES)
    return Run(run_dir).translator()


@pytest.fixture(scope="module")
def ours(originals, translator):
    """Our id for each of theirs."""
    vocab = json.loads((originals / "hf" / "vocab.json").read_text())
    names = translator.tokenizer.pieces(range(translator.tokenizer.vocab_size))
    return {vocab[name]: i for i, name in enumerate(names) if name in vocab}


def test_texts_become_the_ids_of_marian(translator, expected, ours):
    for side, tokenizer, texts in (
        ("source", translator.tokenizer, expected["texts"]),
        ("target", translator.tokenizer.target, expected["targets"]),
    ):
        wanted = [[ours[i] for i in ids] for ids in expected[f"{side}_ids"]]
        assert tokenizer.tokenize(texts).to_list() == wanted
        ids, lengths = tokenizer.tokenize_many(texts)
        assert np.split(ids, np.cumsum(lengths)[:-1])[1].tolist() == wanted[1]


def test_a_tag_that_the_model_lacks_is_told_once(translator, caplog):
    for _ in range(2):
        translator.tokenizer.tokenize([">>deu<< a", ">>fr<< a", "a >>fr<<"])
    (said,) = [line for line in caplog.messages if ">>fr<<" in line]
    assert said.endswith("its tags: >>deu<<, >>nld<<.")


def test_logits_are_those_of_the_marian_model(translator, expected, ours):
    check_logits(translator, expected, ours, expected["logits"])


def test_logits_of_an_npz_are_those_of_marian(of_npz, expected, ours):
    pieces = {i: j for i, j in ours.items() if j != PAD_ID}
    assert len(pieces) > 50
    check_logits(of_npz, expected, pieces, expected["marian"]["logits"])


def same_as(expected, translator, texts, beams):
    """Count the texts, of those that end, that it translates alike."""
    search = dict(beam_size=beams, length_penalty=0.0, max_length=LONGEST)
    found = translator.translate(texts, n_best=1, **search)
    same = 0
    for i, (best,) in enumerate(found):
        if len(expected["ids"][i]) == LONGEST:
            continue  # It was cut there.
        score = expected["scores"][i] if beams > 1 else None
        if best.text != expected["texts"][i]:
            # Theirs counts fewer ends, and so may miss the best.
            assert beams > 1 and best.score > score + 0.1
            continue
        same += 1
        if beams > 1:
            # Its end was not written by chance: the score is that of all.
            np.testing.assert_allclose(best.score, score, atol=1e-3)
    return same


slow = pytest.mark.slow


@pytest.mark.stands_for("searches of imported models")
@pytest.mark.parametrize(
    "model, search, beams, least",
    [
        ("translator", "beam", 4, 8),
        pytest.param("translator", "greedy", 1, 8, marks=slow),
        pytest.param("of_npz", "beam", 4, 8, marks=slow),
        pytest.param("of_npz", "greedy", 1, 7, marks=slow),
    ],
)
def test_searches_find_what_the_original_generates(
    request, expected, model, search, beams, least
):
    theirs = expected["marian"] if model == "of_npz" else expected
    translator = request.getfixturevalue(model)
    same = same_as(theirs[search], translator, expected["texts"], beams)
    assert same >= least


def test_every_file_of_weights_holds_the_same(originals):
    tensors = read_safetensors(originals / "hf" / "model.safetensors")
    assert len(tensors) > 100
    for name in ("pytorch_model.bin", "legacy.bin"):
        again = read_pickle(originals / "hf" / name)
        assert set(tensors) <= set(again)
        for key, array in tensors.items():
            np.testing.assert_array_equal(array, again[key])


class Harmful:
    def __reduce__(self):
        return print, ("run",)


def test_a_pickle_runs_no_code(tmp_path, capsys):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(UserError, match="it asks for builtins.print"):
        read_pickle(path)
    assert capsys.readouterr().out == ""


def test_other_folders_are_refused(originals, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "expected.npz").write_bytes(b"")
    with pytest.raises(UserError, match="model.safetensors.* decoder.yml"):
        run_directory.read(tmp_path)
    with pytest.raises(UserError, match="npz do not tell its languages"):
        import_run(originals / "npz", tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        import_run(originals / "npz", tmp_path / "run", **LANGUAGES)


@pytest.mark.slow
def test_the_saved_model_takes_and_returns_the_same_text(
    originals, run_dir, translator, expected
):
    path = Run(run_dir).export(
        originals / "exported", search=Search(length_penalty=0.0)
    )
    texts = expected["texts"][:8]
    wanted = expected["beam"]["texts"][:8]
    signatures = tf.saved_model.load(str(path)).signatures
    answer = signatures["serving_default"](text=tf.constant(texts))
    assert [text.decode() for text in answer["translation"].numpy()] == wanted
    # The target side has its own pieces.
    scores = signatures["score"](
        source=tf.constant(texts), target=tf.constant(wanted)
    )
    np.testing.assert_allclose(
        scores["score"],
        translator.score(texts, wanted, length_penalty=0.0),
        atol=1e-4,
    )


@pytest.mark.slow
def test_a_training_goes_on_from_it(originals, run_dir, expected):
    pairs = [("the small dog", "der kleine Hund"), ("a cat", "eine Katze")] * 9
    settings = dict(steps=2, batch_tokens=64, average=1, **LANGUAGES)
    corpus = {"train": pairs, "val": pairs[:2]}
    tuned = originals / "tuned"
    run = train(tuned, corpus=corpus, init_from=run_dir, **settings)
    assert run.config.model.logits_bias
    first = run.history()[0]
    assert np.isfinite(first["loss"]) and first["loss"] < 8
    assert run.translator().translate(["the small dog"])
