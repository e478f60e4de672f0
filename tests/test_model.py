import keras
import numpy as np
import paper
import pytest
import tensorflow as tf
from small_models import (
    KINDS,
    SOURCE,
    TARGET,
    TARGET_IN,
    close,
    make_model,
    model_of,
    paper_weights,
    sentence,
)

from keras_transformer.layers import Decoder, EncoderLayer
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.presets import parameters
from keras_transformer.runs.run_config import RunConfig

PRECISIONS = ["float32", "mixed_bfloat16", "mixed_float16"]
ROWS = range(len(SOURCE))
KEY_DIM, VALUE_DIM, VOCAB = 5, 7, 23


@pytest.fixture(params=KINDS)
def model(request):
    """One of each kind, not to be changed."""
    return model_of(request.param)


@pytest.fixture(params=["sinusoidal", "learned"])
def either_model(request):
    """The paper's two."""
    return model_of(request.param)


@pytest.mark.parametrize(
    "kind", ["sinusoidal", "learned", "deep encoder", "deep decoder"]
)
def test_the_forward_pass_is_the_papers(kind):
    model = model_of(kind)
    weights = paper_weights(model)
    logits = model((SOURCE, TARGET_IN), training=False)
    assert logits.shape == (3, 6, VOCAB)
    for row in ROWS:
        expected, _ = paper.transformer(
            sentence(SOURCE[row]), sentence(TARGET_IN[row]), weights
        )
        close(logits[row, : len(expected)], expected)


def test_a_later_target_token_never_changes_an_earlier_output(model):
    changed = TARGET_IN.copy()
    changed[0, 3:] = [21, 4, 22]

    before = np.asarray(model((SOURCE, TARGET_IN)))
    after = np.asarray(model((SOURCE, changed)))

    np.testing.assert_array_equal(before[0, :3], after[0, :3])
    assert np.all(np.any(before[0, 3:] != after[0, 3:], axis=-1))
    np.testing.assert_array_equal(before[1:], after[1:])


def test_a_row_gives_the_same_alone_and_behind_columns_of_padding(model):
    together = model((SOURCE, TARGET_IN))
    wider = model(
        (np.pad(SOURCE, [(0, 0), (0, 3)]), np.pad(TARGET_IN, [(0, 0), (0, 5)]))
    )
    for row in ROWS:
        source = sentence(SOURCE[row])[None]
        target_in = sentence(TARGET_IN[row])[None]
        alone = model((source, target_in))[0]
        close(together[row, : len(alone)], alone)
        close(wider[row, : len(alone)], alone)


def test_cached_steps_give_what_the_whole_target_gives(model):
    # W = 4 beams of one length, each with tokens of its own.
    beams = np.random.default_rng(5).integers(4, VOCAB, (3, 4, 6), "int32")
    beams[..., 0] = 2
    memory, source_mask = model.encode(SOURCE)
    cross = model.cross_keys_values(memory)
    cache = model.empty_cache(batch=3)
    whole = [
        model.decode(beams[:, beam], memory, source_mask) for beam in range(4)
    ]
    slots = model.model_config.restriction or 6
    for t in range(6):
        logits, cache = model.decode_step(
            beams[:, :, t], t, cache, cross, source_mask
        )
        assert logits.shape == (3, 4, VOCAB)
        assert len(cache) == len(model.decoder.layers)
        for key, value in cache:
            written = 4 * min(t + 1, slots)
            assert key.shape == (3, 3, written, KEY_DIM)
            assert value.shape == (3, 3, written, VALUE_DIM)
        for beam in range(4):
            close(logits[:, beam], whole[beam][:, t])


def test_parameters_are_as_many_as_keras_counts(model):
    assert parameters(model.model_config) == model.count_params()


def test_training_without_dropout_gives_the_same_logits(model):
    close(model((SOURCE, TARGET_IN), training=True), model((SOURCE, TARGET_IN)))


@pytest.mark.parametrize("policy", PRECISIONS)
def test_a_row_of_nothing_but_padding_gives_finite_numbers(policy):
    model = make_model(dtype=policy)
    nothing = np.zeros((2, 4), "int32")
    assert np.all(np.isfinite(model((nothing, nothing))))


def test_attention_weights_are_the_papers(either_model):
    weights = either_model.attention_weights(SOURCE, TARGET_IN)

    assert set(weights) == {"encoder", "decoder", "cross"}
    for row in ROWS:
        source, target_in = sentence(SOURCE[row]), sentence(TARGET_IN[row])
        s, t = len(source), len(target_in)
        _, expected = paper.transformer(
            source, target_in, paper_weights(either_model)
        )
        for i in range(2):
            close(weights["encoder"][i][row, :, :s, :s], expected["encoder"][i])
            close(weights["decoder"][i][row, :, :t, :t], expected["decoder"][i])
            close(weights["cross"][i][row, :, :t, :s], expected["cross"][i])


@pytest.mark.parametrize("policy", PRECISIONS)
def test_a_cached_step_has_float32_logits_and_a_cache_of_compute_dtype(policy):
    model = make_model(dtype=policy)
    memory, source_mask = model.encode(SOURCE)
    cache = model.empty_cache(3)
    logits, after = model.decode_step(
        TARGET_IN[:, :2], 0, cache, model.cross_keys_values(memory), source_mask
    )
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    compute = policy.removeprefix("mixed_")
    for tensor in tf.nest.flatten([cache, after]):
        assert keras.backend.standardize_dtype(tensor.dtype) == compute


def loss_by_the_paper(weights):
    nats = []
    for row in ROWS:
        logits, _ = paper.transformer(
            sentence(SOURCE[row]), sentence(TARGET_IN[row]), weights
        )
        nats.extend(paper.cross_entropies(sentence(TARGET[row]), logits, 0.1))
    return np.mean(nats)


def leaves(tree, path=""):
    """Every array of a nest of dictionaries and lists, with its path."""
    if isinstance(tree, np.ndarray):
        yield path, tree
        return
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for name, branch in pairs:
        yield from leaves(branch, f"{path}/{name}")


def test_every_gradient_is_the_slope_of_the_papers_loss(either_model):
    # The tied matrix is one of them: its slope has the ways through source,
    # target and logits in it.
    model = either_model
    with tf.GradientTape() as tape:
        loss = SmoothedCrossEntropy(0.1)(TARGET, model((SOURCE, TARGET_IN)))
    trained = model.trainable_weights
    found = tape.gradient(loss, [weight.value for weight in trained])
    gradients = {
        weight.path: tf.convert_to_tensor(gradient).numpy()
        for weight, gradient in zip(trained, found, strict=True)
    }
    weights = paper_weights(model)
    slopes = dict(leaves(paper_weights(model, lambda v: gradients[v.path])))
    np.testing.assert_allclose(loss, loss_by_the_paper(weights), rtol=1e-5)

    draw, step = np.random.default_rng(7), 1e-5
    for path, array in leaves(weights):
        direction = draw.normal(size=array.shape)
        array += step * direction
        above = loss_by_the_paper(weights)
        array -= 2 * step * direction
        below = loss_by_the_paper(weights)
        array += step * direction
        slope = np.sum(slopes[path] * direction)
        quotient = (above - below) / (2 * step)
        np.testing.assert_allclose(slope, quotient, 1e-3, 1e-5, err_msg=path)


def test_dropout_falls_on_the_sums_of_embeddings_and_positions():
    # Updates of zero leave nothing else to drop.
    model = make_model(dropout=0.5)
    ends = "attention/output", "narrow/kernel", "narrow/bias"
    for weight in model.encoder.weights + model.decoder.weights:
        if weight.path.endswith(ends):
            weight.assign(np.zeros(weight.shape))
    memory, source_mask = model.encode(SOURCE)
    assert np.any(np.asarray(model.encode(SOURCE, training=True)[0] != memory))
    still, dropped = (
        model.decode(TARGET_IN, memory, source_mask, training=training)
        for training in (False, True)
    )
    assert np.any(np.asarray(still != dropped))


def test_a_call_without_training_drops_nothing():
    still, dropping = make_model(), make_model(dropout=0.5)
    inputs = (SOURCE, TARGET_IN)
    np.testing.assert_array_equal(dropping(inputs), still(inputs))
    trained = np.asarray(dropping(inputs, training=True))
    assert np.any(trained != np.asarray(still(inputs)))


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_symbolic_call_knows_shape_and_dtype(policy):
    ids = keras.Input((None,), dtype="int32")
    logits = make_model(dtype=policy)((ids, ids))
    assert logits.shape == (None, None, VOCAB)
    assert logits.dtype == "float32"


WIDTHS = [
    ("base", {"d_model": 1024}, (128, 128)),
    ("tiny", {"num_heads": 8}, (16, 16)),
    ("big", {"d_model": 512, "value_dim": 7}, (32, 7)),
    # Its own 16, and d_model / h.
    ("B-dk16", {"d_model": 1024}, (16, 128)),
]


@pytest.mark.parametrize("preset, changes, widths", WIDTHS)
def test_a_changed_preset_has_the_same_heads_in_a_run(preset, changes, widths):
    run = RunConfig.from_preset(preset, corpus="demo", **changes).model
    shape = dict(vocab_size=23, num_layers=1, ffn_dim=11)
    model = Transformer.from_preset(preset, **shape, **changes).model_config
    for found in (run, model):
        assert (found.key_dim, found.value_dim) == widths


@pytest.mark.parametrize("kind", [EncoderLayer, Decoder])
def test_a_layer_shares_its_width_among_its_heads(kind):
    layer = kind(num_heads=5, ffn_dim=11)
    layer.build((None, None, 35))
    found = layer.layers[0] if kind is Decoder else layer
    attention = getattr(found, "attention", None) or found.cross_attention
    assert (attention.key_dim, attention.value_dim) == (7, 7)
    with pytest.raises(ValueError, match="`d_model` to be a multiple of"):
        kind(num_heads=3).build((None, None, 35))


def test_an_unknown_preset_is_refused_with_the_known_ones():
    message = "`preset` to be one of base, A-h1, .* received 'bert'"
    with pytest.raises(ValueError, match=message):
        Transformer.from_preset("bert")
