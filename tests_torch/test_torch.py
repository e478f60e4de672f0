"""The model wing on PyTorch, where TensorFlow cannot be imported.

`make test-torch` runs this in an environment that has both.
"""

from other_backends import assert_computes_alike


def test_the_model_wing_computes_alike_without_tensorflow(tmp_path):
    assert_computes_alike("torch", tmp_path)
