"""A translation explained: its search, its attention, and nothing changed."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, Sampling
from keras_transformer.run import Run
from keras_transformer.translation.translator import Hypothesis
from keras_transformer.viewing.explanation import Fate

TEXT = "the dog runs across die Wiese"
OPTIONS = dict(beam_size=3, length_penalty=0.9, max_length=17)


@pytest.fixture(scope="module")
def translator(small_run):
    translator = Run(small_run).translator()
    # Else no sentence of this random model would end before its limit.
    table = translator.id_model.model.embedding.table
    factor = np.ones([translator.id_model.vocab_size, 1])
    factor[EOS_ID] = 1.6
    table.assign(factor * table)
    return translator


@pytest.fixture(scope="module")
def explained(translator):
    return translator.explain(TEXT, **OPTIONS)


@pytest.fixture(scope="module")
def paths(translator, explained):
    """For each node those up to it, their ids, and what the model reads."""
    names = translator.tokenizer.pieces(range(translator.model.vocab_size))
    source = translator.tokenizer.tokenize([TEXT]).to_tensor().numpy()
    found = []
    for number in range(len(explained.nodes)):
        path = [explained.nodes[k] for k in explained.path(number)]
        ids = [names.index(node.piece) for node in path]
        # The decoder reads the start token and all but the last piece.
        found.append((path, ids, (source, np.array([[BOS_ID, *ids[:-1]]]))))
    return found


@pytest.mark.parametrize(
    "beams, prefix",
    [pytest.param(1, "", marks=pytest.mark.slow), (3, ""), (3, "ein kleiner")],
)
def test_the_translations_and_scores_are_those_of_translate(
    translator, beams, prefix
):
    options = {**OPTIONS, "beam_size": beams}
    (expected,) = translator.translate(
        [TEXT], n_best=beams, prefixes=[prefix], **options
    )

    found = translator.explain(TEXT, prefix=prefix, **options)

    assert found.translations == [text for text, _ in expected]
    assert all(text.startswith(prefix) for text in found.translations)
    scores = [found.nodes[leaf].score for leaf in found.leaves]
    assert scores == [score for _, score in expected]
    languages = translator.source_lang, translator.target_lang
    assert (found.source_lang, found.target_lang) == languages == ("en", "de")


def test_every_node_follows_its_parent_and_costs_what_the_model_says(
    explained, translator, paths
):
    assert len({node.fate for node in explained.nodes}) >= 4
    for node, (path, ids, read) in zip(explained.nodes, paths, strict=True):
        assert path[-1] is node
        assert [each.step for each in path] == [*range(node.step + 1)]
        log_probs = tf.nn.log_softmax(translator.model(read))[0].numpy()
        total = log_probs[range(len(ids)), ids].sum()
        np.testing.assert_allclose(node.log_prob, total, rtol=1e-4)
        np.testing.assert_allclose(
            node.score, total / ((5 + len(ids)) / 6) ** 0.9, rtol=1e-4
        )


def test_each_fate_is_what_became_of_the_node(explained):
    nodes = explained.nodes
    parents = {node.parent for node in nodes}
    last = max(node.step for node in nodes)
    for number, node in enumerate(nodes):
        of_step = [other for other in nodes if other.step == node.step]
        on = {Fate.FOLLOWED, Fate.GIVEN_UP}
        if number in parents:
            assert node.fate is Fate.FOLLOWED
        if node.fate is Fate.PRUNED:
            better = [other for other in of_step if other.fate in on]
            assert len(better) == 3
            assert all(other.log_prob >= node.log_prob for other in better)
        if node.fate is Fate.GIVEN_UP:
            assert node.step == last
        assert (node.fate is Fate.RETURNED) == (node.rank >= 0)
        ended = node.fate in {Fate.RETURNED, Fate.DISPLACED}
        assert ended == bool(node.ends_with)
        assert (node.piece == "</s>") == (node.ends_with == "end token")
        if node.fate is Fate.DISPLACED:
            worst = nodes[explained.leaves[-1]]
            assert node.score <= worst.score
    for rank, leaf in enumerate(explained.leaves):
        assert nodes[leaf].rank == rank


def test_row_t_is_the_step_that_wrote_piece_t(explained, translator, paths):
    for path, _, read in paths:
        expected = translator.model.attention_weights(*read)
        rows = [node.row for node in path]
        found = {
            "encoder": explained.encoder,
            "decoder": explained.decoder[:, :, rows, : len(rows)],
            "cross": explained.cross[:, :, rows],
        }
        for name, weights in found.items():
            np.testing.assert_allclose(
                weights, np.stack(expected[name])[:, 0], rtol=1e-4, atol=1e-6
            )
    assert len(explained.source_pieces) == read[0].shape[1]
    best = explained.attention()
    rows = [node.row for node in paths[explained.leaves[0]][0]]
    np.testing.assert_array_equal(best.cross, explained.cross[:, :, rows])
    assert best.target_in == ["<s>", *best.target_pieces[:-1]]


def test_the_greedy_choice_is_the_likeliest_alternative_of_its_row(translator):
    found = translator.explain(TEXT, beam_size=1, max_length=13)
    assert found.nodes
    for node in found.nodes:
        ranked = found.alternatives[node.row]
        place = [choice.piece for choice in ranked].index(node.piece)
        best = ranked[place]
        # Unless something likelier would break a character.
        assert place == 0 or "<0x" in ranked[0].piece + best.piece
        before = found.nodes[node.parent].log_prob if node.parent >= 0 else 0
        np.testing.assert_allclose(
            best.log_prob, node.log_prob - before, rtol=1e-3, atol=1e-5
        )


@pytest.mark.filterwarnings("error:You are using a softmax over axis")
def test_a_blank_text_has_one_empty_translation_and_no_nodes(translator):
    assert translator.translate([" "], n_best=1) == [[Hypothesis("", 0.0)]]
    found = translator.explain(" ")
    assert found.translations == [""] and found.leaves == [-1]
    assert found.nodes == []
    attention = found.attention()
    assert attention.cross.shape == (2, 3, 0, 1)
    assert attention.target_pieces == []
    # Nor is an attention over one piece a reason to warn.
    assert len(translator.explain(TEXT, max_length=1).nodes) == 8


def test_what_cannot_be_explained_is_said_in_a_sentence(translator):
    with pytest.raises(ValueError, match="`text`"):
        translator.explain([TEXT])
    with pytest.raises(ValueError, match="`hypothesis`"):
        translator.explain("").attention(1)
    with pytest.raises(ValueError, match="beam"):
        translator.explain(TEXT, sampling=Sampling(seed=1))
