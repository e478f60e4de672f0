import base64
import json
import math
import zlib

import numpy as np
import pytest

from keras_transformer.viewing import viewer


def test_the_packed_weights_are_the_arrays_in_the_order_that_is_said():
    draw = np.random.default_rng(0)
    shapes = [(2, 3, 7, 7), (2, 3, 11, 7), (2, 3, 11, 5)]
    arrays = [draw.dirichlet(np.ones(s[-1]), s[:3]) for s in shapes]
    data = zlib.decompress(base64.b64decode(viewer.pack(*arrays)))
    for array in arrays:
        count = math.prod(array.shape[:3])
        entropies = np.frombuffer(data[: 2 * count], "<u2") / 1_000
        data = data[2 * count :]
        by_hand = -(array * np.log2(array)).sum(-1).ravel()
        np.testing.assert_allclose(entropies, by_hand, atol=0.0006)
    for array in arrays:
        weights = np.frombuffer(data[: array.size], "u1") / 255
        data = data[array.size :]
        np.testing.assert_allclose(weights, array.ravel(), atol=1 / 510)
    assert not data


@pytest.mark.parametrize("text", ["</script>", "<!--", "a & b", "\u2028"])
def test_no_string_ends_the_script_that_holds_it(text):
    found = viewer.json_for_script({"source": text})
    assert "<" not in found and found.isascii()
    assert json.loads(found) == {"source": text}


def test_an_infinite_number_has_a_name_in_json():
    found = viewer.json_for_script({"scores": (-math.inf, np.float32(-1.25))})
    assert found == '{"scores":[null,-1.25]}'
