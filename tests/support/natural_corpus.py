"""Corpora of ids that tell their sentence, and vocabularies of any kind."""

import io
import itertools

import numpy as np
import sentencepiece

from keras_transformer.data.records import Side, TokenisedCorpus

EOS = 3


def side(lengths):
    """A side whose every token tells its sentence: 11 + row."""
    rows = [
        [11 + row] * (length - 1) + [EOS] for row, length in enumerate(lengths)
    ]
    return Side(np.array(list(itertools.chain(*rows))), np.array(lengths))


def corpus(source_lengths, target_lengths):
    return TokenisedCorpus(side(source_lengths), side(target_lengths))


def natural_corpus(pairs=5003, seed=7):
    """Lengths spread like those of sentences and their translations."""
    random = np.random.default_rng(seed)
    base = random.lognormal(2.7, 0.4, pairs)
    sides = base * random.lognormal(0, 0.13, (2, pairs))
    return corpus(*np.clip(sides, 2, 61).astype(int))


def train_pieces(sentences, vocab_size, **options):
    """The model of a vocabulary that has our ids, if not our options."""
    model = io.BytesIO()
    ours = dict(model_type="bpe", pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=3,
        **{**ours, **options},
    )
    return model.getvalue()


def same_ids(tokenizer, texts):
    """Return the ids of the graph, which are those of the bulk."""
    found = tokenizer.tokenize(texts)
    ids, lengths = tokenizer.tokenize_many(texts)
    np.testing.assert_array_equal(ids, found.values)
    np.testing.assert_array_equal(lengths, found.row_lengths())
    return found.to_list()
