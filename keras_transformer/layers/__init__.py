"""The layers of section 3, written only in `keras.ops`."""

from keras_transformer.layers.attention import (
    MultiHeadAttention as MultiHeadAttention,
)
from keras_transformer.layers.decoder import Decoder as Decoder
from keras_transformer.layers.decoder import DecoderLayer as DecoderLayer
from keras_transformer.layers.dot_product import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from keras_transformer.layers.embedding import TiedEmbedding as TiedEmbedding
from keras_transformer.layers.encoder import Encoder as Encoder
from keras_transformer.layers.encoder import EncoderLayer as EncoderLayer
from keras_transformer.layers.feed_forward import FeedForward as FeedForward
from keras_transformer.layers.positional_encoding import (
    PositionalEncoding as PositionalEncoding,
)
from keras_transformer.layers.positional_encoding import (
    positional_encoding as positional_encoding,
)
