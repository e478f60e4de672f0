import numpy as np

from keras_transformer import masks


def test_a_target_position_sees_neither_later_ones_nor_padding():
    mask = np.asarray(masks.target_mask(np.array([[2, 9, 0], [2, 9, 8]])))

    assert mask.shape == (2, 1, 3, 3)
    assert mask.dtype == bool
    assert mask[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, False],
    ]
    np.testing.assert_array_equal(mask[1], masks.causal_mask(3)[0])
