"""The entry from Python to a run: train it, open it, use it."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.config import (
    SEARCH_PRECISIONS,
    Search,
    UserError,
    logger,
)
from keras_transformer.data import corpora
from keras_transformer.runs.layout import EVALUATION, RECORDS
from keras_transformer.runs.run_config import RunConfig, load_vocabulary
from keras_transformer.runs.weights import Runs, Weights
from keras_transformer.settings import of_kind, whole_number

if TYPE_CHECKING:  # Verbs open a run before they load TensorFlow.
    import matplotlib.figure

    from keras_transformer.data.corpora import Corpus, Source
    from keras_transformer.translation.evaluation import Evaluation
    from keras_transformer.translation.model_card import ModelCard
    from keras_transformer.translation.translator import Translator


def train(
    run_dir: str | os.PathLike | None = None,
    *,
    corpus: "Source | None" = None,
    preset: str | None = None,
    recipe: str | Sequence[str] | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    tokenizer: Any = None,
    symbols: str | os.PathLike | Sequence[str] | None = None,
    init_from: str | os.PathLike | None = None,
    minutes: float | None = None,
    strategy: str | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> "Run":
    """Train a whole run in this process, or resume it.

    `train("runs/mine")`, or the same call again, resumes from the last
    checkpoint: the training ends with the weights of an uninterrupted one, and
    reads no text, which may be gone. On a finished run it does nothing.
    Settings that you leave out, or give as None, come from the preset, or from
    the run if it has begun. The call sets the seeds of Python, NumPy and
    TensorFlow, so a process trains one run at a time.

    Args:
        run_dir: The run directory; `runs/mine` if not given.
        corpus: Text to learn from, as in `open_corpus`; several are mixed.
        preset: One of `PRESETS`; if not given, `demo` for that corpus, `tiny`
            for fewer than 100,000 pairs, or else `base`.
        recipe: Name of a recipe of this package, such as `"small-corpus"`, or
            several, which your other arguments override.
        source_lang: Language of the source side; `"en"` if not given.
        target_lang: Language of the target side; `"de"` if not given.
        train_split: Split to train on; `"train"` if not given.
        validation_split: Split to validate on; `"val"` if not given.
        tokenizer: A `Tokenizer`, or the file of a sentencepiece model, instead
            of a new vocabulary.
        symbols: Strings, or a file with one a line, that stay one piece in the
            vocabulary.
        init_from: Start with the weights and the vocabulary of another run.
            What is not given fits the size of the text. With a `tokenizer`,
            pieces of both vocabularies keep their rows, others start at the
            mean.
        minutes: Minutes of training in all, over all sessions.
        strategy: Where replicas run: `"none"` (one device), `"mirrored"` (all
            GPUs of this machine), `"multiworker"` (all workers in TF_CONFIG)
            or, if not given, `"auto"`.
        callbacks: Keras callbacks, called after the package's own, on the
            first worker alone. A training is one epoch.
        **settings: Fields of `ModelConfig`, of `TrainingConfig` and of
            `Search` in `keras_transformer.config`, which override the
            preset's, such as `steps=8_000`; `train --help` tells of each.

    Returns:
        The run.

    Raises:
        UserError: If the request makes no sense, or does not fit the run.
        JobError: If the training cannot go on.
        KeyboardInterrupt: After Ctrl-C and a checkpoint, or a second Ctrl-C.
        SystemExit: After SIGTERM and a checkpoint.
    """
    given = locals()
    from keras_transformer.training.request import log_shown, understand

    session = understand(**given.pop("settings"), **given)
    from keras_transformer.training import loop

    with log_shown():
        loop.train(session)
    trained = Run(session.run_dir)
    trained._corpus = session.text if session.corpus else None
    return trained


class Run:
    """A run directory: translate, evaluate, plot and export what it trained.

    Args:
        run_dir: The run directory.
        ensemble: Other runs of the same vocabulary. Their models search
            together with this one, with the settings of this one.
        average: How many of the newest checkpoints to average; None for the
            weights that validated best at the end of the training.
        precision: Type to multiply in, `"float32"`, `"bfloat16"` or `"int8"`,
            as in `Translator.freeze`.
        shortlist: A file that `shortlist` wrote: the only target pieces to
            score for each source, which is faster.

    Attributes:
        path: The run directory.
        runs: This run and the others, each with its configuration as it was
            when it was opened.
        weights: Which of their weights to use.
    """

    _corpus: "Corpus | None" = None  # Pairs in memory cannot be opened again.

    def __init__(
        self,
        run_dir: str | os.PathLike,
        ensemble: Sequence[str | os.PathLike] = (),
        *,
        average: int | None = None,
        precision: str = SEARCH_PRECISIONS[0],
        shortlist: str | os.PathLike | None = None,
    ) -> None:
        self.path = of_kind("run_dir", pathlib.Path, run_dir)
        given: Any = average, ensemble, precision, shortlist
        self.weights = Weights(*given)  # It makes paths of names.
        paths = self.path, *self.weights.ensemble
        self.runs: Runs = [(path, RunConfig.load(path)) for path in paths]

    @property
    def config(self) -> RunConfig:
        """The configuration in `config.json`."""
        return self.runs[0][1]

    def history(self) -> list[dict[str, float]]:
        """Read the rows of the learning curve, oldest first.

        `pandas.DataFrame(run.history())` makes a table of them, with a row for
        each step that was measured: `step`, `minutes` and the measurements.
        """
        from keras_transformer.runs import history

        return history.read_history(self.path)

    def plot(self) -> "matplotlib.figure.Figure":
        """Draw loss and validation BLEU over the minutes of training."""
        from keras_transformer.runs import history

        return history.plot(self.path)

    def translator(
        self,
        average: int | None = None,
        precision: str | None = None,
        shortlist: str | os.PathLike | None = None,
    ) -> "Translator":
        """Load the weights to translate with.

        The translator does not see later training. Its arguments stand before
        those that the run was opened with.
        """
        from keras_transformer.translation.translator import load

        asked = dict(average=average, precision=precision, shortlist=shortlist)
        given: dict = {k: x for k, x in asked.items() if x is not None}
        return load(self.runs, dataclasses.replace(self.weights, **given))

    def shortlist(
        self,
        output: str | os.PathLike,
        corpus: "Source | None" = None,
        *,
        pairs: int = 50_000,
    ) -> pathlib.Path:
        """Learn from the training text what each source piece may become.

        A search with the file, a vocabulary map of CTranslate2, scores only the
        candidates of its sources.

        Args:
            output: The file to write.
            corpus: Other text to learn from, as in `open_corpus`; by default
                the run's token records, or its text if they are gone.
            pairs: Most training pairs to learn from, the first ones.
        """
        from keras_transformer.data.records import TokenisedCorpus
        from keras_transformer.translation import lexicon

        run = self.config
        tokenizer = load_vocabulary(self.path, run)
        most = whole_number("pairs", pairs)
        kept = self.path / RECORDS / run.train_split
        if corpus is None and kept.exists():
            records = TokenisedCorpus.load(kept)
        else:
            opened = self._open_corpus(corpus)
            text = opened.pairs(run.train_split, "train_split")
            text, limit = itertools.islice(text, most), run.training.max_length
            records = TokenisedCorpus.in_memory(text, tokenizer, limit)
        candidates = lexicon.learn(records, tokenizer, most)
        lexicon.write(output, candidates, tokenizer)
        return pathlib.Path(output)

    def evaluate(
        self,
        split: str = "test",
        corpus: "Source | None" = None,
        *,
        average: int | None = None,
        beam_size: int | None = None,
        search: Search | None = None,
        lowercase: bool = False,
        tokenize: str | None = None,
        parallel: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> "Evaluation":
        """Translate a split and score it.

        A source of more than 256 tokens, or than the run's `max_length` if that
        is more, is cut there, and the log names it.

        `source.txt`, `reference.txt`, `translation.txt` and `scores.json` go to
        `evaluation/NAME` of the run directory, in place of earlier ones. NAME
        is the split, `SPLIT.ensemble` for an ensemble, with the name of the
        corpus before it if that is not the run's.

        Args:
            split: Name of the split.
            corpus: Another corpus than the run's, as in `open_corpus`.
            average: As in `translator`.
            beam_size: As in `Search`; by default that of `search`.
            search: How to search, by default as the run. `n_best` and
                `max_source_length` are not used.
            lowercase: Whether to score lower-cased, tokenised text too.
            tokenize: SacreBLEU's tokeniser for BLEU, such as `13a` or `char`;
                by default that of the target language.
            parallel: Batches searched at the same time, as in
                `Translator.search_texts`.
            progress: Called with the number of sentences done and in all.

        Returns:
            The scores, each with its signature, and the translations.
        """
        from keras_transformer.translation import evaluation

        run = self.config
        asked: dict = {"n_best": 1, "max_source_length": run.longest_source}
        if beam_size is not None:
            asked["beam_size"] = beam_size
        search = dataclasses.replace(search or run.search, **asked)
        opened = self._open_corpus(corpus)
        name = corpora.absolute_name(opened.name)
        is_own = corpus is None or name == run.corpus != corpora.MEMORY
        pairs = [*opened.pairs(split, "split")]
        about = {
            "corpus": opened.name,
            "split": split,
            "source_lang": run.source_lang,
            "target_lang": run.target_lang,
            "is_own_corpus": is_own,
        }
        validated = opened.real_name(run.validation_split)
        if is_own and opened.real_name(split) == validated:
            said = "The training has chosen its weights on %s"
            logger.warning(f"{said}, whose scores flatter them.", split)
        if is_own and split != run.splits[0]:
            evaluation.warn_of_shared(opened, split, run.splits[0])
        # A tokeniser that cannot be had shows before the work.
        tokenize = evaluation.bleu_tokenizer(opened.target_lang, tokenize)
        name = evaluation.folder_name(
            split, None if is_own else name, bool(self.weights.ensemble)
        )
        translator = self.translator(average)
        from keras_transformer.translation.text_batches import Batching

        batching = Batching(parallel=parallel, progress=progress)
        folder = self.path / EVALUATION / name
        how = search, folder, batching, lowercase, tokenize
        return evaluation.evaluate(translator, pairs, about, *how)

    def _open_corpus(self, corpus: "Source | None") -> "Corpus":
        """Open a corpus, or the run's own."""
        run = self.config
        if corpus is not None:
            languages = run.source_lang, run.target_lang
            return corpora.open_corpus(corpus, *languages)
        if self._corpus:
            return self._corpus
        if run.is_imported:
            raise UserError(
                f"{self.path} was imported and has no corpus of its own; give "
                "one with `corpus`."
            )
        from keras_transformer.training.request import open_text

        return open_text(run, run.corpus)

    def export(
        self,
        output: str | os.PathLike,
        version: int = 1,
        search: Search | None = None,
        *,
        average: int | None = None,
        precision: str | None = None,
        portable: bool = False,
    ) -> pathlib.Path:
        """Write a SavedModel of strings, as `keras_transformer.export`.

        Args:
            output: Folder of all versions.
            version: Number of this version.
            search: That of its signatures; by default the run's.
                `translator().search_with(max_source_length=512)` changes only
                that limit.
            average: As in `translator`.
            precision: Type of the weights; by default that which the run was
                opened with.
            portable: Whether every TensorFlow can load it.

        Returns:
            The path of the SavedModel, `output/version`.
        """
        from keras_transformer.exporting.serving_kit import Export

        how = Export(version, search, precision, portable)
        how.path(output)  # A wrong one shows before the weights are loaded.
        translator = self.translator(average)
        from keras_transformer.exporting import saved_model

        logger.info("Tracing the signatures of %s", self.path)
        weights = translator.weights
        if precision:
            weights = dataclasses.replace(weights, precision=precision)
        card = self.card(weights, search)
        return saved_model.export(translator, output, **vars(how), card=card)

    def card(
        self, weights: Weights | None = None, search: Search | None = None
    ) -> "ModelCard":
        """Make the card that an export carries.

        It has the scores of those evaluations that used the same `weights`, by
        default those to load now, and searched as `search`, by default the
        run's.
        """
        from keras_transformer.translation.model_card import make_card

        return make_card(self.runs, weights or self.chosen(), search)

    def chosen(self) -> Weights:
        """Choose the weights to translate with, without loading them."""
        from keras_transformer.runs.averaging import choose

        average = self.weights.average
        chosen = [choose(path, run, average) for path, run in self.runs]
        return dataclasses.replace(self.weights, chosen=tuple(chosen))

    def __repr__(self) -> str:
        others = ""
        if self.weights.ensemble:
            others = f", ensemble={[*map(str, self.weights.ensemble)]}"
        return f"Run({str(self.path)!r}{others})"
