import keras
import numpy as np
import pytest

from keras_transformer import masks


def test_queries_see_every_key_but_padding():
    # Unknown, begin and end tokens are no padding.
    ids = np.array([[5, 4, 3, 0, 0], [2, 0, 1, 3, 0]])

    mask = np.asarray(masks.padding_mask(ids))

    assert mask.shape == (2, 1, 1, 5)
    assert mask.dtype == bool
    assert mask[0, 0, 0].tolist() == [True, True, True, False, False]
    assert mask[1, 0, 0].tolist() == [True, False, True, True, False]


def test_position_i_sees_the_positions_up_to_i():
    mask = np.asarray(masks.causal_mask(3))

    assert mask.shape == (1, 1, 3, 3)
    assert mask.dtype == bool
    assert mask[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@pytest.mark.parametrize("length", [None, keras.Input((), batch_size=1)])
def test_a_symbolic_length_is_refused(length):
    with pytest.raises(ValueError, match="`length` must be a number"):
        masks.causal_mask(length)


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
