"""Table 3: every preset has the paper's shape, recipe and size."""

import paper
import pytest

from keras_transformer.presets import PRESETS, parameters

# Table 3 as it is printed: N, d_model, d_ff, h, d_k, d_v, P_drop, eps_ls, steps
# in thousands, parameters in millions (None where blank).
TABLE_3 = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 65),
    "A-h1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, 100, None),
    "A-h4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, 100, None),
    "A-h16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, 100, None),
    "A-h32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, 100, None),
    "B-dk16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, 100, 58),
    "B-dk32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, 100, 60),
    "C-N2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 36),
    "C-N4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 50),
    "C-N8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 80),
    "C-d256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, 100, 28),
    "C-d1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100, 168),
    "C-ff1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, 100, 53),
    "C-ff4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, 100, 90),
    "D-drop0.0": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, 100, None),
    "D-drop0.2": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, 100, None),
    "D-ls0.0": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, 100, None),
    "D-ls0.2": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, 100, None),
    "E-learned": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, None),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 300, 213),
}
# Not in the table, but in sections 5 and 6.3 and in Wu et al., 2021.
BEYOND = {
    "big-en-fr": (6, 1024, 4096, 16, 64, 64, 0.1, 0.1, 300, None),
    "parsing": (4, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100, None),
    "parsing-semi": (4, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100, None),
    "tiny": (4, 128, 256, 4, 32, 32, 0.3, 0.1, None, None),
    "demo": (2, 128, 256, 4, 32, 32, 0.0, 0.1, None, None),
}
# Not the paper's: layers of the encoder and of the decoder.
UNEQUAL = {"base-6-2": (6, 2), "base-12-1": (12, 1)}
VOCABULARY = {
    "big-en-fr": 32_000,
    "parsing": 16_000,
    "parsing-semi": 32_000,
    "tiny": 8_000,
    "demo": 1_000,
}


ROWS = {**TABLE_3, **BEYOND}


def closed_form(preset):
    sizes = VOCABULARY.get(preset, 37_000), *ROWS[preset][:6]
    return paper.parameter_count(*sizes, 1_024 * (preset == "E-learned"))


def test_presets_stand_in_the_order_of_the_table():
    assert list(PRESETS)[: len(TABLE_3)] == list(TABLE_3)
    assert set(PRESETS) == {*TABLE_3, *BEYOND, *UNEQUAL}


@pytest.mark.parametrize("preset", ROWS)
def test_a_preset_has_the_papers_shape_and_recipe(preset):
    N, d_model, d_ff, h, d_k, d_v, dropout, smoothing, steps, _ = ROWS[preset]
    model, training = PRESETS[preset].model, PRESETS[preset].training
    assert model.vocab_size == VOCABULARY.get(preset, 37_000)
    assert model.num_layers == N
    assert (model.d_model, model.ffn_dim) == (d_model, d_ff)
    assert (model.num_heads, model.key_dim, model.value_dim) == (h, d_k, d_v)
    assert model.dropout == dropout
    assert training.label_smoothing == smoothing
    learned = preset == "E-learned"
    assert model.positions == ("learned" if learned else "sinusoidal")
    if steps is not None:
        assert training.steps == steps * 1_000
        assert training.batch_tokens == 25_000
        assert training.warmup_steps == 4_000
        assert training.learning_rate_scale == 1.0
        assert training.checkpoint_every == "10m"
        assert training.average == (20 if preset.startswith("big") else 5)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_searches_as_the_paper_says(preset):
    search = PRESETS[preset].search
    # Section 6.3, and section 6.1.
    parses = preset.startswith("parsing")
    expected = (21, 0.3, 300) if parses else (4, 0.6, 50)
    found = search.beam_size, search.length_penalty, search.max_extra_length
    assert found == expected
    training = PRESETS[preset].training
    # Room for the longest output of 300 tokens of sentence.
    assert training.max_length == (600 if parses else 256)
    # A run keeps the checkpoints that it averages.
    assert training.keep_checkpoints >= training.average


@pytest.mark.parametrize("preset", ROWS)
def test_a_preset_has_as_many_parameters_as_the_closed_form(preset):
    # `parameters` counts as Keras does: test_model.py.
    assert parameters(PRESETS[preset].model) == closed_form(preset)


@pytest.mark.parametrize("preset", [x for x in TABLE_3 if TABLE_3[x][-1]])
def test_the_closed_form_is_near_the_papers_figure_where_it_gives_one(preset):
    # Its real vocabulary is not stated: ours falls short by 2.0 to 2.4 million
    # at width 512, by 1.2 at 256 and 4.2 at 1024, and exceeds big's by 1.2.
    assert 0.93 < closed_form(preset) / 1e6 / TABLE_3[preset][-1] < 1.01


@pytest.mark.parametrize("preset", UNEQUAL)
def test_a_preset_of_unequal_depth_has_as_many_parameters_as_by_hand(preset):
    # Embedding 37,000 * 512 = 18,944,000. An attention 4 * 512 * 512 =
    # 1,048,576; a feed-forward network 2 * 512 * 2,048 + 2,048 + 512 =
    # 2,099,712; a norm 1,024.
    def by_hand(encoder_layers, decoder_layers):
        layers = encoder_layers * 3_150_336 + decoder_layers * 4_199_936
        return 18_944_000 + layers

    model = PRESETS[preset].model
    found = model.layers_of("encoder"), model.layers_of("decoder")
    assert found == UNEQUAL[preset]
    assert parameters(model) == by_hand(*found)
    # The paper says 65 million.
    assert by_hand(6, 6) == closed_form("base") == 63_045_632
