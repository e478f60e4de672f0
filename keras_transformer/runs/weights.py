"""Which weights of a run, or of several that search together, are asked for.

This module needs neither Keras nor TensorFlow: reading it is instant.
"""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.config import SEARCH_PRECISIONS, Search
from keras_transformer.machine import files
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.settings import Checked, setting, settings_of

if TYPE_CHECKING:  # Of Keras.
    from keras_transformer.runs.averaging import Chosen

# Run directories with their configurations: a run, then those beside it.
Runs = Sequence[tuple[pathlib.Path, RunConfig]]


@dataclasses.dataclass(frozen=True)
class Weights(Checked):
    """The weights that are used, from the flags to the reports."""

    average: int | None = setting(
        None,
        "number of newest checkpoints to average; if not given, the weights "
        "that validated best at the end of the training",
    )
    ensemble: tuple[pathlib.Path, ...] = setting(
        (),
        "another run of the same vocabulary, whose model searches together "
        "with that of `run_dir`",
        several="a list of run directories",
        metavar="RUN",
    )
    precision: str = setting(
        SEARCH_PRECISIONS[0],
        "type to multiply in; bfloat16 and int8 round, and are faster on "
        "processors that support them (bfloat16: AMX or AVX512-BF16; int8: "
        "AMX or VNNI)",
        choices=SEARCH_PRECISIONS,
    )
    shortlist: pathlib.Path | None = setting(
        None,
        "score only the target pieces that FILE, written by the verb "
        "shortlist, lists for the source; faster, with nearly the same results",
        metavar="FILE",
    )
    chosen: tuple["Chosen", ...] = ()  # What was taken of each run, if known.

    @property
    def identity(self) -> str:
        """Identify what was chosen: other weights have another text."""
        return " + ".join(map(str, self.chosen))

    def deciding(self, search: Search) -> dict[str, Any]:
        """Collect what decides how texts are translated, ready for JSON."""
        words = self.shortlist
        return {
            "model": self.identity,
            "precision": self.precision,
            "shortlist": words and files.checksum(words),
            **dataclasses.asdict(search),
        }

    def report(self) -> dict[str, Any]:
        """Say what was used, ready for JSON."""
        own, *others = self.chosen
        report: dict[str, Any] = {
            "precision": self.precision,
            "checkpoints": [*own.checkpoints],
            "weights": self.identity,
        }
        if others:
            report["ensemble"] = {
                os.fspath(each.run_dir): [*each.checkpoints] for each in others
            }
        if self.shortlist:
            report["shortlist"] = os.fspath(self.shortlist)
        return report


# The settings of the class, by name.
WEIGHTS = settings_of(Weights)
