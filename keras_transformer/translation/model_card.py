"""What an export says of itself: `VERSION/model_card.json`.

A server reads there which languages the model translates between, how large it
is, what its training measured and where it cuts. TensorFlow Serving passes the
file over. An export of before there was one, or of a model that no run knows,
has none.
"""

import dataclasses
import json
import logging
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_transformer import __version__
from keras_transformer.config import UserError
from keras_transformer.data import demo
from keras_transformer.data.corpus import DEMO, TFDS_PREFIX
from keras_transformer.machine import files
from keras_transformer.runs import layout
from keras_transformer.runs.run_config import RunConfig

CARD_FILE = "model_card.json"
logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """Where a model comes from, and what it can do.

    Attributes:
        source_lang: Language code of the source side.
        target_lang: Language code of the target side.
        preset: Name of the preset that the run started from.
        corpus: Name of the corpus that it was trained on.
        parameters: Number of weights.
        weights: Names of the checkpoints that the weights are made of, and a
            checksum: other weights have another text here.
        scores: Of each test set that these weights were evaluated on: the
            `corpus`, its `split`, and a score's `name`, `value` and
            `signature`.
        search: The options of `Search` that the export was made with.
        subject: What the built-in corpus is about, in words; empty for any
            other, whose texts may be nobody else's business.
        examples: A few texts to try the model with, of the same corpus.
        package_version: Version of this package that made the export.
    """

    source_lang: str
    target_lang: str
    preset: str
    corpus: str
    parameters: int
    weights: str
    scores: tuple[Mapping[str, Any], ...] = ()
    search: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    subject: str = ""
    examples: tuple[str, ...] = ()
    package_version: str = __version__

    def save(self, saved_model: str | os.PathLike) -> None:
        """Write the file into the folder of a SavedModel."""
        text = json.dumps(dataclasses.asdict(self), indent=2)
        files.write_text(pathlib.Path(saved_model) / CARD_FILE, f"{text}\n")

    @classmethod
    def load(cls, saved_model: str | os.PathLike) -> "ModelCard | None":
        """Read the card of a SavedModel.

        Args:
            saved_model: Its folder.

        Returns:
            None where there is no card.

        Raises:
            UserError: If there is one that cannot be read.
        """
        path = pathlib.Path(saved_model) / CARD_FILE
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            known = {field.name for field in dataclasses.fields(cls)}
            # A later version of the package may say more.
            card = cls(**{n: v for n, v in fields.items() if n in known})
            return dataclasses.replace(
                card, scores=tuple(card.scores), examples=tuple(card.examples)
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"Expected the card of a model in {path}, cannot read it "
                f"({type(error).__name__}); export the model again or remove "
                "the file."
            ) from None


def make_card(
    run_dir: pathlib.Path, parameters: int, average: int | None
) -> ModelCard:
    """Make the card for an export of a run.

    Args:
        run_dir: The run directory.
        parameters: Number of weights of its model.
        average: Newest checkpoints averaged, as in `Translator.from_run`.

    Raises:
        UserError: If there are no weights.
    """
    # Keras, which a server of an export does without.
    from keras_transformer.runs import averaging

    run = RunConfig.load(run_dir)
    names = averaging.checkpoint_names(run_dir, average)
    is_demo = run.corpus == DEMO
    return ModelCard(
        run.source_lang,
        run.target_lang,
        run.preset,
        _public_name(run.corpus),
        parameters,
        weights=_weights(run_dir, average, names),
        scores=_scores(run_dir, names),
        subject=demo.SUBJECT if is_demo else "",
        examples=demo.EXAMPLES[run.source_lang] if is_demo else (),
    )


def _scores(
    run_dir: pathlib.Path, names: list[str]
) -> tuple[dict[str, Any], ...]:
    """The scores that the weights of these checkpoints have got."""
    found = []
    for path in sorted((run_dir / layout.EVALUATION).glob("*.json")):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            if report["checkpoints"] != names:
                continue
            test_set = {
                "corpus": _public_name(report["corpus"]),
                "split": report["split"],
            }
            found += [
                {**test_set, **score} for score in report["scores"].values()
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning(
                "Skipping %s, which cannot be read (%s).",
                path,
                type(error).__name__,
            )
    return tuple(found)


def _weights(
    run_dir: pathlib.Path, average: int | None, names: list[str]
) -> str:
    """Tell these weights from others: their checkpoints and a checksum."""
    from keras_transformer.runs import averaging
    from keras_transformer.runs.checkpoints import WEIGHTS_FILE
    from keras_transformer.runs.result import final_result

    path = run_dir / layout.FINAL_FILE
    is_final = averaging.is_slim(run_dir) or final_result(run_dir)
    if average is not None or not is_final:
        path = run_dir / layout.CHECKPOINTS / names[-1] / WEIGHTS_FILE
    return " ".join([*names, f"{files.checksum(path):08x}"])


def _public_name(corpus: str) -> str:
    """Name a corpus to strangers: a folder by its last part alone."""
    if corpus.startswith(TFDS_PREFIX):
        return corpus
    return os.path.basename(os.path.normpath(corpus))
