"""Things that users of Keras do with any model, and common mistakes."""

import warnings

import keras
import numpy as np
import paper
import pytest
import tensorflow as tf
from small_models import SOURCE, TARGET, TARGET_IN, make_model

from keras_transformer.losses import SmoothedCrossEntropy, TokenAccuracy

INPUTS = (SOURCE, TARGET_IN)


@pytest.fixture(scope="module")
def fitted():
    """A model of one layer that has been fitted."""
    model = make_model(num_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1), metrics=[TokenAccuracy()])
    model.fit(INPUTS, TARGET, verbose=0)
    return model


def test_a_model_exports_and_answers_the_same(tmp_path, fitted):
    model = fitted
    model.export(tmp_path / "exported", verbose=False)

    loaded = tf.saved_model.load(tmp_path / "exported")
    expected = model(INPUTS)
    np.testing.assert_allclose(loaded.serve(INPUTS), expected, 1e-5, 1e-5)
    signature = loaded.signatures["serving_default"]
    outputs = signature(
        source=tf.constant(SOURCE), target_in=tf.constant(TARGET_IN)
    )
    np.testing.assert_allclose(outputs["output_0"], expected, 1e-5, 1e-5)
    # Any batch and lengths.
    fewer = (SOURCE[:1, :3], TARGET_IN[:1, :5])
    np.testing.assert_allclose(loaded.serve(fewer), model(fewer), 1e-5, 1e-5)


def test_single_batches_train_test_and_predict(fitted):
    model = fitted
    loss = float(SmoothedCrossEntropy(0.1)(TARGET, model(INPUTS)))
    tested = model.test_on_batch(INPUTS, TARGET, return_dict=True)
    evaluated = model.evaluate(INPUTS, TARGET, verbose=0, return_dict=True)
    assert tested["loss"] == pytest.approx(loss, rel=1e-5)
    for name in tested:
        np.testing.assert_allclose(evaluated[name], tested[name], rtol=1e-5)
    np.testing.assert_allclose(
        model.predict_on_batch(INPUTS), model(INPUTS), rtol=1e-5, atol=1e-5
    )
    trained = model.train_on_batch(INPUTS, TARGET, return_dict=True)
    assert trained["loss"] == pytest.approx(loss, rel=1e-5)
    again = model.test_on_batch(INPUTS, TARGET, return_dict=True)
    assert again["loss"] < loss


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
    np.testing.assert_allclose(predicted[real], logits[real], 1e-5, 1e-5)
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
    np.testing.assert_allclose(
        probabilities, keras.ops.softmax(model(INPUTS)), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("inputs", "received"),
    [
        (SOURCE, r"int32\(3, 4\)"),
        ((SOURCE.astype("float32"), TARGET_IN), r"\('float32\(3, 4\)', "),
        ({"source": SOURCE}, r"{'source': 'int32\(3, 4\)'}"),
    ],
)
def test_inputs_that_are_no_pair_of_ids_are_refused(
    small_model, inputs, received
):
    message = r"`inputs` must be a pair `\(source, target_in\)`.* Received: "
    with pytest.raises(ValueError, match=message + received):
        small_model(inputs)


@pytest.mark.parametrize(
    "changed, value, received",
    [
        ("source", lambda ids: ids + 1, "`source` .* up to 22, .*: 23"),
        (
            "target_out",
            lambda ids: np.eye(23)[ids],
            r"`target_out` .*: float64\(3, 6, 23\)",
        ),
        ("target_out", lambda ids: None, "`y` must be .*: None"),
        (
            "source",
            lambda ids: tf.RaggedTensor.from_tensor(ids, padding=0),
            r"`source` .*: a RaggedTensor; its `to_tensor\(0\)` makes one",
        ),
    ],
)
@pytest.mark.parametrize("way", ["fit", "train_on_batch", "tf.data"])
def test_what_is_no_batch_of_ids_is_refused_before_a_graph(
    way, changed, value, received
):
    if way == "tf.data" and value(TARGET) is None:
        return
    model = make_model(num_layers=1)
    model.compile("sgd", loss=SmoothedCrossEntropy(0.1))
    given = dict(source=SOURCE, target_in=TARGET_IN, target_out=TARGET)
    given[changed] = value(given[changed])
    data = (given["source"], given["target_in"]), given["target_out"]
    call = model.train_on_batch if way == "train_on_batch" else model.fit
    if way == "tf.data":
        data = (tf.data.Dataset.from_tensors(data),)
    with pytest.raises(ValueError, match=received):
        call(*data)


def test_class_weight_is_refused(fitted):
    for call in (fitted.fit, fitted.train_on_batch):
        with pytest.raises(ValueError, match="`class_weight` must be None"):
            call(INPUTS, TARGET, class_weight={8: 3.0})


def test_another_loss_takes_what_it_needs():
    model = make_model(num_layers=1)
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    model.fit(INPUTS, np.eye(23)[TARGET], verbose=0)


@pytest.mark.parametrize(
    "begin, first, warns",
    [(2, 8, False), (2, 2, True), (8, 8, True)],
)
def test_fit_warns_of_targets_that_are_not_shifted(begin, first, warns):
    model = make_model(num_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1), run_eagerly=True)
    source = np.array([[5, 6, 3], [7, 3, 0]], "int32")
    target = np.array([[first, 9, 3], [first, 3, 0]], "int32")
    inputs = source, np.array([[begin, 8, 9], [begin, 10, 0]], "int32")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(inputs, target, verbose=0)
    found = [w for w in caught if "begin token" in str(w.message)]
    assert len(found) == int(warns)
