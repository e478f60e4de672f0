"""Six writing systems, from the built-in corpus to the text that comes out."""

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
def test_nearly_all_unseen_phrases_come_out_exactly(code, tmp_path):
    corpus = kt.open_corpus("demo", target_lang=code)
    run = kt.train(tmp_path, corpus="demo", target_lang=code, **SETTINGS)
    sources, expected = zip(*corpus.pairs("test"), strict=True)
    found = run.translator().translate(list(sources))
    wrong = [
        pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]
    ]
    assert len(wrong) <= len(expected) // 20, wrong[:5]
