"""The layers of section 3, written only in `keras.ops`."""

from keras_transformer.layers.attention import (
    MultiHeadAttention as MultiHeadAttention,
)
from keras_transformer.layers.block import DecoderLayer as DecoderLayer
from keras_transformer.layers.block import EncoderLayer as EncoderLayer
from keras_transformer.layers.embedding import TiedEmbedding as TiedEmbedding
from keras_transformer.layers.feed_forward import FeedForward as FeedForward
from keras_transformer.layers.positional_encoding import (
    PositionalEncoding as PositionalEncoding,
)
from keras_transformer.layers.positional_encoding import (
    positional_encoding as positional_encoding,
)
from keras_transformer.layers.products import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from keras_transformer.layers.stacks import Decoder as Decoder
from keras_transformer.layers.stacks import Encoder as Encoder
