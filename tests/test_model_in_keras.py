"""Things that users of Keras do with any model, and common mistakes."""

import pathlib
import warnings

import keras
import numpy as np
import paper
import pytest
import tensorflow as tf
from small_models import (
    SIZES,
    SOURCE,
    TARGET,
    TARGET_IN,
    close,
    functional_model,
    make_model,
)

from keras_transformer.layers import TiedEmbedding
from keras_transformer.losses import (
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
)
from keras_transformer.model import Transformer
from keras_transformer.optimizers import Adam, TransformerSchedule

INPUTS = (SOURCE, TARGET_IN)


@keras.saving.register_keras_serializable()
class Adapted(Transformer):
    """A subclass with a layer more."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.adapter = keras.layers.Dense(self.model_config.d_model)

    def features(self, inputs, training=False):
        return self.adapter(super().features(inputs, training))


MODELS = {
    "Transformer": lambda: make_model(num_layers=1),
    "subclass": lambda: Adapted(**{**SIZES, "num_layers": 1, "dropout": 0.0}),
    "functional": lambda: functional_model(
        **dict(num_layers=1, num_heads=2, ffn_dim=11, dropout=0.0)
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    """A model of one layer that has been fitted."""
    model = MODELS[request.param]()
    model.compile("sgd", SmoothedCrossEntropy(0.1), metrics=[TokenAccuracy()])
    model.fit(INPUTS, TARGET, verbose=0)
    return model


def test_a_model_exports_and_answers_the_same(tmp_path, fitted):
    fitted.export(tmp_path / "exported", format="tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    serve = loaded.signatures["serving_default"]
    # Any batch and lengths.
    for inputs in INPUTS, (SOURCE[:1, :3], TARGET_IN[:1, :5]):
        source, target_in = map(tf.constant, inputs)
        (logits,) = serve(source=source, target_in=target_in).values()
        close(logits, fitted(inputs), 1e-5)


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_a_model_exports_to_litert_and_answers_the_same(tmp_path, fitted):
    path = str(tmp_path / "model.tflite")
    fitted.export(path, format="litert", verbose=False)
    # None of TensorFlow's operators, which few programs have.
    assert b"Flex" not in pathlib.Path(path).read_bytes()
    run = tf.lite.Interpreter(path).get_signature_runner()
    (logits,) = run(source=SOURCE, target_in=TARGET_IN).values()
    close(logits, fitted(INPUTS))


def test_a_model_tells_its_shape_and_its_layers(fitted):
    printed = []
    fitted.summary(
        expand_nested=True, print_fn=lambda x, **_: printed.append(x)
    )
    assert f"{fitted.count_params():,}" in "".join(printed)
    shapes = [(3, 4), (3, 6)]
    assert tuple(fitted.compute_output_shape(shapes)) == (3, 6, 23)
    ids = [keras.KerasTensor(shape, "int32") for shape in shapes]
    spec = fitted.compute_output_spec(ids)
    assert (tuple(spec.shape), spec.dtype) == ((3, 6, 23), "float32")
    for layer in fitted.layers:
        assert fitted.get_layer(layer.name) is layer


def test_a_model_comes_back_from_every_file(tmp_path, fitted):
    kind, expected = type(fitted), np.array(fitted(INPUTS))
    again = keras.models.model_from_json(fitted.to_json())
    fitted.save_weights(tmp_path / "model.weights.h5")
    again.load_weights(tmp_path / "model.weights.h5")
    clone = keras.models.clone_model(fitted)
    clone.set_weights(fitted.get_weights())
    found = [again, clone]
    for name in ("model.keras", "model.h5"):
        if name == "model.keras" or isinstance(fitted, Transformer):
            fitted.save(path := tmp_path / name)
            own = {kind.__name__: kind}  # HDF5 files know no packages.
            found.append(keras.models.load_model(path, custom_objects=own))
    for model in found:
        close(model(INPUTS), expected, 1e-5)


@keras.saving.register_keras_serializable()
class Wrapped(keras.Model):
    """A part of ours, and a layer that Keras builds when it loads the model."""

    def __init__(self, part, **kwargs):
        super().__init__(**kwargs)
        self.part, self.head = part, keras.layers.Dense(3)

    def call(self, inputs, training=False):
        return self.head(self.part(inputs, training=training))

    def get_config(self):
        part = keras.saving.serialize_keras_object(self.part)
        return super().get_config() | {"part": part}

    @classmethod
    def from_config(cls, config):
        part = keras.saving.deserialize_keras_object(config.pop("part"))
        return cls(part, **config)


@pytest.mark.parametrize(
    ("part", "inputs"),
    [
        (lambda: make_model(num_layers=1), INPUTS),
        (lambda: make_model(num_layers=1, dtype="mixed_bfloat16"), INPUTS),
        (lambda: Adapted(**SIZES), INPUTS),
        (lambda: TiedEmbedding(23, 10, mask_zero=True), SOURCE),
    ],
)
def test_a_model_around_ours_comes_back_whole(tmp_path, part, inputs):
    model = Wrapped(part())
    expected = model.predict(inputs, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0), expected)


@pytest.mark.parametrize("target", [TARGET, TARGET[..., None]])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_single_batches_train_test_and_predict(make, target):
    model = make()
    model.compile("sgd", SmoothedCrossEntropy(0.1), metrics=[TokenAccuracy()])
    loss = float(SmoothedCrossEntropy(0.1)(TARGET, model(INPUTS)))
    tested = model.test_on_batch(INPUTS, target, return_dict=True)
    evaluated = model.evaluate(INPUTS, target, verbose=0, return_dict=True)
    assert tested["loss"] == pytest.approx(loss, rel=1e-5)
    for name, value in tested.items():
        close(evaluated[name], value, 1e-5)
    close(model.predict_on_batch(INPUTS), model(INPUTS), 1e-5)
    trained = model.train_on_batch(INPUTS, target, return_dict=True)
    assert {*trained} == {*tested} == {*evaluated} == {"loss", "token_accuracy"}
    again = model.test_on_batch(INPUTS, target, return_dict=True)
    assert again["loss"] < loss


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_frozen_model_is_fitted_and_stays_as_it_is(make):
    model = make()
    model.trainable = False
    model.compile("sgd", SmoothedCrossEntropy(0.1))
    before = model.get_weights()
    logs = model.fit(INPUTS, TARGET, verbose=0).history
    loss = float(SmoothedCrossEntropy(0.1)(TARGET, model(INPUTS)))
    assert logs["loss"] == pytest.approx([loss], 1e-5)
    np.testing.assert_equal(model.get_weights(), before)


def test_callbacks_know_whether_more_of_a_metric_is_better():
    model = compiled(make_model(num_layers=1))
    model.test_on_batch(INPUTS, TARGET)
    for name, best in ("token_accuracy", 2.0), ("perplexity", 1.0):
        callback = keras.callbacks.EarlyStopping(name)
        callback.set_model(model)
        callback.on_train_begin()
        for epoch, value in enumerate((1.0, 2.0)):
            callback.on_epoch_end(epoch, {name: value})
        assert callback.best == best


def test_quantising_in_place_is_refused():
    with pytest.raises(NotImplementedError, match="kt.export"):
        make_model(num_layers=1).quantize("int8")


@keras.saving.register_keras_serializable()
class Styled(Transformer):
    """Takes a style beside the ids, and all three in a dictionary."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.style = keras.layers.Embedding(2, self.model_config.d_model)

    def input_signature(self):
        source, target_in = super().input_signature()
        style = keras.Input([], dtype="int32", name="style")
        return dict(source=source, target_in=target_in, style=style)

    def call(self, inputs, training=False):
        memory, mask = self.encode(inputs["source"], training=training)
        memory += self.style(inputs["style"])[:, None]
        return self.decode(inputs["target_in"], memory, mask, training)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_subclass_may_take_other_inputs_than_a_pair(tmp_path, accumulate):
    model = Styled(**{**SIZES, "num_layers": 1, "dropout": 0.0})
    assert model.style.built
    shapes = dict(source=(3, 4), target_in=(3, 6), style=(3,))
    assert tuple(model.compute_output_shape(shapes)) == (3, 6, 23)
    with pytest.raises(NotImplementedError, match="Styled"):
        model.attention_weights(SOURCE, TARGET_IN)
    style = np.array([0, 1, 0], "int32")
    inputs = dict(source=SOURCE, target_in=TARGET_IN, style=style)
    loss = float(SmoothedCrossEntropy(0.1)(TARGET, model(inputs)))
    model.compile("sgd", SmoothedCrossEntropy(0.1), accumulate=accumulate)
    logs = model.fit(inputs, TARGET, verbose=0).history
    assert logs["loss"] == pytest.approx([loss], 1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    close(loaded(inputs), model(inputs), 1e-5)
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    close(loaded.serve(inputs), model(inputs), 1e-5)


@pytest.mark.parametrize("padding", [-1, -100])
def test_ids_below_0_are_padding_at_every_door(padding):
    def padded(ids):
        return np.where(ids == 0, padding, ids)

    model = make_model(num_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1))
    inputs, target = tuple(map(padded, INPUTS)), padded(TARGET)
    real = TARGET > 0
    logits = np.array(model(INPUTS))
    mean = paper.cross_entropies(TARGET[real], logits[real], 0.1).mean()
    predicted = model.predict(inputs, verbose=0)
    close(predicted[real], logits[real], 1e-5)
    loss = SmoothedCrossEntropy(0.1)
    assert float(loss(target, logits)) == pytest.approx(mean, 1e-5)
    found = model.evaluate(inputs, target, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(mean, 1e-5)
    hits = (logits.argmax(-1) == TARGET)[real]
    assert found["token_accuracy"] == pytest.approx(hits.mean(), 1e-5)
    data = (inputs, target)
    logs = model.fit(*data, validation_data=data, verbose=0).history
    assert logs["loss"] == pytest.approx([mean], 1e-5)
    assert logs["tokens"] == [real.sum()]
    assert logs["val_loss"][0] < mean


@pytest.mark.parametrize("restriction", [None, 3])
def test_a_functional_model_holds_a_transformer(restriction):
    model = make_model(num_layers=1, restriction=restriction)
    inputs = [keras.Input((None,), dtype="int32") for _ in INPUTS]
    outputs = keras.layers.Softmax()(model(inputs))
    probabilities = keras.Model(inputs, outputs)(list(INPUTS))
    close(probabilities, keras.ops.softmax(model(INPUTS)), 1e-5)


def ragged(ids):
    return tf.RaggedTensor.from_tensor(ids, padding=0)


@pytest.mark.parametrize(
    "inputs, received",
    [
        (SOURCE, r"int32\(3, 4\)"),
        ((SOURCE.astype("float32"), TARGET_IN), r"\('float32\(3, 4\)', "),
        ({"source": SOURCE}, r"{'source': 'int32\(3, 4\)'}"),
        ((ragged(SOURCE), TARGET_IN), r"\('RaggedTensor'"),
        ((SOURCE[:2], TARGET_IN), r"\('int32\(2, 4\)', 'int32\(3, 6\)'\)"),
    ],
)
def test_inputs_but_a_pair_of_ids_are_refused(small_model, inputs, received):
    with pytest.raises(ValueError, match=f"`inputs`.* Received: {received}"):
        small_model(inputs)


@pytest.mark.parametrize(
    "changed, value, received",
    [
        ("source", lambda ids: ids + 1, "below 23, .*: 23"),
        ("source", ragged, "`inputs`.*RaggedTensor"),
        ("target_out", lambda ids: ids + 3, "below 23, .*: 23"),
        ("target_out", lambda ids: np.eye(23)[ids], r": float64\(3, 6, 23\)"),
        ("target_out", lambda ids: ids + 0.5, r"whole ids .*: float64\(3, 6\)"),
        ("target_out", ragged, "`y`.*: RaggedTensor"),
        ("target_out", lambda ids: None, "`y`.*: NoneType"),
        ("target_out", lambda ids: ids[:, :-1], r": int32\(3, 5\)"),
    ],
)
@pytest.mark.parametrize("way", ["fit", "train_on_batch", "tf.data"])
def test_what_is_no_batch_is_refused_at_once(way, changed, value, received):
    model = compiled(make_model(num_layers=1))
    given = dict(source=SOURCE, target_in=TARGET_IN, target_out=TARGET)
    given[changed] = value(given[changed])
    data = (given["source"], given["target_in"]), given["target_out"]
    call = model.train_on_batch if way == "train_on_batch" else model.fit
    if way == "tf.data":
        data = (tf.data.Dataset.from_tensors(data),)
    with pytest.raises(ValueError, match=received):
        call(*data)


@pytest.mark.parametrize("way", ["fit", "train_on_batch"])
def test_class_weight_is_refused(way):
    model = compiled(make_model(num_layers=1))
    with pytest.raises(ValueError, match="`class_weight` to be None"):
        getattr(model, way)(INPUTS, TARGET, class_weight={8: 3.0})


def test_another_loss_takes_what_it_needs():
    model = make_model(num_layers=1)
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    model.fit(INPUTS, np.eye(23)[TARGET], verbose=0)


@pytest.mark.parametrize(
    "begin, first, late, warns",
    [(2, 8, 0, 0), (2, 2, 0, 1), (8, 8, 0, 1), (2, 8, 1, 1), (2, 8, 3, 1)],
)
@pytest.mark.parametrize("way", ["fit", "train_on_batch"])
def test_shift_and_padding_are_told_once(begin, first, late, warns, way):
    model = compiled(make_model(num_layers=1), run_eagerly=True)
    rows = [[5, 6, 3], [7, 3, 0]], [[begin, 8, 9], [begin, 10, 0]]
    ids = np.array([*rows, [[first, 9, 3], [first, 3, 0]]], "int32")
    ids[:late, 1] = np.roll(ids[:late, 1], 1, axis=-1)  # Padding comes first.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(1 if way == "fit" else 2):
            getattr(model, way)((ids[0], ids[1]), ids[2])
    assert sum("begin token" in str(w.message) for w in caught) == warns


def compiled(model, adam=Adam, **options):
    metrics = [TokenAccuracy(), Perplexity()]
    loss = SmoothedCrossEntropy(0.1)
    model.compile(adam(0.01), loss, metrics=metrics, **options)
    return model


@pytest.mark.stands_for("models that Keras trains")
def test_fit_moves_every_weight():
    model = make_model(num_layers=1, positions="learned", dropout=0.1)
    compiled(model, jit_compile=False)
    before = [weight.numpy() for weight in model.trainable_weights]
    model.fit(INPUTS, TARGET, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.any(weight.numpy() != old), weight.path


@pytest.mark.stands_for("models that Keras saves")
def test_the_step_after_loading_is_the_step_without(tmp_path):
    model = make_model(num_layers=1, dropout=0.1)
    loss = SmoothedCrossEntropy(0.1)
    adam = Adam(TransformerSchedule(10, 700))
    model.compile(adam, loss, jit_compile=False, accumulate=2)
    model.fit(INPUTS, TARGET, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    asked = dict(return_dict=True)
    steps = [x.train_on_batch(INPUTS, TARGET, **asked) for x in (model, again)]
    assert again.get_compile_config()["jit_compile"] is False
    assert "gradient_norm" in steps[0]
    assert steps[0]["batch_loss"] == steps[1]["batch_loss"]
    np.testing.assert_equal(model.get_weights(), again.get_weights())


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_trains_with_finite_numbers(policy):
    model = make_model(num_layers=1, dtype=policy, dropout=0.1)
    compiled(model, keras.optimizers.Adam)
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scaled == (policy == "mixed_float16")
    history = model.fit(INPUTS, TARGET, epochs=2, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))
    for weight in model.trainable_weights:
        assert weight.dtype == "float32"
        assert np.all(np.isfinite(weight.numpy())), weight.path


def test_metrics_of_an_earlier_compile_are_forgotten():
    model = make_model(num_layers=1)
    loss = SmoothedCrossEntropy()
    model.compile("sgd", loss, metrics=[TokenAccuracy("mine")])
    data = INPUTS, TARGET
    assert "mine" in model.evaluate(*data, verbose=0, return_dict=True)
    model.compile("sgd", loss)
    found = model.evaluate(*data, verbose=0, return_dict=True)
    assert set(found) == {"loss", "token_accuracy", "perplexity"}


class Measured(Transformer):
    """Counts tokens by Keras's hook for that."""

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        return logs | {"largest": keras.ops.max(y_pred)}


def test_metrics_that_a_subclass_computes_are_shown():
    model = Measured(**SIZES, dropout=0.0)
    still = keras.optimizers.SGD(0.0)
    model.compile(still, SmoothedCrossEntropy(0.1))
    logits = np.array(model(INPUTS))
    data = INPUTS, TARGET
    logs = model.fit(*data, validation_data=data, verbose=0).history
    for name in "largest", "val_largest":
        assert logs[name] == pytest.approx([logits.max()], 1e-5)
