"""The entry from Python: train a run, open it, use it.

`python train.py` and the verbs of the command line call this module.
"""

import dataclasses
import inspect
import itertools
import logging
import os
import pathlib
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keras_transformer.config import (
    ENSEMBLE_MEANS,
    SETTINGS,
    Search,
    SettingError,
    UserError,
)
from keras_transformer.data.corpora import Source, open_corpus
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import devices, exhaustion, files
from keras_transformer.runs import averaging, history, layout
from keras_transformer.runs.averaging import Chosen
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.runs.vocabulary import load_vocabulary
from keras_transformer.settings import whole_number, with_settings
from keras_transformer.training.estimates import parameters
from keras_transformer.training.request import (
    SESSION_SETTINGS,
    Asked,
    open_text,
    understand,
)
from keras_transformer.translation import lexicon, model_card
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.translator import Translator

if TYPE_CHECKING:
    import matplotlib.figure

    from keras_transformer.exporting.serving_kit import ServingKit
    from keras_transformer.translation.evaluation import Evaluation
    from keras_transformer.translation.significance import Texts

logger = logging.getLogger("keras_transformer")

_LESS_MEMORY = "end other programs that need it, or lower `beam_size`"


class Run:
    """A run directory: translate, evaluate, plot and export what it trained.

    Args:
        run_dir: The run directory, as `train` or `train.py` wrote it.
        ensemble: Other runs of the same vocabulary. Their models search
            together with this one, with the settings of this one.
        ensemble_mean: What the models average at each step,
            `"probabilities"` or `"log-probabilities"`.

    Attributes:
        path: The run directory.
        ensemble: The directories of the other runs.

    Raises:
        UserError: If one is not a run directory.
        SettingError: If `ensemble` is not a list.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike,
        ensemble: Sequence[str | os.PathLike] = (),
        ensemble_mean: str = ENSEMBLE_MEANS[0],
    ) -> None:
        if isinstance(ensemble, str | os.PathLike):
            expected = "a list of run directories"
            raise SettingError("ensemble", expected, ensemble)
        self.path = pathlib.Path(run_dir)
        self.ensemble = tuple(map(pathlib.Path, ensemble))
        self._ensemble_mean = ensemble_mean
        self._corpus: Corpus | None = None
        for path in (self.path, *self.ensemble):
            RunConfig.load(path)  # Raises if it is not a run.

    @property
    def config(self) -> RunConfig:
        """The configuration in `config.json`."""
        return RunConfig.load(self.path)

    def history(self) -> list[dict[str, float]]:
        """Read the rows of the learning curve, oldest first.

        `pandas.DataFrame(run.history())` makes a table of them, with a row for
        each step that was measured: `step`, `minutes` and the measurements.
        """
        return history.read_history(self.path)

    def plot(self) -> "matplotlib.figure.Figure":
        """Draw loss and validation BLEU over the minutes of training."""
        return history.plot(self.path)

    def translator(
        self,
        average: int | None = None,
        precision: str = "float32",
        shortlist: str | os.PathLike | None = None,
    ) -> Translator:
        """Load the weights to translate with.

        Args:
            average: How many of the newest checkpoints to average; None for
                the weights that validated best at the end of the training.
            precision: Type to multiply in, `"float32"`, `"bfloat16"` or
                `"int8"`, as in `Translator.freeze`. The translator does not
                see later training of its model.
            shortlist: A file that `shortlist` wrote: the only target pieces
                to score for each source, which is faster.

        Raises:
            UserError: As in `Translator.from_run`.
        """
        return Translator.from_run(
            self.path,
            average,
            precision,
            shortlist,
            self.ensemble,
            self._ensemble_mean,
        )

    @exhaustion.explained(_LESS_MEMORY)
    def shortlist(
        self,
        output: str | os.PathLike,
        *,
        common: int = 200,
        best: int = 50,
        pairs: int = 50_000,
    ) -> pathlib.Path:
        """Learn from the training text what each source piece may become.

        A search with the file scores only the candidates of its sources. The
        file is a vocabulary map of CTranslate2.

        Args:
            output: The file to write.
            common: Most frequent target pieces, candidates of every source.
            best: Most candidates of a source piece.
            pairs: Most training pairs to learn from, the first ones.

        Returns:
            The path of the file.

        Raises:
            UserError: If the run has no corpus, or a number is below 1.
            JobError: If the disk is full.
        """
        run, tokenizer = self.config, load_vocabulary(self.path)
        text = self._open_corpus(None).pairs(run.train_split, "train_split")
        first = itertools.islice(text, whole_number("pairs", pairs))
        candidates = lexicon.learn(first, tokenizer, common, best)
        lexicon.write(output, candidates, tokenizer)
        return pathlib.Path(output)

    @exhaustion.explained(_LESS_MEMORY)
    def evaluate(
        self,
        split: str = "test",
        corpus: Source | None = None,
        *,
        reference: "Texts | Sequence[Texts] | None" = None,
        hypotheses: "Texts | None" = None,
        average: int | None = None,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        max_extra_length: int | None = None,
        lowercase: bool = False,
        tokenize: str | None = None,
        against: str | os.PathLike | None = None,
        json_file: str | os.PathLike | None = None,
        parallel: int | None = None,
        precision: str = "float32",
        shortlist: str | os.PathLike | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> "Evaluation":
        """Translate a split and score it, or score given translations of it.

        No source is left out. One longer than 256 tokens, or than the run's
        `max_length` if that is more, is cut there, and the log names it.

        The translations go to `evaluation/SPLIT.LANG.txt` of the run directory
        and all figures to `evaluation/SPLIT.json`. They replace those of an
        earlier evaluation. Those of an ensemble go to `SPLIT.ensemble.LANG.txt`
        and `SPLIT.ensemble.json`. Given translations leave both as they are.

        Args:
            split: Name of the split.
            corpus: Another corpus than the run's, as in `open_corpus`.
            reference: What to score against instead of the corpus's
                references: a file with a text on each line, or several files
                or lists of texts, one for each reference.
            hypotheses: Translations to score, as a file or a list of texts.
                Nothing is translated then, so arguments that only a search
                uses are refused.
            average: As in `translator`.
            beam_size: Live hypotheses per sentence; the run's if not given,
                as with the next two.
            length_penalty: The exponent alpha.
            max_extra_length: Most tokens of a translation beyond its source's.
            lowercase: Whether to score lower-cased text too.
            tokenize: SacreBLEU's tokeniser for BLEU, such as `13a` or `char`;
                by default that of the target language.
            against: The system to compare with: another run directory that was
                evaluated on the same split, or a file of its translations, one
                a line.
            json_file: Another file for the figures.
            parallel: Batches searched at the same time, as in
                `Translator.n_best`.
            precision: As in `translator`.
            shortlist: As in `translator`.
            progress: Called with the number of sentences done and in all.

        Returns:
            The scores, each with its signature, and the translations. With
            `against`, `comparisons` has sacreBLEU's paired tests.

        Raises:
            UserError: If there is no such split, or no weights, or nothing to
                compare with.
            JobError: If memory or disk is full.
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
        if isinstance(reference, str | os.PathLike):
            reference = [reference]
        if hypotheses is not None:
            useless = dict(given, average=average, parallel=parallel)
            useless |= dict(shortlist=shortlist, ensemble=self.ensemble or None)
            useless["precision"] = None if precision == "float32" else precision
            for name, value in useless.items():
                if value is not None:
                    raise UserError(
                        f"Expected no `{name}` beside `hypotheses`, for which "
                        "nothing is searched; leave one of them out."
                    )
        search = dataclasses.replace(run.search, **given).kept_by_run()
        opened = self._open_corpus(corpus)
        pairs = list(opened.pairs(split, "split"))
        from keras_transformer.translation import evaluation, significance

        compared = None
        if against is not None:
            compared = significance.read_translations(
                against, opened.name, split, run.target_lang, len(pairs)
            )
        references = evaluation.references_of(split, opened, pairs, reference)
        text: dict[str, Any] = {
            "corpus": opened.name,
            "split": split,
            "source_lang": run.source_lang,
            "target_lang": run.target_lang,
        }
        if reference is not None:
            text["reference"] = [significance.name_of(x) for x in reference]
        if hypotheses is not None:
            lines = significance.given_texts(
                hypotheses, "hypotheses", split, len(pairs)
            )
            text["hypotheses"] = significance.name_of(hypotheses)
            if against is not None:
                text["against"] = os.fspath(against)
            with evaluation.written(
                None, split, run.target_lang, json_file
            ) as write:
                result = evaluation.score(
                    lines,
                    references,
                    run.target_lang,
                    lowercase,
                    tokenize,
                    compared,
                )
                write(result, text)
            return result
        translator = self.translator(average, precision, shortlist)
        own, *_ = translator.weights
        report = {
            **text,
            **search,
            "precision": precision,
            "ema": own.ema,
            "checkpoints": [*own.checkpoints],
            **self._ensemble_report(translator.weights),
        }
        for what, file in (("shortlist", shortlist), ("against", against)):
            if file:
                report[what] = os.fspath(file)
        name = f"{split}.ensemble" if self.ensemble else split
        with evaluation.written(
            self.path, name, run.target_lang, json_file
        ) as write:
            result = evaluation.evaluate(
                translator,
                pairs,
                run.target_lang,
                **search,
                max_source_length=evaluation.longest_source(
                    run.training.max_length
                ),
                references=references,
                lowercase=lowercase,
                tokenize=tokenize,
                against=compared,
                parallel=parallel,
                progress=progress,
            )
            write(result, report)
        return result

    def _open_corpus(self, corpus: Source | None) -> Corpus:
        """Open a corpus, or the run's own."""
        run = self.config
        if corpus is not None:
            return open_corpus(corpus, run.source_lang, run.target_lang)
        if self._corpus:
            return self._corpus
        if run.is_imported:
            raise UserError(
                f"{self.path} was imported and has no corpus of its own; give "
                "one with `corpus`."
            )
        return open_text(run, run.corpus)

    @exhaustion.explained(_LESS_MEMORY)
    def export(
        self,
        output: str | os.PathLike,
        version: int = 1,
        options: Search | None = None,
        *,
        average: int | None = None,
        kit: "ServingKit | None" = None,
        quantization: str = "float32",
        portable: bool = False,
        shortlist: str | os.PathLike | None = None,
    ) -> pathlib.Path:
        """Write a SavedModel of strings; as `keras_transformer.export`.

        Args:
            output: Folder of all versions.
            version: Number of this version.
            options: The search of its signatures; by default the run's.
                `translator().options(max_source_length=512)` changes only
                that limit.
            average: As in `translator`.
            kit: The files for TensorFlow Serving.
            quantization: Type to store the weights in: `"float32"`,
                `"float16"`, `"bfloat16"` or `"int8"`.
            portable: Whether every TensorFlow can load it.
            shortlist: As in `translator`; it becomes a part of the export.

        Returns:
            The path of the SavedModel, `output/version`.

        Raises:
            UserError: If it cannot be written, or there are no weights.
            JobError: If memory or disk is full.
            ValueError: If `quantization` is not one of the four.
        """
        from keras_transformer.exporting import saved_model
        from keras_transformer.exporting.serving_kit import ServingKit

        # Refuse an impossible export before the model is loaded.
        files.version_path(output, version)
        kit = kit or ServingKit.plan(output)
        translator = self.translator(average, shortlist=shortlist)
        logger.info("Tracing the signatures of %s", self.path)
        return saved_model.export(
            translator,
            output,
            version,
            options,
            kit,
            quantization,
            self._card(
                translator.weights, options, quantization, bool(shortlist)
            ),
            portable,
        )

    def keep_exported(self, output: str | os.PathLike) -> None:
        """Export the run as it is now, unless that has been done.

        If the weights or the search of the run differ from those of the highest
        version, write a version one above it. It replaces the one that it
        differs from in its weights alone.

        Args:
            output: Folder of all versions.

        Raises:
            UserError: As in `export`.
        """
        newest = max(files.versions(output), default=0)
        now = self.card()
        path = pathlib.Path(output) / str(newest)
        kept = ModelCard.load(path) if newest else None
        search = self.config.search.kept_by_run()
        is_alike = kept is not None and all(
            kept.search.get(name) == search[name] for name in search
        )
        if kept is None or not is_alike or kept.weights != now.weights:
            self.export(output, newest + 1)
            if kept and is_alike and kept.quantization == now.quantization:
                shutil.rmtree(path)
        elif kept.scores != now.scores:  # The run was evaluated since.
            dataclasses.replace(kept, scores=now.scores).save(path)

    def card(
        self,
        average: int | None = None,
        search: Search | None = None,
        quantization: str = "float32",
        shortlist: bool = False,
    ) -> ModelCard:
        """Make the card that an export carries.

        It has the scores of those evaluations that used the same weights and
        settings as the export.

        Args:
            average: As in `translator`.
            search: How the export searches; by default as the run.
            quantization: As in `export`.
            shortlist: Whether the export has a shortlist.

        Raises:
            UserError: If there are no weights.
        """
        run_dirs = [self.path, *self.ensemble]
        weights = [averaging.choose(path, average) for path in run_dirs]
        return self._card(weights, search, quantization, shortlist)

    def _card(
        self,
        weights: Sequence[Chosen],
        search: Search | None,
        quantization: str,
        shortlist: bool,
    ) -> ModelCard:
        run_dirs = [self.path, *self.ensemble]
        in_16_bits = quantization == "float16"  # Stored so, nothing else.
        return model_card.make_card(
            weights,
            sum(parameters(RunConfig.load(path).model) for path in run_dirs),
            {
                **(search or self.config.search).kept_by_run(),
                "precision": "float32" if in_16_bits else quantization,
                "shortlist": shortlist,
                **self._ensemble_report(weights),
            },
        )

    def _ensemble_report(self, weights: Sequence[Chosen]) -> dict[str, Any]:
        """Return what a report says of the models beside this run's."""
        if not self.ensemble:
            return {}
        return {
            "ensemble": {
                os.fspath(path): [*chosen.checkpoints]
                for path, chosen in zip(self.ensemble, weights[1:], strict=True)
            },
            "ensemble_mean": self._ensemble_mean,
        }

    def __repr__(self) -> str:
        others = ""
        if self.ensemble:
            others = f", ensemble={[*map(str, self.ensemble)]}"
        return f"Run({str(self.path)!r}{others})"

    def _repr_html_(self) -> str:
        """Show the run in a notebook: a few lines, and its curve."""
        return history.as_html(self.path, parameters(self.config.model))


@with_settings([*SESSION_SETTINGS, *SETTINGS.values()])
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
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> Run:
    """Train a whole run in this process, or resume it.

    `train("runs/mine")`, or the same call again, resumes from the last
    checkpoint: the training ends with the weights of an uninterrupted one, and
    reads no text, which may be gone. On a finished run it does nothing.
    Settings that you leave out, or give as None, come from the preset, or from
    the run if it has begun. The call sets the seeds of Python, NumPy and
    TensorFlow, so a process trains one run at a time.

    Args:
        run_dir: The run directory; `runs/PRESET` if not given.
        corpus: As in `open_corpus`. A run that has begun goes on with the text
            that it began with, and warns if this one is another.
        preset: One of `PRESETS`; if not given, `demo` for that corpus, `tiny`
            for one of fewer than 100,000 pairs, or else `base`.
        recipe: Name of a recipe of this package, such as `small-corpus`; your
            other arguments override it.
        source_lang: Language code of the source side; `en` if not given.
        target_lang: Language code of the target side; `de` if not given.
        train_split: Split to train on; `train` if not given.
        validation_split: Split to validate on; `val` if not given.
        tokenizer: A vocabulary made elsewhere, or its file; learnt from the
            corpus if not given.
        symbols: Strings that stay one piece in a new vocabulary, such as tags
            and brackets, or a file with one on each line.
        init_from: Directory of another run; this one starts with its weights
            and vocabulary.
        callbacks: Keras callbacks; a training is one epoch.
        **settings: Those of this session, and those that override the preset's.

    Returns:
        The run.

    Raises:
        UserError: If the request makes no sense, or does not fit the run.
        JobError: If the training cannot go on.
        KeyboardInterrupt: After Ctrl-C and a checkpoint, or a second Ctrl-C.
        SystemExit: After SIGTERM and a checkpoint.
    """
    arguments = dict(locals())
    return carry_out(understand(**arguments.pop("settings"), **arguments))


def carry_out(asked: Asked) -> Run:
    """Train as `understand` has understood it; raises what `train` does."""
    run, run_dir = asked.run, asked.run_dir
    from keras_transformer.training import loop

    with log_shown(), exhaustion.explained(asked.session.less_memory, run_dir):
        if "preset" not in asked.given and not layout.has_begun(run_dir):
            logger.info(
                "Taking the preset %s, which fits the text; name another one "
                "as `preset`.",
                run.preset,
            )
        devices.let_memory_grow()
        devices.log_devices()
        stopped = loop.train(asked)
    if stopped == signal.SIGINT:
        raise KeyboardInterrupt
    if stopped:
        raise SystemExit(0)
    trained = Run(run_dir)
    # Pairs in memory cannot be opened again.
    trained._corpus = asked.open_text() if asked.corpus else None
    return trained


def dry_run(run_dir: str | os.PathLike | None = None, **arguments: Any) -> str:
    """Tell what a training would cost: memory, time and FLOPs.

    It reads the corpus once, and tells what to clean in it: repeated pairs,
    equal sides, unlike lengths, pairs that are dropped. The costs come from the
    first 20,000 pairs and a few steps. It writes nothing to the run directory.

    Example:
        kt.dry_run("runs/mine", corpus="my-text", recipe="small-corpus")

    Args:
        run_dir: As in `train`.
        **arguments: All arguments of `train`.

    Returns:
        A table, as text that a notebook shows as it is.

    Raises:
        UserError: If the training could not begin, or takes several machines.
    """
    return estimate(understand(run_dir=run_dir, **arguments))


def estimate(asked: Asked) -> str:
    """Tell the costs of what `understand` has understood, as `dry_run`."""
    from keras_transformer.training import dry_run as costs

    with log_shown(), exhaustion.explained(asked.session.less_memory):
        devices.let_memory_grow()
        return costs.dry_run(asked)


# Every argument completes on Tab.
dry_run.__signature__ = inspect.signature(train).replace(  # type: ignore
    return_annotation=str
)


@contextmanager
def log_shown() -> Iterator[None]:
    """Show the log unless the caller has configured logging."""
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
