"""Presets (table 3), ids and errors.

This file imports neither Keras nor TensorFlow, and both wings may depend on
it.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Four ids, four roles.
PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
SEARCH_PRECISIONS = ("float32", "bfloat16")


class UserError(Exception):
    """A mistake that its one-sentence message explains to the user.

    The command lines print the message on standard error and exit with 2.
    """


class JobError(Exception):
    """Why a job that began rightly cannot go on, in one sentence.

    The command lines print the message on standard error and exit with 1.
    """


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The arguments of `Transformer`, in the names of the paper's table 3.

    Attributes:
        vocab_size: Number of pieces of the shared vocabulary.
        num_layers: Layers in the encoder, and again in the decoder: N.
        d_model: Width of every sub-layer's output.
        num_heads: Attention heads: h.
        key_dim: Width of a head's queries and keys: d_k.
        value_dim: Width of a head's values: d_v.
        ffn_dim: Inner width of the feed-forward network: d_ff.
        dropout: Share of units dropped: P_drop, in [0, 1).
        positions: `"sinusoidal"` (section 3.5), `"learned"` (row E), or
            `"tensor2tensor"`, which imported weights may ask for.
        max_positions: Rows of the learned position table; sinusoids have no
            such limit.
        restriction: None, or r of restricted self-attention (section 4): each
            position sees those less than r from it, in the decoder the last r.
        activation: Of the feed-forward network: `"relu"` (section 3.3), or
            `"swish"`, which imported weights may ask for.
        norm_epsilon: Added to the variance by every norm. The paper names
            none; this is tensor2tensor's.
        attention_bias: Whether the projections of queries and of the output
            have a bias, which the paper's have not. One of keys cancels in
            the softmax, and one of values is a part of the output's.
        logits_bias: Whether the logits have a bias, which the paper's have
            not.
        norm_first: Whether a sub-layer's input is normed instead of its sum
            with the output, and both stacks end with a norm (pre-norm). The
            paper norms the sum.
        first_position: Number of the first position. The paper's is 0.
        tied_embeddings: Whether source, target and logits share one matrix
            (section 3.4), or each has its own.
        source_end: Whether the end token of a source may be attended to.
            Where it may not, the source is read as if it had none.
    """

    vocab_size: int = 37_000
    num_layers: int = 6
    d_model: int = 512
    num_heads: int = 8
    key_dim: int = 64
    value_dim: int = 64
    ffn_dim: int = 2048
    dropout: float = 0.1
    positions: str = "sinusoidal"
    max_positions: int = 1024
    restriction: int | None = None
    activation: str = "relu"
    norm_epsilon: float = 1e-6
    attention_bias: bool = False
    logits_bias: bool = False
    norm_first: bool = False
    first_position: int = 0
    tied_embeddings: bool = True
    source_end: bool = True


# Settings that a run of before there were any has as they are by default.
LATER_SETTINGS = frozenset(
    {
        "bpe_dropout",
        "activation",
        "norm_epsilon",
        "attention_bias",
        "logits_bias",
        "norm_first",
        "first_position",
        "tied_embeddings",
        "source_end",
    }
)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Section 5 as numbers.

    Attributes:
        steps: Optimizer updates of a whole training.
        batch_tokens: Budget of target tokens, and equally of source tokens,
            in a global batch, padding included.
        max_length: Training pairs with a longer side, in tokens with the end
            token, are dropped.
        warmup_steps: Updates of linear warm-up (equation 3).
        learning_rate_scale: Factor on equation 3; the paper's is 1.
        label_smoothing: Epsilon of section 5.4, in [0, 1).
        bpe_dropout: Probability of leaving out a merge where training text is
            cut into pieces (Provilkov et al., 2020), in [0, 1); 0 for none.
        average: Checkpoints averaged at the end (section 6.1).
        checkpoint_minutes: Minutes between checkpoints.
        checkpoint_steps: Updates between checkpoints; overrules the minutes.
        keep_checkpoints: Newest checkpoints kept, at least `average`.
        validation_steps: Updates between validations.
        ema: Factor by which a weight's share in the moving average falls with
            every update, in (0, 1); None for no such average.
        target_bleu: BLEU of the validation sample at which a training ends
            early; None or infinity for no such end.
        precision: Keras dtype policy.
        seed: Fixes weights, data order and dropout.
        length_growth: Quotient of neighbours among the lengths that batches
            are padded to, above 1. None where a run has not begun: 1.15 where
            XLA compiles every shape, or else 1.06, which is also that of a run
            of before there was a choice.
    """

    steps: int = 100_000
    batch_tokens: int = 25_000
    max_length: int = 256
    warmup_steps: int = 4_000
    learning_rate_scale: float = 1.0
    label_smoothing: float = 0.1
    bpe_dropout: float = 0.0
    average: int = 5
    checkpoint_minutes: float = 10.0
    checkpoint_steps: int | None = None
    keep_checkpoints: int = 10
    validation_steps: int = 2_000
    ema: float | None = None
    target_bleu: float | None = None
    precision: str = "float32"
    seed: int = 1
    length_growth: float | None = None


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """How a run's model is searched where nobody says otherwise (section 6.1).

    Attributes:
        beam_size: Live hypotheses per sentence; 1 is greedy.
        length_penalty: The exponent alpha, at least 0.
        max_extra_length: Most tokens of a translation beyond its source's.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    max_extra_length: int = 50


PAPER_SEARCH = SearchConfig()


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named shape, its recipe and its search."""

    model: ModelConfig
    training: TrainingConfig
    search: SearchConfig = PAPER_SEARCH


def _row(training: Mapping[str, Any] | None = None, **model: Any) -> Preset:
    """A row of table 3: what is not given is as in `base`."""
    return Preset(ModelConfig(**model), TrainingConfig(**(training or {})))


_BIG = dict(d_model=1024, ffn_dim=4096, num_heads=16)
_BIG_TRAINING = dict(steps=300_000, average=20, keep_checkpoints=20)


def _parsing(vocab_size: int) -> Preset:
    """A parser of section 6.3: what is not given is as in `base`."""
    row = _row(
        dict(max_length=600),
        vocab_size=vocab_size,
        num_layers=4,
        d_model=1024,
        key_dim=128,
        value_dim=128,
    )
    search = SearchConfig(
        beam_size=21, length_penalty=0.3, max_extra_length=300
    )
    return dataclasses.replace(row, search=search)


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "base": _row(),
        "A-h1": _row(num_heads=1, key_dim=512, value_dim=512),
        "A-h4": _row(num_heads=4, key_dim=128, value_dim=128),
        "A-h16": _row(num_heads=16, key_dim=32, value_dim=32),
        "A-h32": _row(num_heads=32, key_dim=16, value_dim=16),
        "B-dk16": _row(key_dim=16),
        "B-dk32": _row(key_dim=32),
        "C-N2": _row(num_layers=2),
        "C-N4": _row(num_layers=4),
        "C-N8": _row(num_layers=8),
        "C-d256": _row(d_model=256, key_dim=32, value_dim=32),
        "C-d1024": _row(d_model=1024, key_dim=128, value_dim=128),
        "C-ff1024": _row(ffn_dim=1024),
        "C-ff4096": _row(ffn_dim=4096),
        "D-drop0.0": _row(dropout=0.0),
        "D-drop0.2": _row(dropout=0.2),
        "D-ls0.0": _row({"label_smoothing": 0.0}),
        "D-ls0.2": _row({"label_smoothing": 0.2}),
        "E-learned": _row(positions="learned"),
        "big": _row(_BIG_TRAINING, dropout=0.3, **_BIG),
        # Beyond table 3.
        "big-en-fr": _row(_BIG_TRAINING, vocab_size=32_000, **_BIG),
        # Section 6.3: trees of the Wall Street Journal alone, and of more. The
        # heads' widths are not said: with d_model they grow as in row C. Steps
        # and dropout are not either: they are base's, to be chosen on section
        # 22. No tree of up to 300 tokens of sentence is left out.
        "parsing": _parsing(16_000),
        "parsing-semi": _parsing(32_000),
        # The shape of Wu et al. 2021 for Multi30k.
        "tiny": _row(
            dict(
                steps=10_000,
                batch_tokens=4_096,
                warmup_steps=800,
                learning_rate_scale=0.7,
                checkpoint_minutes=2.0,
                validation_steps=500,
            ),
            vocab_size=8_000,
            num_layers=4,
            d_model=128,
            num_heads=4,
            key_dim=32,
            value_dim=32,
            ffn_dim=256,
            dropout=0.3,
        ),
        # Learns the built-in corpus in minutes on two CPU cores. It is written
        # by rules: nothing is to be gained from dropout.
        "demo": _row(
            dict(
                steps=3_000,
                batch_tokens=2_048,
                warmup_steps=400,
                learning_rate_scale=0.5,
                checkpoint_steps=100,
                checkpoint_minutes=1.0,
                validation_steps=250,
                target_bleu=99.5,
            ),
            vocab_size=1_000,
            num_layers=2,
            d_model=128,
            num_heads=4,
            key_dim=32,
            value_dim=32,
            ffn_dim=256,
            dropout=0.0,
        ),
    }
)
