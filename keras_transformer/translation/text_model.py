"""Text to text inside a graph: tokenizer, model and search together.

All methods work eagerly and inside a `tf.function`, on tensors of any batch
size. Exported models are made of them.

Axes: B batch, S source length, T target length, P prefix length, N hypotheses.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.config import PAD_ID, Search, UserError
from keras_transformer.data.adapter import TokenizerAdapter
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.decoding.prefix_steps import (
    has_attention,
    warn_of_padding,
)
from keras_transformer.model import Transformer
from keras_transformer.translation.alignment import (
    attention_weights,
    mean_attention,
)

IDS = tf.TensorSpec([None, None], tf.int32)
SEEDS = tf.TensorSpec([None, 2], tf.int32)
_MAX_SEED = 2**31 - 1


class TextResult(NamedTuple):
    """Hypotheses as tensors, best first; empty with -inf where none exist."""

    translations: tf.Tensor  # (B, N) string
    scores: tf.Tensor  # (B, N) float32, log-probability / `length_normaliser`
    truncated: tf.Tensor  # (B,) bool, whether the source was cut


class AttentionResult(NamedTuple):
    """The attention of translations to their sources."""

    source_pieces: tf.Tensor  # (B, S) string, the end token last, then ""
    target_pieces: tf.Tensor  # (B, T) string, likewise
    attention: tf.Tensor  # (B, T, S) float32, mean of all layers and heads


def longest_target(search: Search) -> int | None:
    """Return the most tokens that a translation may have for any source.

    Return None where neither sources nor translations are limited.
    """
    if search.max_length is None and search.max_source_length is not None:
        return search.max_source_length + search.max_extra_length
    return search.max_length


class TextModel:
    """A trained model, or several, with its tokenizer, inside a graph.

    Args:
        id_model: The model, of the tokenizer's vocabulary and special ids.
        tokenizer: The tokenizer.

    Attributes:
        id_model: As given; so is `tokenizer`.

    Raises:
        ValueError: If the two differ in vocabulary size.
        UserError: If a `Transformer` would not see padding.
    """

    def __init__(
        self, id_model: IdModel, tokenizer: Tokenizer | TokenizerAdapter
    ) -> None:
        self.id_model = id_model
        self.tokenizer: Any = tokenizer
        # Ids only: a graph that holds the tokenizer becomes useless once
        # `tf.random.set_seed` has unloaded its vocabulary.
        self._graphs: dict[Any, Callable] = {}
        size, ids = id_model.vocab_size, tokenizer.ids
        if not tokenizer.fits(size):
            raise ValueError(
                "`model` and `tokenizer` must share one vocabulary. Received: "
                f"{size} and {tokenizer.vocab_size} pieces"
            )
        for role in ("bos", "eos"):
            if (token := getattr(ids, role)) >= size:
                raise UserError(
                    f"Expected `{role}_id` to be below {size}, the number "
                    f"of pieces that the model scores, received {token}."
                )
        of_ours = any(isinstance(x, Transformer) for x in id_model.models)
        if of_ours and ids.pad != PAD_ID:
            raise UserError(
                f"Expected a tokenizer that pads with {PAD_ID}, as a "
                f"Transformer does, received `pad_id` {ids.pad}; make "
                f"{PAD_ID} the padding of the vocabulary."
            )
        for each in id_model.models:
            warn_of_padding(each, ids)

    @property
    def has_attention(self) -> bool:
        """Whether the models say what they attend to."""
        return all(map(has_attention, self.id_model.models))

    def check_attention(self) -> None:
        """Raise `UserError` unless the models say what they attend to."""
        if not self.has_attention:
            names = {type(model).__name__ for model in self.id_model.models}
            raise UserError(
                "Expected a `kt.Transformer` with its own decoder, whose "
                f"attention is known, received {', '.join(sorted(names))}; "
                "only `translate`, `score` and exports take any model."
            )

    def search(
        self,
        text: tf.Tensor,
        search: Search,
        prefix: tf.Tensor | None = None,
    ) -> TextResult:
        """Translate texts, string `(B,)`.

        A prefix, string `(B,)`, is how each translation begins; it is cut where
        the translation must end.
        """
        source, truncated = self.source_ids(text, search.max_source_length)
        pad = self.tokenizer.ids.pad
        if prefix is not None:
            ids = self.prefix_ids(prefix, longest_target(search))
            prefix = ids.to_tensor(pad)
        result = self.id_model.search_ids(
            source.to_tensor(pad), search, prefix, self.seeds(text, search)
        )
        return TextResult(*self.texts_of(result, search), truncated)

    def source_ids(
        self, text: tf.Tensor | Sequence[bytes], longest: int | None
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Tokenize sources; return which of them were cut after `longest`."""
        tokenizer = self.tokenizer
        return _cut(tokenizer.tokenize(text), longest, tokenizer.ids.blank)

    def texts_of(
        self, result: BeamResult, search: Search
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Detokenize hypotheses; of a search, each text is there once.

        Other pieces may spell the same text. The best score stays, and what is
        left of N is missing. Drawn texts may repeat.

        Returns:
            Texts, string `(B, N)`, and scores, float32 `(B, N)`.
        """
        texts = self.tokenizer.detokenize(result.ids)
        if search.sampling or search.n_best == 1:
            return texts, result.scores
        same = texts[:, :, None] == texts[:, None, :]
        earlier = tf.range(search.n_best)[:, None] > tf.range(search.n_best)
        repeats = tf.reduce_any(same & earlier, axis=2)
        texts = tf.where(repeats, "", texts)
        scores = tf.where(repeats, -math.inf, result.scores)
        order = tf.argsort(tf.cast(repeats, tf.int32), stable=True)
        return (
            tf.gather(texts, order, batch_dims=1),
            tf.gather(scores, order, batch_dims=1),
        )

    def prefix_ids(
        self, prefix: tf.Tensor | Sequence[str], longest: int | None
    ) -> tf.RaggedTensor:
        """Tokenize how translations begin, ragged `(B, None)`.

        They have at most `longest` tokens. A search uses no more, if `longest`
        is the limit of a translation.
        """
        return self.tokenizer.target.tokenize(prefix)[:, :-1][:, :longest]

    def seeds(self, text: tf.Tensor, search: Search) -> tf.Tensor | None:
        """Make a seed for each text: the user's with a hash of the text.

        So a text always has the same draws, wherever it stands and whatever
        texts come with it. Without the user's seed, draws are random.

        Returns:
            int32 `(B, 2)`, or None where nothing is drawn.
        """
        if not search.sampling:
            return None
        batch = tf.size(text)
        if search.sampling.seed is None:
            return tf.random.uniform([batch, 2], 0, _MAX_SEED, tf.int32)
        hashes = tf.strings.to_hash_bucket_fast(text, _MAX_SEED)
        seeds = tf.fill([batch], search.sampling.seed)
        return tf.stack([seeds, tf.cast(hashes, tf.int32)], axis=1)

    def score_text(
        self, source: tf.Tensor, target: tf.Tensor, search: Search
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Score translations as the search would.

        Args:
            source: string `(B,)`, cut like a source of the search.
            target: string `(B,)`, cut where the search would stop writing for
                the longest source; the score is then that of the text up to
                there, with an end token.
            search: The length penalty and the limits.

        Returns:
            As from `score_ids`.
        """
        return self.id_model.score_ids(
            *self._ids(source, target, search), search.length_penalty
        )

    def attention_ids(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Compute what targets `(B, T)` look at in sources `(B, S)`.

        Returns:
            float32 `(B, L, H, T, S)` with the layers of all models.
        """
        self.check_attention()
        models, ids = self.id_model.models, self.tokenizer.ids
        heads = {model.model_config.num_heads for model in models}
        if len(heads) > 1:
            raise UserError(
                "Expected models with equal numbers of heads, received "
                f"{sorted(heads)}; ask one of them for its attention."
            )
        with self.id_model.weights_in_use():
            return tf.concat(
                [attention_weights(x, source, target, ids) for x in models],
                axis=1,
            )

    def mean_attention_ids(
        self, source: tf.Tensor, target: tf.Tensor
    ) -> tf.Tensor:
        """Average `attention_ids` over layers, heads and models, `(B, T, S)`.

        The models may have other numbers of heads.
        """
        self.check_attention()
        models, ids = self.id_model.models, self.tokenizer.ids
        with self.id_model.weights_in_use():
            found = [mean_attention(x, source, target, ids) for x in models]
        return tf.add_n(found) / len(models)

    def attention_text(
        self, source: tf.Tensor, target: tf.Tensor, search: Search
    ) -> AttentionResult:
        """Find what translations look at, with the texts of `score_text`."""
        source, target = self._ids(source, target, search)
        mean = self.mean_attention_ids(source, target)
        return AttentionResult(self._pieces(source), self._pieces(target), mean)

    def _ids(
        self, source: tf.Tensor, target: tf.Tensor, search: Search
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Tokenize pairs to ids `(B, S)` and `(B, T)`, cut at the limits."""
        ids = self.tokenizer.ids
        of_source, _ = self.source_ids(source, search.max_source_length)
        of_target, _ = _cut(
            self.tokenizer.target.tokenize(target),
            longest_target(search),
            (ids.eos,),
        )
        return of_source.to_tensor(ids.pad), of_target.to_tensor(ids.pad)

    def _pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Look up the piece of each id, "" for padding."""
        names = self.tokenizer.pieces(range(self.id_model.vocab_size))
        names[PAD_ID] = ""
        return tf.gather(tf.constant(names), ids)

    def graph(
        self, key: Any, function: Callable, *inputs: tf.TensorSpec
    ) -> Callable:
        """Trace a function of ids once, and keep it under the key."""
        if key not in self._graphs:
            made = tf.function(function, inputs, autograph=False)
            # Now: TensorFlow warns when several in a row trace at their first
            # call.
            self._graphs[key] = made.get_concrete_function()
        return self._graphs[key]


def _cut(
    ids: tf.RaggedTensor, longest: int | None, end: tuple[int, ...]
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Shorten rows, the last of `end` still last; return which were longer."""
    if longest is None:
        return ids, tf.zeros([ids.nrows()], tf.bool)
    truncated = ids.row_lengths() > longest
    if not end:
        return ids[:, :longest], truncated
    ends = tf.fill([ids.nrows(tf.int32), 1], end[-1])
    return tf.concat([ids[:, :-1][:, : longest - 1], ends], axis=1), truncated
