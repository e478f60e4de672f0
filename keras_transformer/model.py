"""The Transformer: encoder, decoder and one tied embedding (section 3).

It maps ids to logits, only in `keras.ops`.

Axes: B batch, S source length, T target length, D model width, V vocabulary,
H heads, K key width, U value width, W beams, t slots of a cache.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

import keras
from keras import ops

from keras_transformer import layers, masks
from keras_transformer.config import (
    EOS_ID,
    LAYER_SETTINGS,
    PAD_ID,
    ModelConfig,
)
from keras_transformer.exact_step import ExactModel
from keras_transformer.keras_internals import Tensor
from keras_transformer.layers.feed_forward import refuse_quantization
from keras_transformer.layers.restricted import at_most
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model_inputs import check_first_batch, pair_of_ids
from keras_transformer.presets import preset_of
from keras_transformer.replicas import Dropout
from keras_transformer.settings import with_settings

# For each decoder layer a pair of keys and values.
Cache: TypeAlias = list[tuple[Tensor, Tensor]]


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(dataclasses.fields(ModelConfig))
class Transformer(ExactModel):
    """The encoder-decoder model of "Attention Is All You Need".

    It is built on construction. It works in `compile`, `fit`, `evaluate` and
    `predict`, under every strategy of TensorFlow, as `ExactModel` says. It
    saves as `.keras` and as weights, exports as a SavedModel of ids, and runs
    under `mixed_bfloat16` and `mixed_float16` (logits, softmax, norms and
    positions stay float32).

    Args:
        vocab_size: Pieces of the shared vocabulary, V.
        **settings: Fields of `ModelConfig`.
        **kwargs: Passed to `keras.Model`, such as `name` and `dtype`.

    Call arguments:
        inputs: A pair of integer tensors, source `(B, S)` and target_in
            `(B, T)`. Source and target end with `tokenizer.eos_id`, target_in
            begins with `tokenizer.bos_id` instead, and `tokenizer.pad_id`
            fills the rest: `kt.batch` makes them from texts.
        training: Whether dropout is on.

    Returns:
        Logits, a float32 tensor `(B, T, V)`.

    Raises:
        SettingError: If a setting makes no sense; it is a `ValueError`.
        ValueError: In a call, if the inputs are not a pair of ids.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.
    """

    def __init__(
        self,
        vocab_size: int,
        **settings: Any,
    ) -> None:
        given = {
            field.name: settings.pop(field.name)
            for field in dataclasses.fields(ModelConfig)
            if field.name in settings
        }
        if not isinstance(given.get("activation", ""), str):
            given["activation"] = keras.activations.get(given["activation"])
        config = ModelConfig(vocab_size=vocab_size, **given)
        super().__init__(**settings)
        self.model_config = config
        self.vocab_size = config.vocab_size
        self._has_seen_a_batch = False
        self._add_layers(config)
        self.build()

    def _add_layers(self, config):
        policy = self.dtype_policy
        self.embedding = layers.TiedEmbedding(
            config.vocab_size,
            config.d_model,
            use_bias=config.logits_bias,
            dtype=policy,
            name="embedding",
        )
        if not config.tied_embeddings:
            self.source_embedding, self.target_embedding = (
                layers.TiedEmbedding(
                    config.vocab_size,
                    config.d_model,
                    dtype=policy,
                    name=f"{side}_embedding",
                )
                for side in ("source", "target")
            )
        stack = {
            field.name: getattr(config, field.name) for field in LAYER_SETTINGS
        }
        stack["dtype"] = policy
        self.encoder = layers.Encoder(
            num_layers=config.layers_of("encoder"), **stack, name="encoder"
        )
        self.decoder = layers.Decoder(
            num_layers=config.layers_of("decoder"), **stack, name="decoder"
        )
        # Learned positions have a table for each side.
        self.source_positions, self.target_positions = (
            layers.PositionalEncoding(
                config.positions,
                config.max_positions,
                config.first_position,
                dtype=policy,
                name=f"{side}_positions",
            )
            for side in ("source", "target")
        )
        self.source_dropout, self.target_dropout = (
            Dropout(config.dropout, dtype=policy, name=f"{side}_dropout")
            for side in ("source", "target")
        )

    @classmethod
    def from_preset(cls, preset: str, **overrides: Any) -> "Transformer":
        """Build a model from a preset: a row of table 3, or one of our own.

        Args:
            preset: One of `keras_transformer.PRESETS`.
            **overrides: Arguments of the constructor that replace the
                preset's, such as `vocab_size`, `name` or `dtype`.

        Returns:
            A built model with fresh weights.

        Raises:
            SettingError: If there is no such preset.
        """
        return cls(**{**preset_of(preset).model.as_given(), **overrides})

    def build(self, input_shape: Any = None) -> None:
        embedded = (None, None, self.model_config.d_model)
        self.embedding.build((None, None))
        if not self.model_config.tied_embeddings:
            self.source_embedding.build((None, None))
            self.target_embedding.build((None, None))
        self.source_positions.build(embedded)
        self.target_positions.build(embedded)
        self.encoder.build(embedded)
        self.decoder.build(embedded, embedded)
        self.built = True

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *args: Any,
        class_weight: None = None,
        **kwargs: Any,
    ) -> Any:
        """Fit as `keras.Model` does, after a look at the first batch.

        The first batch of a `tf.data.Dataset` is read once more, unless
        `kt.batches` has made it. All arguments are those of `keras.Model.fit`.

        Raises:
            ValueError: If ids lie outside the vocabulary, targets are not ids
                although the loss needs them, or there is a `class_weight`:
                Keras would weigh a whole target by one of its tokens.

        Warns:
            UserWarning: If targets are not shifted.
        """
        _refuse_class_weight(class_weight)
        self._check_first_batch(x, y)
        return super().fit(x, y, *args, **kwargs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: None = None,
        return_dict: bool = False,
    ) -> Any:
        """Train as `fit` does, after a look at the first batch."""
        _refuse_class_weight(class_weight)
        if not self._has_seen_a_batch:
            self._check_first_batch(x, y)
        return super().train_on_batch(
            x, y, sample_weight, return_dict=return_dict
        )

    def _check_first_batch(self, x, y):
        loss = getattr(self, "loss", None)
        takes_ids = isinstance(loss, SmoothedCrossEntropy)
        check_first_batch(x, y, self.vocab_size, takes_ids, stacklevel=3)
        self._has_seen_a_batch = True

    def features(
        self, inputs: tuple[Tensor, Tensor], training: bool = False
    ) -> Tensor:
        """Compute the features that the tied matrix turns into logits.

        Args:
            inputs: As in a call.
            training: Whether dropout is on.

        Returns:
            The decoder's output, `(B, T, D)` in the compute dtype.
        """
        source, target_in = pair_of_ids(inputs)
        memory, source_mask = self.encode(source, training)
        return self._decoded(target_in, memory, source_mask, training)

    def encode(
        self, source: Tensor, training: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Read the source.

        Args:
            source: Integer tensor `(B, S)`.
            training: Whether dropout is on.

        Returns:
            The memory `(B, S, D)` and the source mask `(B, 1, 1, S)`.
        """
        source_mask = self._source_mask(source)
        x = self._embed_source(source, training)
        memory = self.encoder(x, attention_mask=source_mask, training=training)
        return memory, source_mask

    def decode(
        self,
        target_in: Tensor,
        memory: Tensor,
        source_mask: Tensor,
        training: bool = False,
    ) -> Tensor:
        """Predict every next token of a whole target.

        Args:
            target_in: Integer tensor `(B, T)`, begin token first.
            memory: Float tensor `(B, S, D)`.
            source_mask: Boolean tensor `(B, 1, 1, S)`.
            training: Whether dropout is on.

        Returns:
            Logits, a float32 tensor `(B, T, V)`.
        """
        return self.embedding.logits(
            self._decoded(target_in, memory, source_mask, training)
        )

    def _decoded(self, target_in, memory, source_mask, training):
        restricted = self.model_config.restriction is not None
        # A restricted layer gets no mask of all pairs, which would cost T T.
        mask = masks.padding_mask if restricted else masks.target_mask
        return self.decoder(
            self._embed_target(target_in, training=training),
            memory,
            self_mask=mask(target_in),
            memory_mask=source_mask,
            training=training,
            use_causal_mask=restricted,
        )

    def attention_weights(
        self, source: Tensor, target_in: Tensor
    ) -> dict[str, list[Tensor]]:
        """Compute the attention weights of every layer and head, dropout off.

        Args:
            source: Integer tensor `(B, S)`.
            target_in: Integer tensor `(B, T)`, begin token first.

        Returns:
            A dictionary of lists with a tensor for each layer, `"encoder"`
            `(B, H, S, S)`, `"decoder"` `(B, H, T, T)` and `"cross"`
            `(B, H, T, S)`.
        """
        memory, source_mask, encoder = self.encode_with_weights(source)
        _, decoder, cross = self._decoded_with_weights(
            target_in, memory, source_mask
        )
        return {"encoder": encoder, "decoder": decoder, "cross": cross}

    def encode_with_weights(
        self, source: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Encode, and return the attention weights of every layer and head.

        Args:
            source: Integer tensor `(B, S)`.

        Returns:
            The memory `(B, S, D)`, the source mask `(B, 1, 1, S)`, and for
            each layer its self-attention `(B, H, S, S)`.
        """
        source_mask = self._source_mask(source)
        memory, weights = self.encoder.call_with_weights(
            self._embed_source(source), source_mask
        )
        return memory, source_mask, weights

    def decode_with_weights(
        self, target_in: Tensor, memory: Tensor, source_mask: Tensor
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Decode, and return the attention weights of every layer and head.

        Args:
            target_in: Integer tensor `(B, T)`, begin token first.
            memory: Float tensor `(B, S, D)`.
            source_mask: Boolean tensor `(B, 1, 1, S)`.

        Returns:
            Logits float32 `(B, T, V)`, and a tensor for each layer of its
            self-attention `(B, H, T, T)` and its cross-attention
            `(B, H, T, S)`.
        """
        x, decoder, cross = self._decoded_with_weights(
            target_in, memory, source_mask
        )
        return self.embedding.logits(x), decoder, cross

    def _decoded_with_weights(self, target_in, memory, source_mask):
        return self.decoder.call_with_weights(
            self._embed_target(target_in),
            memory,
            masks.target_mask(target_in),
            source_mask,
        )

    def cross_attention(
        self, source: Tensor, target_in: Tensor
    ) -> Iterator[Tensor]:
        """Yield the attention to the source, a decoder layer at a time.

        A caller that needs only a sum keeps one layer's weights in memory.

        Args:
            source: Integer tensor `(B, S)`.
            target_in: Integer tensor `(B, T)`, begin token first.

        Yields:
            The weights of a layer, `(B, H, T, S)`, dropout off.
        """
        memory, source_mask = self.encode(source)
        x = self._embed_target(target_in)
        for layer in self.decoder.layers:
            x, _, weights = layer.call_with_weights(
                x, memory, masks.target_mask(target_in), source_mask
            )
            yield weights

    def cross_keys_values(self, memory: Tensor) -> Cache:
        """Project the memory once for a whole search.

        Args:
            memory: Float tensor `(B, S, D)`.

        Returns:
            For each decoder layer keys `(B, H, S, K)`, values `(B, H, S, U)`.
        """
        return [
            layer.cross_attention.keys_values(memory)
            for layer in self.decoder.layers
        ]

    def empty_cache(self, batch: int | Tensor) -> Cache:
        """Make the self-attention cache before the first position.

        Args:
            batch: B, an integer or a scalar tensor.

        Returns:
            For each decoder layer keys `(B, H, 0, K)` and values
            `(B, H, 0, U)`.
        """
        config = self.model_config

        def no_slots(width):
            shape = (batch, config.num_heads, 0, width)
            return ops.zeros(shape, dtype=self.compute_dtype)

        return [
            (no_slots(config.key_dim), no_slots(config.value_dim))
            for _ in range(config.layers_of("decoder"))
        ]

    def decode_step(
        self,
        ids: Tensor,
        position: int | Tensor,
        cache: Cache,
        cross: Cache,
        source_mask: Tensor,
        own: Tensor | None = None,
        write: Callable[[Tensor, Tensor], Tensor] | None = None,
        scorer: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Cache]:
        """Predict the next token of every beam from its latest one.

        The beams of a sentence share its cache: each position writes W slots,
        one for each beam, and a mask shows a beam only the slots of its own
        history. When beams branch or end, nothing moves; only the mask
        changes. A restricted model needs only the last r positions, in any
        order.

        Args:
            ids: Integer tensor `(B, W)`, the latest token of each beam.
            position: Its position, a scalar; 0 for the begin token.
            cache: The cache of `empty_cache` or of the last step.
            cross: The result of `cross_keys_values`.
            source_mask: Boolean tensor `(B, 1, 1, S)`.
            own: Boolean tensor `(B, W, t)`, `True` for the slots that hold a
                beam's tokens, this position included; in a restricted model
                only the slots of the last r positions. By default each beam
                sees its own slot of every position.
            write: As in `DecoderLayer.step`; by default the W new slots come
                after the old slots, and a restricted model keeps the slots of
                its last r positions.
            scorer: The result of `embedding.scorer`, made once for a whole
                search.

        Returns:
            Logits, float32 `(B, W, V)`, and the cache with W more slots.
        """
        beams = ids.shape[1]
        restriction = self.model_config.restriction
        if own is None:
            positions = position + 1
            if restriction is not None:
                positions = at_most(positions, restriction)
            slots = ops.arange(positions * beams) % beams
            own = ops.equal(slots, ops.arange(beams)[:, None])[None]
        if write is None:
            kept = None if restriction is None else restriction * beams
            write = functools.partial(_append, kept=kept)
        # Treat each beam as a target of length 1, so that all get one position.
        flat = ops.reshape(ids, (-1, 1))
        x = self._embed_target(flat, start=position)
        shape = (*ops.shape(ids), self.model_config.d_model)
        x, cache = self.decoder.step(
            ops.reshape(x, shape),
            cache,
            cross,
            own[:, None],
            source_mask,
            write,
        )
        return (scorer or self.embedding.logits)(x), cache

    def _source_mask(self, source):
        if not self.model_config.source_end:
            source = ops.where(ops.equal(source, EOS_ID), PAD_ID, source)
        return masks.padding_mask(source)

    def _embed_source(self, source, training=False):
        tied = self.model_config.tied_embeddings
        embedding = self.embedding if tied else self.source_embedding
        x = self.source_positions(embedding(source))
        return self.source_dropout(x, training=training)

    def _embed_target(self, target_in, start=0, training=False):
        tied = self.model_config.tied_embeddings
        embedding = self.embedding if tied else self.target_embedding
        x = self.target_positions(embedding(target_in), start=start)
        return self.target_dropout(x, training=training)

    def quantize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: an export is quantised instead.

        Raises:
            ValueError: Always.
        """
        refuse_quantization()

    def compute_output_spec(
        self, inputs: tuple[Tensor, Tensor], training: bool = False
    ) -> keras.KerasTensor:
        # Otherwise Keras assumes that logits have the compute dtype.
        _, target_in = pair_of_ids(inputs)
        shape = (*target_in.shape, self.vocab_size)
        return keras.KerasTensor(shape, dtype="float32")

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Export as `keras.Model` does, for any batch and lengths.

        The model need not have been called. The endpoint `serve` maps ids to
        logits. For a SavedModel from text to text see
        `keras_transformer.exporting`.

        All arguments are those of `keras.Model.export`; by default
        `input_signature` is a pair of int32 `(B, S)` and `(B, T)`.
        """
        if input_signature is None:
            source, target_in = (
                keras.InputSpec(shape=(None, None), dtype="int32", name=name)
                for name in ("source", "target_in")
            )
            input_signature = [(source, target_in)]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **dataclasses.asdict(self.model_config),
        }


def _refuse_class_weight(class_weight):
    if class_weight is not None:
        raise ValueError(
            "`class_weight` must be None: a target has a class at every place. "
            "Pass `sample_weight` (B, T), such as "
            "`np.vectorize(lambda id: weights.get(id, 1.0))(target_out)`. "
            f"Received: class_weight={class_weight}"
        )


def _append(old, new, kept=None):
    """Write new slots after the old ones `(B, H, t, K)`; keep the last few."""
    slots = ops.concatenate([old, new], axis=2)
    return slots if kept is None else slots[:, :, -kept:]
