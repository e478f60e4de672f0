"""The options of a search: their ranges, their flags and what they do."""

import argparse
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypotheses import assert_alike, assert_answered
from sample_runs import OPTIONS, WORDS
from session_loader import Served

from keras_transformer import config
from keras_transformer.commands import flags
from keras_transformer.config import Sampling, Search
from keras_transformer.exporting import saved_model as serving
from keras_transformer.model import Transformer
from keras_transformer.translation.translator import Translator

PAD, UNK, BOS, EOS = config.PAD_ID, config.UNK_ID, config.BOS_ID, config.EOS_ID

SOURCES = ["ein kleiner Hund bellt", "", "the dog", "laut", "die grüne Wiese"]
SAMPLING = Sampling(temperature=0.9, top_k=23, top_p=0.8, seed=3)
RULES = dict(no_unknown=True, no_repeat_ngram=2)


def parse(*argv, n_best=1):
    parser = argparse.ArgumentParser()
    flags.add_search_flags(parser)
    flags.add_sampling_flags(parser)
    args = parser.parse_args([*map(str, argv)])
    return flags.search_from(args, Search(), n_best)


def test_every_option_has_a_flag():
    values = dict(beam_size=7, length_penalty=0.5, n_best=5, min_length=2)
    values |= dict(max_length=11, max_extra_length=29, max_source_length=13)
    values |= dict(no_repeat_ngram=3, max_finished=19)
    drawing = dict(temperature=0.7, top_k=17, top_p=0.9, seed=19)
    argv = ["--no-unknown", "--sample"]
    for name, value in {**values, **drawing}.items():
        argv += [f"--{name.replace('_', '-')}", value]

    found = parse(*argv)

    expected = dict(values, no_unknown=True, sampling=Sampling(**drawing))
    assert found == Search(**expected)
    assert vars(found).keys() == expected.keys()
    # Python's defaults, but for the cut, which keeps a line from all memory.
    assert parse() == Search(max_source_length=256)
    assert parse("--beam-size", 3, n_best=4).n_best == 3
    assert parse("--beam-size", 1, "--sample", n_best=4).n_best == 4


def test_a_flag_of_sampling_needs_it():
    with pytest.raises(config.UserError, match="--sample beside --top-p"):
        parse("--top-p", 1)


@pytest.fixture(scope="module")
def fond_of_unknown(small_translator):
    """A translator that likes the unknown piece best."""
    small = small_translator.model
    model = Transformer(**dataclasses.asdict(small.model_config))
    model.set_weights(small.get_weights())
    table = model.embedding.table.numpy()
    source = small_translator.tokenizer.tokenize(["the dog"]).to_tensor()
    logits = small.decode(np.array([[BOS]]), *small.encode(source))[0, 0]
    # Like the piece that comes first, only more so.
    first = EOS + 1 + np.argmax(logits[EOS + 1 :])
    table[UNK] = 1.5 * table[first]
    model.embedding.table.assign(table)
    return Translator(model, small_translator.tokenizer)


@pytest.mark.stands_for("searches under rules")
def test_the_unknown_piece_is_written_only_where_it_may(fond_of_unknown):
    texts = ["the dog", "laut"]
    (free, *_), _ = fond_of_unknown.translate(texts, n_best=4)
    assert "⁇" in free.text
    ruled = fond_of_unknown.translate(texts, n_best=4, no_unknown=True)
    assert not any("⁇" in text for of_text in ruled for text, _ in of_text)


@pytest.mark.parametrize(
    "options",
    [
        Search(beam_size=3, n_best=3, min_length=5, max_length=11, **RULES),
        Search(n_best=5, length_penalty=1.3, sampling=SAMPLING, **RULES),
    ],
)
def test_a_score_is_that_of_the_whole_translation_under_every_option(
    fond_of_unknown, options
):
    id_model, tokenizer = fond_of_unknown.id_model, fond_of_unknown.tokenizer
    source = tokenizer.tokenize(["the dog", "die grüne Wiese"]).to_tensor()
    prefix = tokenizer.tokenize(["Hund und", ""])[:, :-1].to_tensor(PAD)

    found = id_model.search_ids(
        source, options, prefix=prefix, seeds=tf.constant([[3, 1], [3, 2]])
    )

    for n in range(options.n_best):
        scores, lengths = id_model.score_ids(
            source, found.ids[:, n], options.length_penalty
        )
        np.testing.assert_allclose(found.scores[:, n], scores, rtol=1e-4)
        np.testing.assert_array_equal(found.lengths[:, n], lengths)
    for row in found.ids.numpy()[0]:
        text = tokenizer.detokenize(row).numpy().decode()
        assert text.startswith("Hund und")
    for row in found.ids.numpy().reshape(2 * options.n_best, -1):
        row = row[row != PAD]
        assert UNK not in row
        pairs = list(itertools.pairwise(row))
        assert len(set(pairs)) == len(pairs)


def test_as_many_prefixes_as_texts_are_needed(small_translator):
    with pytest.raises(ValueError, match="2 texts, 1 prefixes"):
        small_translator.translate(["a", "b"], prefixes=["c"])
    with pytest.raises(ValueError, match="`prefixes` to be a list of texts"):
        small_translator.translate(["a", "b"], prefixes="cd")


def test_the_same_seed_draws_the_same_whatever_the_batches(small_translator):
    def draw(texts, sampling=SAMPLING, **options):
        return small_translator.translate(
            texts, n_best=3, sampling=sampling, max_length=11, **options
        )

    first = draw(SOURCES)

    assert_alike(draw(SOURCES), first)
    assert_alike(draw(SOURCES, batch_tokens=1), first)
    assert_alike(draw(SOURCES[::-1]), first[::-1])
    # Three draws, best first; a blank text has one translation.
    assert [len(hypotheses) for hypotheses in first] == [3, 1, 3, 3, 3]
    for hypotheses in first:
        scores = [score for _, score in hypotheses]
        assert scores == sorted(scores, reverse=True)
    assert len({text for text, _ in first[0]}) > 1
    graphs = len(small_translator._graphs)
    other = dataclasses.replace(SAMPLING, seed=4)
    assert draw(SOURCES, sampling=other) != first
    assert len(small_translator._graphs) == graphs


def test_without_a_seed_every_call_draws_afresh(small_translator):
    draws = {
        small_translator.translate(["the dog"], sampling=Sampling())[0]
        for _ in range(5)
    }
    assert len(draws) > 1


@pytest.mark.stands_for("exports that take a prefix")
def test_the_export_takes_a_prefix(served, small_translator):
    prefixes = ["laut und", "laut", "", "the", ""]
    found = served("with_prefix", text=SOURCES, prefix=prefixes)

    expected = small_translator.translate(
        SOURCES, prefixes=prefixes, **{**vars(OPTIONS), "n_best": 1}
    )

    texts = [text.decode() for text in found["translation"]]
    assert texts == [hypotheses[0].text for hypotheses in expected]
    assert texts[0].startswith("laut und") and texts[1] == ""
    scores = [x[0].score for x in expected]
    np.testing.assert_allclose(found["score"], scores, 1e-4, 1e-6)
    assert found["truncated"].tolist() == [True, False, False, False, False]


@pytest.mark.slow
def test_an_export_draws_as_its_options_say(small_translator, tmp_path):
    how = dict(max_source_length=11, sampling=SAMPLING, **RULES)
    options = Search(n_best=3, **how)
    texts = [*SOURCES, " ".join(WORDS)]

    served = Served(serving.export(small_translator, tmp_path, 1, options))

    found = served("n_best", text=texts)
    expected, _ = small_translator.search_texts(texts, options)
    assert_answered(found, expected, n_best=3)
    # An answer does not depend on who else asks.
    (alone,) = served("n_best", text=texts[2:3])["translations"]
    assert alone.tolist() == found["translations"][2].tolist()
