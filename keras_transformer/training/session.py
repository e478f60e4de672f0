"""What a session of a training may choose, and what no other needs to know.

Without TensorFlow, so that a mistake shows before it is loaded.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras_transformer.settings import setting, settle

XLA: dict[str, bool | str] = {"auto": "auto", "on": True, "off": False}


@dataclasses.dataclass(frozen=True)
class Session:
    """How one session trains; the next one of a run may choose otherwise.

    Every update has the same batch and learning rate. With another `strategy`
    or `accumulate` dropout draws otherwise, and sums are rounded otherwise.
    Where a run begins, `xla` chooses the recipe's `length_growth`, unless that
    is given; the run keeps it.

    Attributes:
        callbacks: Keras callbacks, called after the package's own. A training
            is one epoch of as many batches as it has updates.
    """

    minutes: float | None = setting(
        None,
        "minutes of training in all, over all sessions; no limit where "
        "not given",
        within="(0, inf)",
    )
    strategy: str = setting(
        "auto",
        "where the replicas are",
        choices=("auto", "none", "mirrored", "multiworker"),
    )
    accumulate: int = setting(
        1,
        "micro-batches that a replica runs its share of a batch in",
        within="[1, inf)",
    )
    xla: str = setting(
        "auto",
        "whether the gradient is compiled for every shape of a batch; "
        "auto: on GPUs",
        choices=tuple(XLA),
    )
    callbacks: Sequence[Any] = ()

    def __post_init__(self) -> None:
        settle(self)

    @property
    def less_memory(self) -> str:
        """What to do where memory runs out: the end of a sentence."""
        return (
            f"the same again with `accumulate` {2 * self.accumulate} goes on "
            "in half of it, with the same batches; a smaller `batch_tokens` "
            "takes another `run_dir`"
        )


SESSION_SETTINGS = [
    field
    for field in dataclasses.fields(Session)
    if "setting" in field.metadata
]
