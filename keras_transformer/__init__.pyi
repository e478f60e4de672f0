"""The public names and where they are: the one list of them."""

from keras_transformer import layers as layers
from keras_transformer import masks as masks
from keras_transformer.config import JobError as JobError
from keras_transformer.config import Sampling as Sampling
from keras_transformer.config import Search as Search
from keras_transformer.config import UserError as UserError
from keras_transformer.data.adapter import TokenizerAdapter as TokenizerAdapter
from keras_transformer.data.batching import batch as batch
from keras_transformer.data.batching import batches as batches
from keras_transformer.data.corpora import open_corpus as open_corpus
from keras_transformer.data.tokenizer import Tokenizer as Tokenizer
from keras_transformer.decoding.beam_search import beam_search as beam_search
from keras_transformer.exporting.saved_model import export as export
from keras_transformer.importing.run_directory import import_run as import_run
from keras_transformer.layers.positional_encoding import (
    positional_encoding as positional_encoding,
)
from keras_transformer.losses import Perplexity as Perplexity
from keras_transformer.losses import (
    SmoothedCrossEntropy as SmoothedCrossEntropy,
)
from keras_transformer.losses import TokenAccuracy as TokenAccuracy
from keras_transformer.model import Transformer as Transformer
from keras_transformer.optimizers import Adam as Adam
from keras_transformer.optimizers import (
    TransformerSchedule as TransformerSchedule,
)
from keras_transformer.presets import PRESETS as PRESETS
from keras_transformer.run import Run as Run
from keras_transformer.run import train as train
from keras_transformer.synthetic import backtranslate as backtranslate
from keras_transformer.synthetic import distill as distill
from keras_transformer.training.dry_run import dry_run as dry_run
from keras_transformer.training.request import recipe as recipe
from keras_transformer.translation.text_batches import Hypothesis as Hypothesis
from keras_transformer.translation.translator import Translator as Translator

__version__: str
