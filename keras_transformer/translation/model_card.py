"""The model card of an export, `VERSION/model_card.json`, for our server.

Old exports have none.
"""

import dataclasses
import functools
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from keras_transformer import __version__
from keras_transformer.config import Search, UserError
from keras_transformer.data.corpora import (
    DEMO,
    SEPARATOR,
    TFDS_PREFIX,
    open_corpus,
    parts_of,
)
from keras_transformer.machine import files
from keras_transformer.presets import parameters
from keras_transformer.runs import layout
from keras_transformer.runs.weights import Runs, Weights
from keras_transformer.translation.sentences import Splitter

CARD_FILE = "model_card.json"


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """The origin of a model, and what it can do."""

    source_lang: str
    target_lang: str
    # These four are empty for a model without a run.
    preset: str = ""
    corpus: str = ""
    parameters: int = 0
    # Names of checkpoints, and a checksum: other weights have another text.
    weights: str = ""
    # Of the same weights, search and precision: each has its `corpus`, `split`,
    # `name`, `value` and `signature`.
    scores: tuple[Mapping[str, Any], ...] = ()
    search: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    precision: str = "float32"  # Type that the weights are stored in.
    shortlist: bool = False  # Whether searches score its words alone.
    terms: bool = False  # Whether it was trained to write what these want.
    # What it needs and some TensorFlows or processors lack, by name.
    operators: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    # Only of the built-in corpus: texts of others may be private.
    subject: str = ""
    examples: tuple[str, ...] = ()
    package_version: str = __version__

    @functools.cached_property
    def splitter(self) -> Splitter:
        """What splits texts between these languages; needs sentencex."""
        return Splitter(self.source_lang, self.target_lang)

    @property
    def how(self) -> tuple:
        """How the model searches and computes, whatever its weights."""
        stored = self.precision, self.shortlist
        return (self.search, *stored, self.operators, self.instructions)

    def save(self, saved_model: str | os.PathLike) -> None:
        """Write the file into the folder of a SavedModel."""
        text = json.dumps(dataclasses.asdict(self), indent=2)
        files.write_text(pathlib.Path(saved_model) / CARD_FILE, f"{text}\n")

    @classmethod
    def load(cls, saved_model: str | os.PathLike) -> "ModelCard | None":
        """Read the card in the folder of a SavedModel; None if it has none."""
        path = pathlib.Path(saved_model) / CARD_FILE
        if not path.exists():
            return None
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            # A later version of the package may say more.
            given: dict[str, Any] = {
                name: tuple(x) if isinstance(x, list) else x
                for name, x in fields.items()
                if name in known
            }
            return cls(**given)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"Expected a model's card in {path}, cannot read it ("
                f"{type(error).__name__}); export the model again or remove it."
            ) from None


def find_versions(folder: str | os.PathLike) -> dict[int, pathlib.Path]:
    """Find the SavedModels in a folder by version, which is their name."""
    return {
        int(path.parent.name): path.parent
        for path in pathlib.Path(folder).glob("*/saved_model.pb")
        if re.fullmatch("[0-9]+", path.parent.name)
    }


def make_card(runs: Runs, weights: Weights, search: Search | None) -> ModelCard:
    """Make the card for an export, without what the export adds.

    It has the scores of those evaluations that used the same weights and
    settings. `search` is by default the run's.
    """
    run_dir, run = runs[0]
    subject, examples = "", tuple[str, ...]()
    if run.corpus == DEMO:
        subject = "numbers, dates, times and amounts"
        demo = open_corpus(DEMO, run.source_lang, run.target_lang)
        sources = [source for source, _ in demo.pairs("test")]
        # One of each kind.
        examples = tuple(sources[i] for i in (50, 11, 110, 59, 9))
    searched = dataclasses.asdict(search or run.search)
    for name in ("n_best", "max_source_length"):  # Which are for it to choose.
        del searched[name]
    how = {
        "is_own_corpus": True,
        "search": searched,
        "weights": weights.identity,
        "precision": weights.precision,
        "shortlist": weights.shortlist is not None,
    }
    return ModelCard(
        source_lang=run.source_lang,
        target_lang=run.target_lang,
        preset=run.preset,
        corpus=_public_name(run.corpus),
        parameters=sum(parameters(each.model) for _, each in runs),
        weights=weights.identity,
        scores=_scores(run_dir / layout.EVALUATION, how),
        shortlist=weights.shortlist is not None,
        terms=run.training.term_share > 0,
        subject=subject,
        examples=examples,
    )


def _scores(
    folder: pathlib.Path, how: Mapping[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Read the scores of evaluations with these weights and settings."""
    scores = []
    for path in sorted(folder.glob(f"*/{layout.SCORES_FILE}")):
        report = json.loads(path.read_text(encoding="utf-8"))
        report["shortlist"] = bool(report.get("shortlist"))  # Its file.
        searched = report.get("search", {})
        report["search"] = {name: searched.get(name) for name in how["search"]}
        if all(report.get(name) == value for name, value in how.items()):
            name, split = _public_name(report["corpus"]), report["split"]
            scores += [
                {"corpus": name, "split": split, **score}
                for score in report["scores"].values()
            ]
    return tuple(scores)


def _public_name(corpus: str) -> str:
    """Name a corpus to strangers: a folder only by its last part."""
    return SEPARATOR.join(
        str(part._replace(name=os.path.basename(os.path.normpath(part.name))))
        if not part.name.startswith(TFDS_PREFIX)
        else str(part)
        for part in parts_of(corpus)
    )
