"""What a session of a training may choose, and what no other needs to know.

Without TensorFlow, so that a mistake shows before it is loaded.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras_transformer.config import UserError

STRATEGIES = ("auto", "none", "mirrored", "multiworker")
XLA: dict[str, bool | str] = {"auto": "auto", "on": True, "off": False}


@dataclasses.dataclass(frozen=True)
class Session:
    """How one session trains; nothing of it changes what comes out.

    But for one thing that `xla` chooses where a run begins: the recipe's
    `length_growth`, unless that is given. The run keeps it.

    Attributes:
        minutes: Minutes of training in all, over all sessions; None for no
            limit.
        strategy: One of `STRATEGIES`.
        accumulate: Micro-batches that a replica runs its share of a batch in.
        xla: One of `XLA`: whether the gradient is compiled for every shape of
            a batch; `"auto"` does on GPUs.
        callbacks: Keras callbacks, called after the package's own. A training
            is one epoch of as many batches as it has updates.
    """

    minutes: float | None = None
    strategy: str = "auto"
    accumulate: int = 1
    xla: str = "auto"
    callbacks: Sequence[Any] = ()

    @property
    def less_memory(self) -> str:
        """What to do where memory runs out: the end of a sentence."""
        return (
            f"the same again with --accumulate {2 * self.accumulate} goes on "
            "in half of it and changes nothing else; a smaller --batch-tokens "
            "takes another --run-dir"
        )

    def check(self) -> None:
        """Raise a `UserError` for the first choice that makes no sense."""
        for name in ("minutes", "accumulate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"Expected --{name} above 0, received {value}.")
        for name, choices in (("strategy", STRATEGIES), ("xla", XLA)):
            value = getattr(self, name)
            if value not in choices:
                raise UserError(
                    f"Expected --{name} to be one of {', '.join(choices)}; "
                    f"received {value}."
                )
