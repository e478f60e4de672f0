"""Other writing systems, from pairs in memory to the text that comes out."""

import random

import num2words
import pytest

import keras_transformer as kt

# Small and quick: about 25 seconds of one core each.
SETTINGS = dict(
    preset="demo",
    num_layers=1,
    d_model=64,
    ffn_dim=128,
    norm_first=True,
    vocab_size=800,
    batch_tokens=1_024,
    steps=800,
    warmup_steps=100,
    learning_rate_scale=0.5,
    checkpoint_every="20",
    validation_steps=800,
    target_bleu=None,
)


# The model sees ids: without spaces, with many characters, from the right.
@pytest.mark.slow
@pytest.mark.parametrize("code", ["th", "ja", "fa"])
def test_nearly_all_unseen_numbers_come_out_exactly(code, tmp_path):
    values = random.Random(7).sample(range(99_999), 11_000)
    words = num2words.num2words
    pairs = [(words(x, lang="en"), words(x, lang=code)) for x in values]
    corpus = dict(train=pairs[:10_000], val=pairs[10_000:10_500])
    run = kt.train(tmp_path, corpus=corpus, target_lang=code, **SETTINGS)
    sources, expected = zip(*pairs[10_500:], strict=True)
    found = run.translator().translate(list(sources))
    both = zip(found, expected, strict=True)
    wrong = [pair for pair in both if pair[0] != pair[1]]
    assert len(wrong) <= len(expected) // 20, wrong[:5]
