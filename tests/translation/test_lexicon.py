"""Shortlists: IBM's model 1 against loops, and the file."""

import collections

import numpy as np
import pytest
import sample_runs

from keras_transformer.config import EOS_ID, UserError
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.translation import lexicon

PAIRS = [
    ("one two three", "eins zwei drei"),
    ("three one", "drei eins"),
    ("two two seven", "zwei zwei sieben"),
    ("", "null"),
    ("seven one", "sieben eins eins"),
]


@pytest.fixture(scope="module")
def translator():
    return sample_runs.digit_translator()


@pytest.fixture
def learn(translator, monkeypatch):
    """Learn from pairs of texts, in records as those of a run."""

    def learn(pairs, common=200, best=50):
        monkeypatch.setattr(lexicon, "COMMON", common)
        monkeypatch.setattr(lexicon, "BEST", best)
        words = translator.tokenizer
        records = TokenisedCorpus.in_memory(pairs, words, 64)
        return lexicon.learn(records, words)

    return learn


def by_loops(pairs, tokenizer, iterations):
    """Expectation maximisation as in Koehn (2010), figure 4.3."""
    sentences = [
        (
            tokenizer.tokenize([source])[0].numpy()[:-1].tolist(),
            tokenizer.tokenize([target])[0].numpy()[:-1].tolist(),
        )
        for source, target in pairs
        if source and target
    ]
    t = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        count = collections.defaultdict(float)
        total = collections.defaultdict(float)
        for source, target in sentences:
            for e in target:
                sum_of_e = sum(t[e, f] for f in source)
                for f in source:
                    count[e, f] += t[e, f] / sum_of_e
                    total[f] += t[e, f] / sum_of_e
        for e, f in count:
            t[e, f] = count[e, f] / total[f]
    return t, sentences


def test_candidates_are_the_most_probable_by_model_1(translator, learn):
    tokenizer = translator.tokenizer
    candidates = learn(PAIRS, common=3, best=2)
    t, sentences = by_loops(PAIRS, tokenizer, iterations=5)
    for piece in {f for source, _ in sentences for f in source}:
        likely = sorted(((p, -e) for (e, f), p in t.items() if f == piece))
        expected = [-e for _, e in likely[::-1][:2]]
        assert candidates[piece, 0] == piece
        found = candidates[piece, 1:3]
        # Equal ones may come in any order.
        np.testing.assert_allclose(
            [t[e, piece] for e in found],
            [t[e, piece] for e in expected],
            rtol=1e-6,
        )
    # "two" becomes "zwei".
    two, zwei = (
        tokenizer.tokenize([word])[0].numpy()[0] for word in ("two", "zwei")
    )
    assert zwei in candidates[two, 1:]
    counts = collections.Counter(e for _, target in sentences for e in target)
    frequent = [counts[e] for e in candidates[0, :3]]
    assert frequent == sorted(counts.values(), reverse=True)[:3]


def test_what_is_written_is_read_again(translator, learn, tmp_path):
    candidates = learn(PAIRS, common=5, best=3)
    path = tmp_path / "shortlist.tsv"
    lexicon.write(path, candidates, translator.tokenizer)
    # An editor or a tool may have left out the last line's end.
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    shortlist = lexicon.read(path, translator.tokenizer)
    last = translator.tokenizer.vocab_size - 1
    words = shortlist.words(np.array([[last, EOS_ID]]), None)
    assert last in words.ids.numpy()  # A piece is its own candidate.
    for text in ("one two", "seven", ""):
        ids = translator.tokenizer.tokenize([text]).to_tensor()
        words = shortlist.words(ids, None)
        expected = {0, 1, 2, 3, *candidates[0]}
        for piece in ids.numpy()[0][:-1]:
            expected |= {*candidates[piece]}
        found = words.ids.numpy()[words.offsets.numpy() == 0]
        assert found.tolist() == sorted(expected)


@pytest.mark.parametrize(
    "text", [None, "", "e\tn e\nn\n", "e\tn e\ne\tZwölfender\n"]
)
def test_what_is_no_shortlist_of_this_model_is_refused(
    translator, tmp_path, text
):
    path = tmp_path / "shortlist.tsv"
    if text is not None:
        path.write_bytes(text.encode())
    with pytest.raises(UserError, match=str(path)):
        lexicon.read(path, translator.tokenizer)


def test_pieces_with_other_spaces_than_the_formats_own_stay(tmp_path):
    class Vocabulary:
        vocab_size = 8

        def pieces(self, ids):
            return ["<pad>", "<unk>", "<s>", "</s>", *"a ", "\xa0!", "！\u3000"]

    path = tmp_path / "shortlist.tsv"
    lexicon.write(path, np.array([[4, 5, 6, 7]] * 8), Vocabulary())
    found = lexicon.read(path, Vocabulary())
    words = found.words(np.array([[4]]), None).ids.numpy()
    assert {*words} >= {4, 6, 7} and 5 not in words
