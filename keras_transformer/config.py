"""Every setting of a model, its training and its search; and the ids.

It imports neither Keras nor TensorFlow, so reading a configuration is instant.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from keras_transformer.settings import (
    Checked,
    SettingError,
    checked_value,
    setting,
    setting_of,
    settings_of,
)
from keras_transformer.settings import JobError as JobError
from keras_transformer.settings import UserError as UserError
from keras_transformer.settings import logger as logger

# Four ids, four roles.
PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3


class SpecialIds(NamedTuple):
    """The ids of a tokenizer that a search has to know; by default ours."""

    pad: int = PAD_ID
    unk: int | None = UNK_ID
    bos: int = BOS_ID
    eos: int = EOS_ID
    # How a blank source reads: the last one ends every source.
    blank: tuple[int, ...] = (EOS_ID,)
    # The pieces of the 256 bytes, where a vocabulary writes rare characters so.
    bytes: tuple[int, ...] = ()


OURS = SpecialIds()
SEARCH_PRECISIONS = ("float32", "bfloat16", "int8")
# Tokens after which a source is cut by default.
MAX_SOURCE_LENGTH = 256

# Keras's activations of single numbers.
ACTIVATIONS = (
    *("relu", "gelu", "silu", "swish", "celu", "elu", "hard_sigmoid"),
    *("hard_silu", "leaky_relu", "log_sigmoid", "mish", "relu6", "selu"),
    *("sigmoid", "softplus", "softsign", "squareplus", "tanh"),
)

_SHARE = "[0, 1)"


@dataclasses.dataclass(frozen=True)
class ModelConfig(Checked):
    """The arguments of `Transformer`, in the names of the paper's table 3.

    A setting that only imported weights need has no flag.
    """

    vocab_size: int = setting(37_000, "pieces of the shared vocabulary")
    num_layers: int = setting(6, "layers of the encoder and of the decoder (N)")
    encoder_layers: int | None = setting(
        None, "layers of the encoder, if not `num_layers`", metavar="N"
    )
    decoder_layers: int | None = setting(
        None, "layers of the decoder, if not `num_layers`", metavar="N"
    )
    d_model: int = setting(512, "width of every sub-layer, even (d_model)")
    num_heads: int = setting(8, "attention heads (h)")
    key_dim: int = setting(
        None, "width of a head's queries and keys (d_k); by default d_model / h"
    )
    value_dim: int = setting(
        None, "width of a head's values (d_v); by default d_model / h"
    )
    ffn_dim: int = setting(2048, "inner width of feed-forward networks (d_ff)")
    dropout: float = setting(
        0.1,
        "share of units dropped from sub-layers and embedded inputs (P_drop)",
        within=_SHARE,
    )
    attention_dropout: float = setting(
        0.0,
        "share of attention weights dropped; tensor2tensor's base has 0.1",
        within=_SHARE,
    )
    positions: str = setting(
        "sinusoidal",
        "how positions are encoded (3.5)",
        choices=("sinusoidal", "learned", "tensor2tensor"),
    )
    max_positions: int = setting(
        1024, "rows of the learned position table", flag=False
    )
    restriction: int | None = setting(
        None,
        "let a position attend only to those less than R away, in the decoder "
        "to the last R (section 4, r); by default to all of its sequence",
        within="[1, 1000000)",  # Beyond any text; 32 bits hold far more.
        metavar="R",
    )
    activation: str | Callable[..., Any] = setting(
        "relu",
        "activation of the feed-forward network",
        choices=ACTIVATIONS,
        or_object=True,
    )
    norm_epsilon: float = setting(
        1e-6,
        "number that norms add to the variance; by default tensor2tensor's",
        within="(0, inf)",
        flag=False,
    )
    attention_bias: bool = setting(
        False,
        "whether the projections of queries and of the output have a bias",
        flag=False,
    )
    logits_bias: bool = setting(False, "whether logits have a bias", flag=False)
    norm_first: bool = setting(
        False,
        "normalise the input of every sub-layer and the output of every stack, "
        "not the sum after a sub-layer (pre-norm)",
    )
    first_position: int = setting(
        0, "number of the first position", within="[0, inf)", flag=False
    )
    tied_embeddings: bool = setting(
        True, "whether source, target and logits share a matrix", flag=False
    )
    source_end: bool = setting(
        True, "whether the end token of a source may be attended to", flag=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 2:
            expected = "even, since sines and cosines come in pairs"
            raise SettingError("d_model", expected, self.d_model)
        for name in ("key_dim", "value_dim"):
            if getattr(self, name) is None:
                width = head_width(name, self.d_model, self.num_heads)
                object.__setattr__(self, name, width)

    def as_given(self) -> dict[str, Any]:
        """Return all settings, with None for widths of heads that follow."""
        values = dataclasses.asdict(self)
        for name in ("key_dim", "value_dim"):
            if values[name] * self.num_heads == self.d_model:
                values[name] = None
        return values

    def layers_of(self, stack: str) -> int:
        """Return the number of layers of `"encoder"` or `"decoder"`."""
        return getattr(self, f"{stack}_layers") or self.num_layers


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Checked):
    """The settings of a training (section 5)."""

    steps: int = setting(100_000, "optimizer updates in all", may_change=True)
    batch_tokens: int = setting(
        25_000,
        "budget of tokens on either side of a global batch, with padding",
    )
    max_length: int = setting(
        256,
        "most tokens on either side of a pair, with the end token; longer "
        "pairs are dropped",
    )
    warmup_steps: int = setting(4_000, "updates of linear warm-up (equation 3)")
    learning_rate_scale: float = setting(
        1.0, "factor on equation 3", within="(0, inf)"
    )
    label_smoothing: float = setting(
        0.1,
        "weight spread over the whole vocabulary in the loss (5.4, ε_ls)",
        within=_SHARE,
    )
    average: int = setting(
        5, "checkpoints averaged at the end (6.1)", may_change=True
    )
    checkpoint_every: str | int = setting(
        "10m",
        "minutes between checkpoints (10m), or updates (100); by the clock, "
        "stopping and resuming changes which weights are averaged",
        may_change=True,
        or_object=True,
    )
    keep_checkpoints: int = setting(
        10, "newest checkpoints kept, at least `average`", may_change=True
    )
    validation_steps: int = setting(
        2_000, "updates between validations", may_change=True
    )
    target_bleu: float | None = setting(
        None,
        "BLEU on the validation sample that ends the training; inf for none",
        within="[0, inf]",
        may_change=True,
    )
    patience: int | None = setting(
        None,
        "end after N validations in a row without improvement and keep the "
        "best weights; by default never, after 5 in a fine-tuning",
        metavar="N",
        may_change=True,
    )
    patience_on: str = setting(
        "loss",
        "what the validations of `patience` compare",
        choices=("loss", "bleu"),
        may_change=True,
    )
    precision: str = setting(
        "float32",
        "Keras's dtype policy",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
    )
    accumulate: int = setting(
        1,
        "micro-batches into which a replica splits its share of a batch",
        may_change=True,
    )
    seed: int = setting(
        1, "fixes weights, data order and dropout", within=f"[0, {2**32})"
    )
    validation_share: float | None = setting(
        None,
        "share of the training split to hold out for validation, if a corpus "
        "has no validation split; the text decides which pairs, not the seed",
        within="(0, 1)",
    )
    term_share: float = setting(
        0.0,
        "share of the sources in which terms are marked, so that the model "
        "learns to write what `terms` want; 0 for none",
        within="[0, 1]",
    )
    length_growth: float = setting(
        1.06,
        "ratio between padded lengths; a GPU compiles each shape once",
        within="(1, 2]",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (kept := self.keep_checkpoints) < self.average:
            expected = f"at least {self.average}, the `average` at the end"
            raise SettingError("keep_checkpoints", expected, kept)
        every = str(self.checkpoint_every)
        object.__setattr__(self, "checkpoint_every", every)
        is_known = re.fullmatch(r"\d+|\d+(\.\d+)?m", every)
        if not is_known or not float(every.removesuffix("m")):
            expected = "minutes such as 10m, or updates such as 100"
            raise SettingError("checkpoint_every", expected, every)

    def is_checkpoint_due(self, step: int, seconds: float) -> bool:
        """Return whether to save after an update, `seconds` after the last."""
        every = str(self.checkpoint_every)
        if every.endswith("m"):
            return seconds >= 60 * float(every[:-1])
        return step % int(every) == 0


@dataclasses.dataclass(frozen=True)
class Sampling(Checked):
    """Draw each next token at random instead of searching for the best.

    The logits are divided by the temperature; then only the `top_k` likeliest
    tokens stay; then, of their renormalised probabilities, the smallest set of
    likeliest tokens that together reach `top_p` (nucleus sampling).

    Reference:
        [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751), section 3.1.
    """

    temperature: float = setting(
        1.0,
        "divides the logits; below 1, likely tokens become likelier",
        within="(0, inf)",
    )
    top_k: int = setting(
        0,
        "likeliest tokens that may be drawn; 0 for all",
        metavar="K",
        within="[0, inf)",
    )
    top_p: float = setting(
        1.0,
        "draw among the fewest tokens that together reach probability P",
        metavar="P",
        within="(0, 1]",
    )
    seed: int | None = setting(
        None,
        "gives a text the same draws in any batch; by default they differ",
        within=f"[0, {2**31})",
    )


@dataclasses.dataclass(frozen=True)
class Search(Checked):
    """The settings of a search (section 6.1), from the flags to the graph.

    A run stores one, and later commands use it unless you override it.
    """

    beam_size: int = setting(
        4, "live hypotheses per sentence; 1 is greedy", may_change=True
    )
    length_penalty: float = setting(
        0.6,
        "exponent α in score = log-probability / ((5 + length) / 6)^α; a "
        "larger one favours longer translations",
        within="[0, inf)",
        may_change=True,
    )
    n_best: int = setting(
        1,
        "translations of each text, best first: at most `beam_size`, or draws",
    )
    min_length: int = setting(
        0,
        "fewest tokens of a translation, with the end token, within its limit",
        within="[0, inf)",
    )
    max_length: int | None = setting(
        None,
        "most tokens of a translation, with the end token; by default those of "
        "the source plus `max_extra_length`",
    )
    max_extra_length: int = setting(
        50,
        "how many tokens longer than its source a translation may be",
        within="[0, 1000000)",
        may_change=True,
    )
    max_source_length: int | None = setting(
        None,
        "tokens, with the end token, after which a source is cut; by default "
        f"{MAX_SOURCE_LENGTH} by verbs and exports",
        within="[2, inf)",
    )
    max_finished: int | None = setting(
        None,
        "stop once N hypotheses, at least `n_best`, have ended among the best "
        "`beam_size` of their step; 0: search until the result is proven",
        metavar="N",
        within="[0, 1000000)",
        may_change=True,
    )
    no_unknown: bool = setting(False, "never write the unknown piece")
    no_repeat_ngram: int = setting(
        0,
        "never write the same N tokens in a row twice; 0 allows repeats",
        metavar="N",
        within="[0, inf)",
    )
    sampling: Sampling | None = setting(
        None, "draw at random instead of searching", flag=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # 0 takes back what a run keeps; None means as the run.
        object.__setattr__(self, "max_finished", self.max_finished or None)
        if not self.sampling and self.n_best > self.beam_size:
            expected = f"at most {self.beam_size}, the `beam_size`"
            raise SettingError("n_best", expected, self.n_best)
        if self.max_length is not None and self.max_length < self.min_length:
            expected = f"at least {self.min_length}, the `min_length`"
            raise SettingError("max_length", expected, self.max_length)

    def kept_by_run(self) -> dict[str, Any]:
        """Return the settings that a training takes and a run keeps."""
        return {name: getattr(self, name) for name in RUN_SEARCH}


# What a training takes of a search, and a run keeps.
RUN_SEARCH = {
    name: field
    for name, field in settings_of(Search).items()
    if setting_of(field).may_change
}
# All settings that may override a preset's, by name.
SETTINGS: Mapping[str, dataclasses.Field] = MappingProxyType(
    settings_of(ModelConfig) | settings_of(TrainingConfig) | RUN_SEARCH
)


def head_width(name: str, d_model: int, num_heads: int) -> int:
    """Return the default width of a head, `d_model / num_heads` (3.2.2)."""
    if d_model % num_heads:
        expected = f"a multiple of `num_heads`, {num_heads}, without `{name}`"
        raise SettingError("d_model", expected, d_model)
    return d_model // num_heads


def checked(name: str, value: Any) -> Any:
    """Check a setting by its name, and give it its field's type."""
    return checked_value(SETTINGS[name], value)
