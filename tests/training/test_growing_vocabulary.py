"""A run begins with the weights of another and with more pieces."""

import numpy as np
import pytest
from sample_runs import digit_corpus, digit_lines, digit_run

import keras_transformer as kt
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs import averaging

SYMBOLS = ["<b>", "⟦name⟧", "Füße"]
LINES = digit_corpus()["test"]


def tune(run_dir, **given):
    """Begin with the run that has learnt digits, and hardly move."""
    return kt.train(
        run_dir,
        corpus={
            "train": [("one <b> two", "eins <b> zwei")] * 5,
            "val": [("one", "eins")] * 2,
        },
        init_from=digit_run(),
        preset="demo",
        **dict(steps=1, learning_rate_scale=1e-6, batch_tokens=101, **given),
    )


def pieces_of(tokenizer):
    return tokenizer.pieces(range(tokenizer.vocab_size))


@pytest.fixture(scope="module")
def before():
    return kt.Run(digit_run()).translator()


def translated(translator):
    texts, references = LINES
    found = translator.translate(texts[:31])
    # So that it is no empty promise.
    assert sum(map(str.__eq__, found, references)) > 25
    return found


@pytest.mark.slow
def test_what_was_known_is_translated_as_before(tmp_path, before):
    after = tune(tmp_path / "run", symbols=SYMBOLS).translator()
    assert translated(after) == translated(before)
    # Three pieces more share the probability.
    some = [side[:31] for side in LINES]
    scores = (each.score(*some) for each in (after, before))
    np.testing.assert_allclose(*scores, atol=0.05)


def test_symbols_are_added_behind_the_other_pieces():
    old = Tokenizer.load(digit_run())
    new = old.with_symbols(SYMBOLS)
    assert pieces_of(new) == [*pieces_of(old), *SYMBOLS]
    texts = ["one<b>two", "⟦name⟧ und Füße", "drei"]
    written = map(new.pieces, new.tokenize(texts).to_list())
    found = [[piece for piece in x if piece in SYMBOLS] for x in written]
    assert found == [["<b>"], ["⟦name⟧", "Füße"], []]
    joined = new.detokenize(new.tokenize(texts)).numpy()
    assert [text.decode() for text in joined] == texts
    assert old.with_symbols([]) is old
    with pytest.raises(kt.UserError, match="<s>"):
        old.with_symbols(["<s>"])


@pytest.mark.slow
def test_another_vocabulary_takes_the_rows_of_the_pieces_that_both_have(
    tmp_path, before, caplog
):
    # Symbols come first there, so every piece has another row than before.
    path = tmp_path / "new.model"
    new = Tokenizer.train([*digit_lines(), "Quark quakt"], 311, path, SYMBOLS)
    with caplog.at_level("INFO", "keras_transformer"):
        run = tune(tmp_path / "run", tokenizer=path)
    old = Tokenizer.load(digit_run())
    table, grown = (
        averaging.load(path)[0].get_weights()[0]
        for path in (digit_run(), run.path)
    )
    row_of = dict(zip(pieces_of(old), table, strict=True))
    mean, kept = table[4:].mean(0), 0
    for name, row in zip(pieces_of(new), grown, strict=True):
        np.testing.assert_allclose(row, row_of.get(name, mean), atol=1e-6)
        kept += name in row_of
    assert 260 < kept < new.vocab_size - 3
    assert f"{kept} of {new.vocab_size} pieces keep their rows" in caplog.text
    assert translated(run.translator()) == translated(before)


@pytest.mark.slow
def test_the_tag_of_a_corpus_is_added_to_the_vocabulary_begun_with(tmp_path):
    for split in ("train", "val"):
        (tmp_path / f"{split}.en").write_text("one\ntwo\n" * 3)
        (tmp_path / f"{split}.de").write_text("eins\nzwei\n" * 3)
    run = kt.train(
        tmp_path / "run",
        corpus=[tmp_path, f"{tmp_path}:1:<bt>"],
        init_from=digit_run(),
        **dict(preset="demo", steps=1, batch_tokens=101, symbols=["<y>"]),
    )
    known = pieces_of(Tokenizer.load(digit_run()))
    assert pieces_of(Tokenizer.load(run.path)) == [*known, "<y>", "<bt>"]
