"""The model in LiteRT, which has TensorFlow's operators only in part."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import SOURCE, TARGET_IN, make_model


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_the_model_converts_without_operators_of_tensorflow(tmp_path):
    model = make_model()
    model.export(tmp_path, verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    lite = tf.lite.Interpreter(model_content=converter.convert())
    values = {"source": SOURCE, "target_in": TARGET_IN}
    places = {
        values_of: place["index"]
        for place in lite.get_input_details()
        for values_of in values
        if values_of in place["name"]
    }
    for name, place in places.items():
        lite.resize_tensor_input(place, values[name].shape)
    lite.allocate_tensors()
    for name, place in places.items():
        lite.set_tensor(place, values[name])
    lite.invoke()
    (logits,) = lite.get_output_details()
    np.testing.assert_allclose(
        lite.get_tensor(logits["index"]),
        model((SOURCE, TARGET_IN)),
        rtol=1e-4,
        atol=1e-5,
    )
