"""One way in from Python: train a run, open it, use it.

What `python train.py` and the verbs of the command line do is here, in this
process; they are thin doors to it.
"""

import dataclasses
import inspect
import logging
import os
import pathlib
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from keras_transformer.config import (
    RUN_SEARCH,
    SETTINGS,
    Search,
    SettingError,
    UserError,
)
from keras_transformer.data.corpora import Source, open_corpus
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import exhaustion
from keras_transformer.runs import averaging, layout
from keras_transformer.runs.history import read_history
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.settings import with_settings
from keras_transformer.training.request import (
    Session,
    default_run_dir,
    open_text,
    request,
)
from keras_transformer.training.request import recipe as read_recipe
from keras_transformer.translation import model_card
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.translator import Translator

if TYPE_CHECKING:
    import matplotlib.figure

    from keras_transformer.exporting.serving_kit import ServingKit
    from keras_transformer.translation.evaluation import Evaluation

logger = logging.getLogger("keras_transformer")


class Run:
    """A run directory: what was trained, and all that can be done with it.

    Args:
        run_dir: The run directory, as `train` or `train.py` wrote it.

    Attributes:
        path: The run directory.

    Raises:
        UserError: If it is not a run directory.
    """

    def __init__(self, run_dir: str | os.PathLike) -> None:
        self.path = pathlib.Path(run_dir)
        self._corpus: Corpus | None = None
        _ = self.config  # Raises unless it is one.

    @property
    def config(self) -> RunConfig:
        """The configuration in `config.json`."""
        return RunConfig.load(self.path)

    def history(self) -> list[dict[str, float]]:
        """The rows of the learning curve, oldest first.

        `pandas.DataFrame(run.history())` makes a table of them: a row for each
        step at which something was measured, with `step`, `minutes` and that.
        """
        return read_history(self.path)

    def plot(self) -> "matplotlib.figure.Figure":
        """Draw loss and validation BLEU over the minutes of training."""
        from keras_transformer.runs import history

        return history.plot(self.path)

    def translator(
        self, average: int | None = None, precision: str = "float32"
    ) -> Translator:
        """Load the weights to translate with.

        Args:
            average: Newest checkpoints to average; None for what validation
                found better when the training ended.
            precision: What to compute in, `"float32"` or `"bfloat16"`, as
                `Translator.in_bfloat16`.

        Raises:
            UserError: As from `Translator.from_run`.
        """
        return Translator.from_run(self.path, average, precision)

    def evaluate(
        self,
        split: str = "test",
        corpus: Source | None = None,
        *,
        average: int | None = None,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        max_extra_length: int | None = None,
        lowercase: bool = False,
        json_file: str | os.PathLike | None = None,
        parallel: int | None = None,
        precision: str = "float32",
        progress: Callable[[int, int], None] | None = None,
    ) -> "Evaluation":
        """Translate a split and score it.

        No source is left out, but one of more than 256 tokens, or more than
        any training pair has, is cut there, and the log names it.

        The translations go to `evaluation/SPLIT.LANG.txt` of the run directory
        and all figures to `evaluation/SPLIT.json`, in place of those of an
        earlier evaluation.

        Args:
            split: Which split.
            corpus: Of another corpus than the run's; as for `open_corpus`.
            average: As in `translator`.
            beam_size: Live hypotheses per sentence; the run's if not given,
                like the next two.
            length_penalty: The exponent alpha.
            max_extra_length: Most tokens of a translation beyond its source's.
            lowercase: Whether to score lower-cased text too.
            json_file: Gets the figures too.
            parallel: Batches searched at the same time, as in
                `Translator.n_best`.
            precision: As in `translator`.
            progress: Called with the numbers of sentences done and of all.

        Returns:
            The scores, each with its signature, and the translations.

        Raises:
            UserError: If there is no such split, or no weights.
        """
        if not isinstance(split, str):
            expected = "the name of a split; pairs are given as `corpus`"
            raise SettingError("split", expected, split)
        run = self.config
        given: dict[str, Any] = dict(
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_extra_length=max_extra_length,
        )
        given = {name: x for name, x in given.items() if x is not None}
        search = {
            name: getattr(dataclasses.replace(run.search, **given), name)
            for name in RUN_SEARCH
        }
        opened = self._open_corpus(corpus)
        pairs = list(opened.pairs(split, "split"))
        from keras_transformer.translation import evaluation

        names = averaging.checkpoint_names(self.path, average)  # There are any.
        with evaluation.written(
            self.path, split, run.target_lang, json_file
        ) as write:
            result = evaluation.evaluate(
                self.translator(average, precision),
                pairs,
                run.target_lang,
                **search,
                max_source_length=evaluation.longest_source(
                    run.training.max_length
                ),
                references=opened.references and opened.references(split),
                lowercase=lowercase,
                parallel=parallel,
                progress=progress,
            )
            write(
                result,
                {
                    "corpus": opened.name,
                    "split": split,
                    "source_lang": run.source_lang,
                    "target_lang": run.target_lang,
                    **search,
                    "precision": precision,
                    "ema": self._ema(average),
                    "checkpoints": names,
                },
            )
        return result

    def _open_corpus(self, corpus: Source | None) -> Corpus:
        """Open a corpus, or the run's own."""
        run = self.config
        if corpus is None and self._corpus:
            return self._corpus
        if corpus is None and run.is_imported:
            raise UserError(
                f"{self.path} was imported and has no corpus of its own; give "
                "one with `corpus`."
            )
        if corpus is None:
            return open_text(run, run.corpus)
        return open_corpus(corpus, run.source_lang, run.target_lang)

    def export(
        self,
        output: str | os.PathLike,
        version: int = 1,
        options: Search | None = None,
        *,
        average: int | None = None,
        kit: "ServingKit | None" = None,
        quantization: str = "float32",
    ) -> pathlib.Path:
        """Write a SavedModel of strings; as `keras_transformer.export`.

        Args:
            output: Folder of all versions.
            version: Number of this version.
            options: How its signatures search; by default as the run says,
                and `translator().options(max_source_length=512)` says
                otherwise of that alone.
            average: As in `translator`.
            kit: The files for TensorFlow Serving.
            quantization: How the weights are stored: `"float32"`, `"float16"`
                or `"bfloat16"`.

        Returns:
            The path of the SavedModel, `output/version`.

        Raises:
            UserError: If it cannot be written, or there are no weights.
            ValueError: If `quantization` is not one of the three.
        """
        from keras_transformer.exporting import saved_model
        from keras_transformer.exporting.serving_kit import ServingKit

        # An export that cannot succeed ends before the model is loaded.
        saved_model.version_path(output, version)
        kit = kit or ServingKit.plan(output)
        translator = self.translator(average)
        logger.info("Tracing the signatures of %s", self.path)
        return saved_model.export(
            translator,
            output,
            version,
            options,
            kit,
            quantization,
            self.card(average),
        )

    def keep_exported(self, output: str | os.PathLike) -> None:
        """Export the run as it is now, unless that is done already.

        It is not where the weights or the search of the run are others than
        those of the highest version; the new one is one above it.

        Args:
            output: Folder of all versions.

        Raises:
            UserError: As from `export`.
        """
        versions = [
            int(path.name)
            for path in pathlib.Path(output).glob("*")
            if path.name.isdecimal() and path.name.isascii()
        ]
        newest = max(versions, default=0)
        now = self.card()
        path = pathlib.Path(output) / str(newest)
        kept = ModelCard.load(path) if newest else None
        search = self.config.search
        if (
            kept is None
            or kept.weights != now.weights
            or any(
                kept.search.get(name) != getattr(search, name)
                for name in RUN_SEARCH
            )
        ):
            self.export(output, newest + 1)
        elif kept.scores != now.scores:  # It has been evaluated since.
            dataclasses.replace(kept, scores=now.scores).save(path)

    def card(self, average: int | None = None) -> ModelCard:
        """Make the card that an export carries.

        Args:
            average: As in `translator`.

        Raises:
            UserError: If there are no weights.
        """
        from keras_transformer.training.estimates import parameters

        return model_card.make_card(
            self.path, parameters(self.config.model), average
        )

    def _ema(self, average: int | None) -> float | None:
        """The factor of the moving average that `translator` takes, if any."""
        from keras_transformer.runs.result import LAST, final_result

        result = final_result(self.path)
        is_last = result is not None and result.better == LAST
        return None if average or is_last else self.config.training.ema

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """Show the run in a notebook: a few lines, and its curve."""
        from keras_transformer.runs import notebook
        from keras_transformer.training.estimates import parameters

        return notebook.as_html(self.path, parameters(self.config.model))


@with_settings(SETTINGS.values())
def train(
    run_dir: str | os.PathLike | None = None,
    *,
    corpus: Source | None = None,
    preset: str | None = None,
    recipe: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    tokenizer: Tokenizer | str | os.PathLike | None = None,
    symbols: str | os.PathLike | Sequence[str] | None = None,
    init_from: str | os.PathLike | None = None,
    minutes: float | None = None,
    strategy: str = "auto",
    accumulate: int = 1,
    xla: str = "auto",
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> Run:
    """Train a whole run in this process, or go on with it.

    The same call again resumes at the last checkpoint and ends with the same
    weights as one that nothing interrupted; on a finished run it does nothing.
    A setting that is not given, or None, comes from the preset. The seeds of
    Python, NumPy and TensorFlow are set: a process trains one run at a time.

    Args:
        run_dir: Where everything goes; `runs/PRESET` if not given.
        corpus: As for `open_corpus`. Where it lies may change between calls,
            its text may not.
        preset: One of `PRESETS`; not given, `demo` for that corpus, `tiny`
            for one of fewer than 100,000 pairs, or else `base`.
        recipe: Name of a recipe of this package, such as `small-corpus`; what
            is given beside it wins.
        source_lang: Language code of the source side; `en` if not given.
        target_lang: Language code of the target side; `de` if not given.
        train_split: Split to train on; `train` if not given.
        validation_split: Split to validate on; `val` if not given.
        tokenizer: A vocabulary made elsewhere, or its file; learnt from the
            corpus if not given.
        symbols: Strings that stay one piece in a vocabulary that is learnt,
            such as tags and brackets, or a file with one a line.
        init_from: Directory of another run whose weights and vocabulary this
            one starts with.
        minutes: Minutes of training in all; None for no limit.
        strategy: `auto`, `none`, `mirrored` or `multiworker`.
        accumulate: Micro-batches of a batch, at least 1.
        xla: `auto`, `on` or `off`.
        callbacks: Keras callbacks; a training is one epoch.
        **settings: Those of the preset that are to be others.

    Returns:
        The run.

    Raises:
        UserError: If the request makes no sense, or not with what is there.
        JobError: If the training cannot go on.
        KeyboardInterrupt: After Ctrl-C and a checkpoint, or a second Ctrl-C.
        SystemExit: After SIGTERM and a checkpoint.
    """
    asked = _Asked.understand(
        recipe,
        run_dir=run_dir,
        corpus=corpus,
        preset=preset,
        source_lang=source_lang,
        target_lang=target_lang,
        train_split=train_split,
        validation_split=validation_split,
        tokenizer=tokenizer,
        symbols=symbols,
        init_from=init_from,
        minutes=minutes,
        strategy=strategy,
        accumulate=accumulate,
        xla=xla,
        callbacks=callbacks,
        **settings,
    )
    run, path = asked.run, asked.path
    from keras_transformer.machine import devices
    from keras_transformer.training import loop

    with _log_shown(), exhaustion.explained(asked.session.less_memory, path):
        if "preset" not in asked.given and not layout.has_begun(path):
            logger.info(
                "Taking the preset %s, which fits the text; name another one "
                "as `preset`.",
                run.preset,
            )
        devices.let_memory_grow()
        devices.log_devices()
        stopped = loop.train(run, path, asked.session, asked.corpus, tokenizer)
    if stopped == signal.SIGINT:
        raise KeyboardInterrupt
    if stopped:
        raise SystemExit(0)
    trained = Run(path)
    # Pairs in memory can be opened nowhere else.
    trained._corpus = asked.corpus
    return trained


def dry_run(run_dir: str | os.PathLike | None = None, **arguments: Any) -> str:
    """Tell what a training would cost: memory, time and FLOPs.

    Reads the head of the corpus and takes a few steps; nothing is written
    where the run would go.

    Example:
        kt.dry_run("runs/mine", corpus="my-text", recipe="small-corpus")

    Args:
        run_dir: As for `train`.
        **arguments: As for `train`, all of them.

    Returns:
        A table, as text that a notebook shows as it is.

    Raises:
        UserError: If the training could not begin, or takes several machines.
    """
    asked = _Asked.understand(run_dir=run_dir, **arguments)
    from keras_transformer.machine import devices
    from keras_transformer.training import dry_run as costs

    with _log_shown(), exhaustion.explained(asked.session.less_memory):
        devices.let_memory_grow()
        return costs.dry_run(
            asked.run,
            asked.path,
            asked.session,
            asked.corpus,
            arguments.get("tokenizer"),
        )


# Every argument completes on Tab.
dry_run.__signature__ = inspect.signature(train).replace(  # type: ignore
    return_annotation=str
)


class _Asked(NamedTuple):
    """What `train` and `dry_run` are asked for, understood.

    Attributes:
        given: All arguments that were given, those of a recipe included.
        session: How this session trains.
        run: The configuration.
        corpus: The corpus, opened.
        path: The run directory.
    """

    given: dict[str, Any]
    session: Session
    run: RunConfig
    corpus: Corpus
    path: pathlib.Path

    @classmethod
    def understand(
        cls, recipe: str | None = None, **arguments: Any
    ) -> "_Asked":
        """Check arguments as far as that needs no TensorFlow."""
        of_session = {
            field.name: arguments.pop(field.name)
            for field in dataclasses.fields(Session)
            if field.name in arguments
        }
        session = Session(**of_session)
        given = {name: x for name, x in arguments.items() if x is not None}
        if recipe is not None:
            given = {**read_recipe(recipe), **given}
        run, corpus = request(**given)
        path = given.get("run_dir") or default_run_dir(run.preset)
        return cls(given, session, run, corpus, pathlib.Path(path))


@contextmanager
def _log_shown() -> Iterator[None]:
    """Let the log be seen where nobody has said what becomes of it."""
    package = logging.getLogger("keras_transformer")
    level, handler = package.level, None
    if not package.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
        )
        package.addHandler(handler)
    if level == logging.NOTSET and not package.isEnabledFor(logging.INFO):
        package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.setLevel(level)
        if handler:
            package.removeHandler(handler)
