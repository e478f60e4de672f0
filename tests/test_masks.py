import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import config, masks


def test_queries_see_every_key_but_padding():
    ids = np.array([[5, 4, 3, 0, 0], [7, 0, 8, 3, 0]])

    mask = np.asarray(masks.padding_mask(ids))

    assert mask.shape == (2, 1, 1, 5)
    assert mask.dtype == bool
    assert mask[0, 0, 0].tolist() == [True, True, True, False, False]
    assert mask[1, 0, 0].tolist() == [True, False, True, True, False]


def test_unknown_begin_and_end_tokens_are_no_padding():
    ids = np.array([[config.BOS_ID, config.UNK_ID, config.EOS_ID]])
    assert np.all(masks.padding_mask(ids))


def test_position_i_sees_the_positions_up_to_i():
    mask = np.asarray(masks.causal_mask(3))

    assert mask.shape == (1, 1, 3, 3)
    assert mask.dtype == bool
    assert mask[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


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


@pytest.mark.parametrize("length", [1, 2, 7])
def test_masks_need_no_length_at_tracing_time(length):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def target_mask(ids):
        return masks.target_mask(ids)

    ids = np.full((2, length), 5, "int32")
    np.testing.assert_array_equal(target_mask(ids), masks.target_mask(ids))
