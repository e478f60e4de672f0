"""The Transformer: encoder, decoder and embedding (section 3).

It maps ids to logits, only in `keras.ops`.

Axes: B batch, S source length, T target length, D model width, V vocabulary,
H heads, K key width, U value width, W beams, t slots of a cache.
"""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer import layers, masks
from keras_transformer.config import EOS_ID, PAD_ID, ModelConfig
from keras_transformer.exact_step import ExactModel, pair_of_ids
from keras_transformer.keras_internals import Shape, Tensor
from keras_transformer.layers.block import LAYER_SETTINGS, Cache
from keras_transformer.presets import preset_of
from keras_transformer.replicas import Dropout


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(ExactModel):
    """The encoder-decoder model of "Attention Is All You Need".

    It is built on construction. It works in `compile`, `fit`, `evaluate` and
    `predict`, under every strategy of TensorFlow, as `ExactModel` says. It
    saves as `.keras` and as weights, exports as a SavedModel of ids, and runs
    under `mixed_bfloat16` and `mixed_float16` (logits, softmax, norms and
    positions stay float32).

    Args:
        vocab_size: Pieces of the shared vocabulary, V.
        num_layers: Layers of the encoder, and again of the decoder, N.
        encoder_layers: Layers of the encoder, if not `num_layers`.
        decoder_layers: Layers of the decoder, if not `num_layers`.
        d_model: Width of every sub-layer's output, even.
        num_heads: As for `layers.EncoderLayer`; so are `key_dim`, `value_dim`,
            `ffn_dim`, `attention_dropout`, `restriction`, `activation`,
            `norm_epsilon`, `attention_bias` and `norm_first`.
        dropout: As there, and of the sums of embeddings and positions.
        positions: `"sinusoidal"`, `"learned"` or `"tensor2tensor"`.
        max_positions: Rows of the learned position table.
        logits_bias: Whether the logits have a bias, unlike the paper's.
        first_position: Number of the first position.
        tied_embeddings: Whether source, target and logits share one matrix.
        source_end: Whether the end token of a source, 3, may be attended to.
        **kwargs: Passed to `keras.Model`, such as `name` and `dtype`.

    Call arguments:
        inputs: A pair of integer tensors, source `(B, S)` and target_in
            `(B, T)`. Source and target end with `tokenizer.eos_id`, target_in
            begins with `tokenizer.bos_id` instead, and 0 fills the rest:
            `kt.batch` makes them from texts.
        training: Whether dropout is on.

    Returns:
        Logits, a float32 tensor `(B, T, V)`.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.
    """

    def __init__(
        self,
        vocab_size: int,
        num_layers: int = 6,
        encoder_layers: int | None = None,
        decoder_layers: int | None = None,
        d_model: int = 512,
        num_heads: int = 8,
        key_dim: int | None = None,
        value_dim: int | None = None,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        positions: str = "sinusoidal",
        max_positions: int = 1024,
        restriction: int | None = None,
        activation: str | Callable[..., Any] = "relu",
        norm_epsilon: float = 1e-6,
        attention_bias: bool = False,
        logits_bias: bool = False,
        norm_first: bool = False,
        first_position: int = 0,
        tied_embeddings: bool = True,
        source_end: bool = True,
        **kwargs: Any,
    ) -> None:
        given = locals()  # By the names above, those of `ModelConfig`.
        if not isinstance(activation, str):
            given["activation"] = keras.activations.get(activation)
        names = [field.name for field in dataclasses.fields(ModelConfig)]
        config = ModelConfig(**{name: given[name] for name in names})
        super().__init__(**kwargs)
        self.model_config = config
        self.vocab_size = config.vocab_size
        self._add_layers(config)
        if type(self).__init__ is Transformer.__init__:
            self.build()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the `__init__` of a subclass add layers before all are built."""
        super().__init_subclass__(**kwargs)
        init = cls.__init__

        @functools.wraps(init)
        def init_and_build(self, *args, **kwargs):
            init(self, *args, **kwargs)
            if type(self).__init__ is not init_and_build:
                return
            if not self.built:
                self.build()
            if not all(layer.built for layer in self.layers):
                self.compute_output_spec(self.input_signature())

        init_and_build.__signature__ = inspect.signature(init)  # type: ignore
        cls.__init__ = init_and_build  # type: ignore

    def _add_layers(self, config):
        policy = self.dtype_policy
        sizes = config.vocab_size, config.d_model
        self.embedding = layers.TiedEmbedding(
            *sizes, use_bias=config.logits_bias, dtype=policy, name="embedding"
        )
        if not config.tied_embeddings:
            self.source_embedding, self.target_embedding = (
                layers.TiedEmbedding(*sizes, dtype=policy, name=name)
                for name in ("source_embedding", "target_embedding")
            )
        stack = {name: getattr(config, name) for name in LAYER_SETTINGS}
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
        """
        return cls(**{**preset_of(preset).model.as_given(), **overrides})

    def build(self, input_shape: Any = None) -> None:
        embedded = (None, None, self.model_config.d_model)
        self.embedding.build((None, None))
        if not self.model_config.tied_embeddings:
            self.source_embedding.build((None, None))
            self.target_embedding.build((None, None))
        for layer in (
            *(self.source_positions, self.target_positions),
            *(self.source_dropout, self.target_dropout),
        ):
            layer.build(embedded)
        self.encoder.build(embedded)
        self.decoder.build(embedded, embedded)
        self.built = True

    def features(
        self, inputs: tuple[Tensor, Tensor], training: bool = False
    ) -> Tensor:
        """Compute the decoder's output `(B, T, D)` from the inputs of a call.

        `embedding.logits` turns it into logits.
        """
        source, target_in = pair_of_ids(inputs)
        memory, source_mask = self.encode(source, training=training)
        return self._decoded(target_in, memory, source_mask, training)

    def encode(
        self,
        source: Tensor,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> tuple:
        """Read the source.

        Args:
            source: Integer tensor `(B, S)`.
            training: Whether dropout is on.
            return_attention_scores: Whether to return the weights too.

        Returns:
            The memory `(B, S, D)` and the source mask `(B, 1, 1, S)`. With
            `return_attention_scores` also a list of each layer's
            self-attention `(B, H, S, S)`.
        """
        seen = source
        if not self.model_config.source_end:
            seen = ops.where(ops.equal(source, EOS_ID), PAD_ID, source)
        source_mask = masks.padding_mask(seen)
        results = self.encoder(
            self._embed("source", source, training),
            attention_mask=source_mask,
            training=training,
            **_asked(return_attention_scores),
        )
        if return_attention_scores:
            return results[0], source_mask, results[1]
        return results, source_mask

    def decode(
        self,
        target_in: Tensor,
        memory: Tensor,
        source_mask: Tensor,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:
        """Predict every next token of a whole target.

        A call computes `features` and does not come here. A subclass that
        changes the decoder overrides both.

        Args:
            target_in: Integer tensor `(B, T)`, begin token first.
            memory: Float tensor `(B, S, D)`.
            source_mask: Boolean tensor `(B, 1, 1, S)`.
            training: Whether dropout is on.
            return_attention_scores: Whether to return the weights too.

        Returns:
            Logits, a float32 tensor `(B, T, V)`. With
            `return_attention_scores` also two lists with a tensor for each
            layer: its self-attention `(B, H, T, T)` and its cross-attention
            `(B, H, T, S)`.
        """
        asked = training, return_attention_scores
        x = self._decoded(target_in, memory, source_mask, *asked)
        if not return_attention_scores:
            return self.embedding.logits(x)
        x, decoder, cross = x
        return self.embedding.logits(x), decoder, cross

    def _decoded(self, target_in, memory, source_mask, training, scores=False):
        restricted = self.model_config.restriction is not None
        # A restricted layer gets no mask of all pairs, which would cost T T.
        mask = masks.padding_mask if restricted else masks.target_mask
        return self.decoder(
            self._embed("target", target_in, training),
            memory,
            self_mask=mask(target_in),
            memory_mask=source_mask,
            use_causal_mask=restricted,
            training=training,
            **_asked(scores),
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
        kind, ours = type(self), Transformer
        own = kind.call is not ours.call or kind.features is not ours.features
        if own and kind.attention_weights is ours.attention_weights:
            raise NotImplementedError(
                f"{kind.__name__} has a `call` or `features` of its own; "
                "override `attention_weights` to match."
            )
        memory, mask, encoder = self.encode(
            source, return_attention_scores=True
        )
        _, decoder, cross = self.decode(
            target_in, memory, mask, return_attention_scores=True
        )
        return {"encoder": encoder, "decoder": decoder, "cross": cross}

    def cross_keys_values(self, memory: Tensor) -> list[Cache]:
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

    def empty_cache(self, batch: int | Tensor) -> list[Cache]:
        """Make the self-attention cache before the first position.

        Args:
            batch: B, an integer or a scalar tensor.

        Returns:
            For each decoder layer keys `(B, H, 0, K)` and values
            `(B, H, 0, U)`.
        """
        config, dtype = self.model_config, self.compute_dtype
        shape = batch, config.num_heads, 0
        return [
            tuple(
                ops.zeros((*shape, width), dtype)
                for width in (config.key_dim, config.value_dim)
            )
            for _ in range(config.layers_of("decoder"))
        ]

    def decode_step(
        self,
        ids: Tensor,
        position: int | Tensor,
        cache: list[Cache],
        cross: list[Cache],
        source_mask: Tensor,
        own: Tensor | None = None,
        write: Callable[[Tensor, Tensor], Tensor] | None = None,
        scorer: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        """Predict the next token of every beam from its latest one.

        The beams of a sentence share its cache: each position writes W slots,
        one for each beam, and a mask shows a beam only the slots of its own
        history. When beams branch or end, nothing moves; only the mask
        changes. A restricted model needs only the last r positions, in any
        order. In a step for `beam_search`, make each beam a row: W = 1 here.

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
        beams, restriction = ids.shape[1], self.model_config.restriction
        first = None if restriction is None else -restriction * beams
        if own is None:
            slots = ops.arange((position + 1) * beams) % beams
            own = ops.equal(slots, ops.arange(beams)[:, None])[None, :, first:]
        if write is None:

            def write(old, new):  # Slots (B, H, t, K).
                return ops.concatenate([old, new], axis=2)[:, :, first:]

        # Treat each beam as a target of length 1, so that all get one position.
        x = self._embed("target", ops.reshape(ids, (-1, 1)), start=position)
        x = ops.reshape(x, (*ops.shape(ids), self.model_config.d_model))
        x, cache = self.decoder.step(
            x, cache, cross, own[:, None], source_mask, write
        )
        return (scorer or self.embedding.logits)(x), cache

    def _embed(self, side, ids, training=False, start=0):
        """Embed the ids of `"source"` or `"target"`, and mark positions."""
        tied = self.model_config.tied_embeddings
        x = getattr(self, "embedding" if tied else f"{side}_embedding")(ids)
        x = getattr(self, f"{side}_positions")(x, start=start)
        return getattr(self, f"{side}_dropout")(x, training=training)

    # By a trace of `call`: logits are float32 under every policy.
    compute_output_spec = keras.Operation.compute_output_spec

    def compute_output_shape(self, input_shape: Any) -> Shape:
        ids = keras.tree.map_shape_structure(
            lambda shape: keras.KerasTensor(shape, "int32"), input_shape
        )
        return self.compute_output_spec(ids).shape

    def input_signature(self) -> Any:
        """Declare what a call takes, as `keras.Input` makes it.

        Override it in a subclass whose call takes something else.
        """
        return tuple(
            keras.Input((None,), dtype="int32", name=name)
            for name in ("source", "target_in")
        )

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: Keras would quantise none of the products of our layers."""
        raise NotImplementedError(
            "A Transformer is quantised when it is exported or opened, not in "
            'place: `kt.export(translator, folder, precision="int8")`.'
        )

    def export(
        self, filepath: str | os.PathLike, *args: Any, **kwargs: Any
    ) -> None:
        """Export as `keras.Model` does, for any batch and lengths.

        The model need not have been called. The endpoint `serve` maps a tuple
        `(source, target_in)`, not a list, to logits. For a SavedModel from text
        to text see `keras_transformer.exporting`.

        All arguments are those of `keras.Model.export`; by default
        `input_signature` is a list of what the method of this name declares.
        """
        if keras.backend.backend() == "torch":  # Where the files are broken.
            raise NotImplementedError(
                "A Transformer has no `export` on PyTorch; save it as `.keras` "
                "and export it on TensorFlow."
            )
        if len(args) < 3 and kwargs.get("input_signature") is None:
            kwargs["input_signature"] = [self.input_signature()]
        super().export(filepath, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | dataclasses.asdict(self.model_config)


def _asked(return_attention_scores):
    """Ask a layer for scores only if needed: one's own may not know how."""
    return {"return_attention_scores": True} if return_attention_scores else {}
