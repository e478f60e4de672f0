"""Presets (table 3) and the configuration that a run directory carries.

This file imports neither Keras nor TensorFlow: reading a configuration is
instant, and both wings may depend on it.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

# Four ids, four roles.
PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3

CONFIG_FILE = "config.json"

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")

_POSITIVE = (
    "steps",
    "batch_tokens",
    "max_length",
    "warmup_steps",
    "learning_rate_scale",
    "average",
    "checkpoint_minutes",
    "checkpoint_steps",
    "keep_checkpoints",
    "validation_steps",
)


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
        positions: `"sinusoidal"` (section 3.5) or `"learned"` (row E).
        max_positions: Rows of the learned position table; sinusoids have no
            such limit.
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
        average: Checkpoints averaged at the end (section 6.1).
        checkpoint_minutes: Minutes between checkpoints.
        checkpoint_steps: Updates between checkpoints; overrules the minutes.
        keep_checkpoints: Newest checkpoints kept, at least `average`.
        validation_steps: Updates between validations.
        ema: Factor by which a weight's share in the moving average falls with
            every update, in (0, 1); None for no such average.
        precision: Keras dtype policy.
        seed: Fixes weights, data order and dropout.
    """

    steps: int = 100_000
    batch_tokens: int = 25_000
    max_length: int = 256
    warmup_steps: int = 4_000
    learning_rate_scale: float = 1.0
    label_smoothing: float = 0.1
    average: int = 5
    checkpoint_minutes: float = 10.0
    checkpoint_steps: int | None = None
    keep_checkpoints: int = 10
    validation_steps: int = 2_000
    ema: float | None = None
    precision: str = "float32"
    seed: int = 1


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named shape and its recipe."""

    model: ModelConfig
    training: TrainingConfig


def _row(training: Mapping[str, Any] | None = None, **model: Any) -> Preset:
    """A row of table 3: what is not given is as in `base`."""
    return Preset(ModelConfig(**model), TrainingConfig(**(training or {})))


_BIG = dict(d_model=1024, ffn_dim=4096, num_heads=16)
_BIG_TRAINING = dict(steps=300_000, average=20, keep_checkpoints=20)

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
        # Learns the built-in corpus in minutes on two CPU cores.
        "demo": _row(
            dict(
                steps=1_800,
                batch_tokens=4_096,
                warmup_steps=400,
                learning_rate_scale=0.35,
                checkpoint_steps=100,
                checkpoint_minutes=1.0,
                validation_steps=500,
            ),
            vocab_size=600,
            num_layers=2,
            d_model=128,
            num_heads=4,
            key_dim=32,
            value_dim=32,
            ffn_dim=256,
            dropout=0.1,
        ),
    }
)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """All that later verbs need to know of a run, as `config.json`.

    Attributes:
        preset: Name of the preset the run started from.
        corpus: `demo`, a folder, or `tfds:NAME[/CONFIG]`.
        source_lang: Language code of the source side.
        target_lang: Language code of the target side.
        train_split: Name of the training split.
        validation_split: Name of the validation split.
        requested_vocab_size: The vocabulary size asked for; the model has the
            size that the corpus could fill.
        model: The model's arguments.
        training: The recipe.
    """

    preset: str
    corpus: str
    source_lang: str
    target_lang: str
    train_split: str
    validation_split: str
    requested_vocab_size: int
    model: ModelConfig
    training: TrainingConfig

    def check(self) -> None:
        """Raise a `UserError` for the first setting that makes no sense."""
        if self.source_lang == self.target_lang:
            raise UserError(
                "Expected two languages, received "
                f"{self.source_lang} for both sides."
            )
        if self.train_split == self.validation_split:
            raise UserError(
                "Expected two splits, received "
                f"{self.train_split} for training and validation."
            )
        model, training = self.model, self.training
        for name, value, good, wanted in (
            ("dropout", model.dropout, 0 <= model.dropout < 1, "in [0, 1)"),
            (
                "label-smoothing",
                training.label_smoothing,
                0 <= training.label_smoothing < 1,
                "in [0, 1)",
            ),
            (
                "ema",
                training.ema,
                training.ema is None or 0 < training.ema < 1,
                "in (0, 1)",
            ),
            ("seed", training.seed, 0 <= training.seed < 2**32, "in [0, 2^32)"),
            (
                "precision",
                training.precision,
                training.precision in PRECISIONS,
                f"one of {', '.join(PRECISIONS)}",
            ),
        ):
            if not good:
                raise UserError(
                    f"Expected --{name} {wanted}, received {value}."
                )
        for name in _POSITIVE:
            value = getattr(training, name)
            if value is not None and not value > 0:
                raise UserError(
                    f"Expected --{name.replace('_', '-')} above 0, received "
                    f"{value}."
                )
        if training.keep_checkpoints < training.average:
            raise UserError(
                f"Expected --keep-checkpoints of at least {training.average}, "
                "the --average at the end, received "
                f"{training.keep_checkpoints}."
            )

    def resume(
        self, saved: "RunConfig", changeable: Iterable[str], run_dir
    ) -> "RunConfig":
        """Take over what may change; refuse what may not.

        Args:
            saved: The configuration of the run directory.
            changeable: Fields of the recipe that may differ.
            run_dir: Named in the error.

        Returns:
            The saved configuration with this one's changeable fields.

        Raises:
            UserError: If any other field differs; it names the field.
        """
        new, old = dataclasses.asdict(self), dataclasses.asdict(saved)
        for part in ("model", "training"):
            new.update(new.pop(part))
            old.update(old.pop(part))
        for name in sorted(new):
            if name == "vocab_size" or name in changeable:
                continue
            if new[name] != old[name]:
                raise UserError(
                    f"{run_dir} was trained with {name} = {old[name]}, this "
                    f"command says {new[name]}; give the same, or another "
                    "--run-dir."
                )
        recipe = {name: getattr(self.training, name) for name in changeable}
        return dataclasses.replace(
            saved, training=dataclasses.replace(saved.training, **recipe)
        )

    def save(self, run_dir: str | os.PathLike) -> None:
        """Write `config.json` into `run_dir`, whole or not at all."""
        path = pathlib.Path(run_dir) / CONFIG_FILE
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(dataclasses.asdict(self), indent=2))
        partial.replace(path)

    @classmethod
    def load(cls, run_dir: str | os.PathLike) -> "RunConfig":
        """Read `config.json`.

        Raises:
            UserError: If `run_dir` holds no readable configuration.
        """
        path = pathlib.Path(run_dir) / CONFIG_FILE
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                **{
                    **fields,
                    "model": _with_all_fields(ModelConfig, fields["model"]),
                    "training": _with_all_fields(
                        TrainingConfig, fields["training"]
                    ),
                }
            )
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"Expected a run directory with a {CONFIG_FILE}, found none "
                f"at {path}; train one with train.py --run-dir {run_dir}."
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{path} is not a configuration this version can read "
                f"({error}); train the run again or restore the file."
            ) from None


def _with_all_fields(kind, values):
    """Build `kind`; a `ValueError` where a default would have to stand in.

    What is None by default is something that a run need not have, and that
    the file of an older version may lack.
    """
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is not None
    }
    missing = needed - set(values)
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    return kind(**values)
