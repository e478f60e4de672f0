"""Text to text in Python: any number of texts, batched by length."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import tensorflow as tf

from keras_transformer.config import (
    ENSEMBLE_MEANS,
    MAX_SOURCE_LENGTH,
    Search,
    SettingError,
    UserError,
)
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.frozen_weights import FrozenWeights
from keras_transformer.decoding.prefix_steps import Model
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.runs.averaging import Chosen
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.settings import meant, whole_number
from keras_transformer.translation import lexicon, loading, sentences
from keras_transformer.translation.alignment import Attention
from keras_transformer.translation.explaining import Explainer
from keras_transformer.translation.scoring import GivenPairs
from keras_transformer.translation.text_batches import (
    as_bytes,
    batches,
    check_pairs,
    cut,
    dense,
    numbered,
    results,
)
from keras_transformer.translation.text_model import (
    IDS,
    PREFIX,
    TextModel,
    traced,
)
from keras_transformer.viewing.explanation import Explanation

logger = logging.getLogger("keras_transformer")

_SEEDS = tf.TensorSpec([None, 2], tf.int32)


class Hypothesis(NamedTuple):
    """A translation and its length-normalised log-probability in nats."""

    text: str
    score: float


class Translator:
    """A trained model, or several that search together, with its tokenizer.

    A text of nothing but whitespace has one translation, "" with score 0,
    whatever the prefix.

    Args:
        model: The model, or an ensemble, of the tokenizer's vocabulary. Any
            model serves that maps int32 ids `((source, target_in))` to logits
            `(B, T, V)`. One that is no `Transformer`, or changes its decoder
            and not `decode_step`, is searched by whole prefixes.
        tokenizer: The tokenizer, or another in a `TokenizerAdapter`.
        search: The default settings of a search.
        source_lang: Language code of the texts, used to split sentences.
        target_lang: Language code of the translations, used to join them.
        frozen: Weights of the model that no longer change, as `freeze` makes
            them; by default translations follow any training of the model.
        shortlist: The only target pieces to score for a source; by default
            all. Sampling ignores it.
        weights: What each model was loaded with, if it comes from a run.

    Attributes:
        text_model: The same translation inside a graph, as exports hold it.
        tokenizer: The argument; so are `search`, both languages and `weights`.

    Raises:
        ValueError: If model and tokenizer differ in vocabulary size.
        UserError: If the model does not return logits, or the ids of a
            tokenizer made elsewhere are unknown.
    """

    def __init__(
        self,
        model: Model | Ensemble,
        tokenizer: Any,
        search: Search | None = None,
        source_lang: str = "en",
        target_lang: str = "de",
        frozen: FrozenWeights | None = None,
        shortlist: Shortlist | None = None,
        weights: Sequence[Chosen] = (),
    ) -> None:
        self.text_model = TextModel(model, tokenizer, frozen, shortlist)
        self.tokenizer = self.text_model.tokenizer
        self.search = search or Search()
        self.source_lang = source_lang
        self.target_lang = target_lang
        self.weights = tuple(weights)
        self._is_warned = False  # About texts of several sentences.
        self._pairs = GivenPairs(self.text_model)
        self._explainer = Explainer(self.text_model)
        # One graph for each set of options, for batches of any shape. Ids
        # only: a graph that holds the tokenizer becomes useless once
        # `tf.random.set_seed` has unloaded its vocabulary.
        self._search_graphs: dict[tuple, Any] = {}

    @property
    def model(self) -> Any:
        """The model.

        Raises:
            UserError: If there are several.
        """
        return self.text_model.ensemble.only

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators in use that not every TensorFlow has."""
        frozen = self.text_model.frozen
        return frozen.operators if frozen else ()

    @property
    def instructions(self) -> tuple[str, ...]:
        """Names of the instructions in use that not every processor has."""
        frozen = self.text_model.frozen
        return frozen.instructions if frozen else ()

    @classmethod
    def from_run(
        cls,
        run_dir: str | os.PathLike,
        average: int | None = None,
        precision: str = "float32",
        shortlist: str | os.PathLike | None = None,
        ensemble: Sequence[str | os.PathLike] = (),
        ensemble_mean: str = ENSEMBLE_MEANS[0],
    ) -> "Translator":
        """Load a trained run, to search as its recipe says.

        Args:
            run_dir: The run directory.
            average: How many of the newest checkpoints to average; None for
                what the run asks for, as in `averaging.choose`.
            precision: What to compute in, as in `freeze`.
            shortlist: A file made by `keras-transformer shortlist`, with the
                only target pieces to score for each source; by default all.
            ensemble: Other runs of the same vocabulary, whose models search
                together with this one.
            ensemble_mean: What the models average at each step,
                `"probabilities"` or `"log-probabilities"`.

        Raises:
            UserError: As from `loading.load`, `freeze` and `lexicon.read`.
        """
        loading.check_precision(precision)
        devices.let_memory_grow()  # A training may run on the same GPU.
        models, tokenizer, weights = loading.load(
            [run_dir, *ensemble], average, ensemble_mean
        )
        run = RunConfig.load(run_dir)
        words = None
        if shortlist is not None:
            words = lexicon.read(shortlist, tokenizer)
        return cls(
            *(models, tokenizer, run.search),
            *(run.source_lang, run.target_lang),
            shortlist=words,
            weights=weights,
        ).freeze(precision)

    def freeze(
        self, precision: str = "float32", portable: bool = False
    ) -> "Translator":
        """Make a faster translator from the current weights.

        Later training of the model does not change it. In float32 its logits
        differ from the model's by 1e-5 at most. In bfloat16 weights and
        activations are rounded to 16 bits; statistics of layer norms, every
        softmax and all scores stay float32. In int8 each column of a weight
        matrix has a scale, and so has each row of activations; only products
        with weights are rounded.

        Args:
            precision: What to multiply in: `"float32"`; `"bfloat16"`, for
                processors that multiply it (AMX, AVX512-BF16); `"int8"`, for
                those with VNNI.
            portable: Whether to use only operators that every TensorFlow has.
                It always does so if there is a GPU, or if TensorFlow lacks the
                other operators, which are for x86-64 processors.

        Raises:
            UserError: If `precision` is none of these, or int8 is not
                available.
        """
        models, frozen = loading.freeze(
            self.text_model.ensemble, precision, portable
        )
        return Translator(
            *(models, self.tokenizer, self.search),
            *(self.source_lang, self.target_lang),
            frozen=frozen,
            shortlist=self.text_model.shortlist,
            weights=self.weights,
        )

    def options(self, **given: Any) -> Search:
        """Return the options of a search: those given, then those of `search`.

        Raises:
            SettingError: If a setting makes no sense.
            UserError: If a name is unknown.
        """
        return search_with(self.search, **given)

    @overload
    def translate(
        self,
        texts: Sequence[str],
        *,
        n_best: None = None,
        prefixes: Sequence[str] | None = None,
        split_sentences: bool | None = None,
        batch_tokens: int = 8_192,
        parallel: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        texts: Sequence[str],
        *,
        n_best: int,
        prefixes: Sequence[str] | None = None,
        split_sentences: bool | None = None,
        batch_tokens: int = 8_192,
        parallel: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]: ...

    def translate(
        self,
        texts: Sequence[str],
        *,
        n_best: int | None = None,
        prefixes: Sequence[str] | None = None,
        split_sentences: bool | None = None,
        batch_tokens: int = 8_192,
        parallel: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> list[str] | list[list[Hypothesis]]:
        """Translate any number of texts, batched by length.

        Args:
            texts: Source texts.
            n_best: Hypotheses per text; by default one, as plain `str`.
            prefixes: As in the method `n_best`.
            split_sentences: Whether to translate each sentence of a text on
                its own, for a model that has learnt from single sentences;
                between them stands what the target language puts there, and
                line ends stay. A tag such as `>>fra<<` at the beginning of a
                text goes before each. By default texts stay
                whole, and the log says once if a text looks like several
                sentences.
            batch_tokens: Budget of a batch, as in the method `n_best`.
            parallel: Batches searched at the same time, as in `n_best`.
            progress: Called with the number of texts done and that of all.
            **options: Other fields of `Search`, such as `beam_size=4`; those
                left out are taken from the attribute `search`.

        Returns:
            One translation for each text, in order; with `n_best` a list of
            hypotheses, best first and each text once, which is shorter
            where fewer exist.

        Raises:
            ValueError: If an option is out of range, or as in `n_best`.
            UserError: If `split_sentences` is combined with `n_best` or
                `prefixes`, or sentencex is missing.
        """
        search = self.options(n_best=1 if n_best is None else n_best, **options)
        texts = [text.decode() for text in as_bytes("texts", texts)]
        how: dict[str, Any] = dict(
            batch_tokens=batch_tokens, parallel=parallel, progress=progress
        )
        if split_sentences:
            sentences.check_alone(
                n_best=n_best is not None, prefixes=prefixes is not None
            )
            whole, cuts = sentences.translate(
                self.n_best,
                texts,
                self.source_lang,
                self.target_lang,
                options=search,
                **how,
            )
            truncated = np.array(cuts)
        else:
            if split_sentences is None and not self._is_warned:
                self._is_warned = sentences.warn_of_several(texts)
            found, truncated = self.n_best(
                texts, search, prefixes=prefixes, **how
            )
            whole = [hypotheses[0].text for hypotheses in found]
        if np.any(truncated):
            logger.warning(
                "Cut %d of %d texts after %d tokens: number %s.",
                np.sum(truncated),
                len(texts),
                search.max_source_length,
                numbered(truncated),
            )
        return whole if n_best is None else found

    def n_best(
        self,
        texts: Sequence[str],
        options: Search,
        *,
        prefixes: Sequence[str] | None = None,
        batch_tokens: int = 8_192,
        parallel: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[list[list[Hypothesis]], np.ndarray]:
        """Translate as `translate` does, and tell which texts were cut.

        Args:
            texts: Source texts.
            options: How to search.
            prefixes: The beginning of each translation, "" for none. It may
                end inside a word; a space at its end says that the word is
                whole.
                A prefix counts in the score and towards the length limit, and
                is cut if it is longer than that.
            batch_tokens: Budget of a batch: its texts times the tokens of its
                longest possible translation.
            parallel: Batches searched at the same time, each with memory of
                its own; by default what `devices.searches` chooses, or 1 on a
                GPU. It is fastest with `TF_NUM_INTRAOP_THREADS=1` in the
                environment before TensorFlow's first operator, as on the
                command line. An error ends the call once the other batches
                are done.
            progress: Called with the number of texts done and that of all.

        Returns:
            The hypotheses of each text, best first, and whether each text was
            cut after `max_source_length` tokens, bool `(len(texts),)`.

        Raises:
            SettingError: If `options` is no `Search`, or `batch_tokens` or
                `parallel` is not a number from 1 on.
            ValueError: If `texts` is one `str`, or there are not as many
                prefixes as texts.
        """
        encoded = as_bytes("texts", texts)
        batch_tokens = whole_number("batch_tokens", batch_tokens)
        if not isinstance(options, Search):
            raise SettingError(
                "options", "a Search, as `Translator.options` makes", options
            )
        sources, truncated = cut(
            self.tokenizer.tokenize(encoded),
            options.max_source_length,
            self.tokenizer.ids.blank,
        )
        lengths = sources.row_lengths().numpy()
        limits = options.max_length or lengths + options.max_extra_length
        inputs = {"source": sources}
        if prefixes is not None:
            check_pairs(texts=texts, prefixes=prefixes)
            inputs["prefix"] = self.text_model.prefix_ids(
                as_bytes("prefixes", prefixes),
                int(np.max(limits, initial=0)),
            )
        if options.sampling:
            inputs["seeds"] = self.text_model.seeds(
                tf.constant(encoded), options
            )
        found = [[Hypothesis("", 0.0)] for _ in texts]
        special = self.tokenizer.ids
        # Blank ones are answered.
        waiting = np.flatnonzero(lengths > len(special.blank))
        done = len(texts) - len(waiting)
        parallel = self._searches(parallel, len(waiting))
        costs = np.maximum(lengths, limits)
        planned = batches(waiting, lengths, costs, batch_tokens, parallel)
        if not planned:
            return found, truncated.numpy()
        # Traced in this thread, since others lack Keras's settings.
        search = self._search_graph(options, tuple(inputs))

        def search_rows(rows: np.ndarray) -> BeamResult:
            return search(
                *(
                    dense(tf.gather(tensor, rows), special.pad)
                    for tensor in inputs.values()
                )
            )

        with contextlib.closing(
            results(search_rows, planned, parallel)
        ) as searched:
            for rows, result in searched:
                texts_of_rows = self.text_model.texts_of(result, options)
                for row, texts_of_row, scores in zip(
                    rows, *(x.numpy() for x in texts_of_rows), strict=True
                ):
                    found[row] = _hypotheses(texts_of_row, scores)
                done += len(rows)
                if progress:
                    progress(done, len(texts))
        return found, truncated.numpy()

    def explain(
        self,
        text: str,
        *,
        n_best: int | None = None,
        prefix: str | None = None,
        **options: Any,
    ) -> Explanation:
        """Translate a text, and show its attention and its search.

        The translations and their scores are those of `translate`.

        Args:
            text: A source text.
            n_best: Hypotheses returned; by default 4, or the number of beams
                if that is less.
            prefix: How the translation begins.
            **options: The other fields of `Search`, such as
                `beam_size=8`, except `sampling`. `max_source_length` is 256
                by default.

        Returns:
            An explanation, which a notebook shows, `save_html` writes and
            NumPy reads.

        Raises:
            ValueError: If `text` is no `str`, or an option is out of range.
        """
        options.setdefault("max_source_length", MAX_SOURCE_LENGTH)
        if n_best is None:
            n_best = min(4, options.get("beam_size", self.search.beam_size))
        search = self.options(n_best=n_best, **options)
        explanation = self._explainer.explain(text, search, prefix)
        if explanation.truncated:
            logger.warning(
                "Cut the text after %d tokens.", search.max_source_length
            )
        return explanation

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        length_penalty: float | None = None,
        batch_tokens: int = 2_048,
    ) -> list[float]:
        """Score given translations as the search scores its own.

        Args:
            sources: Source texts; none is cut.
            targets: A translation of each. The score is that of the pieces
                into which the tokenizer splits it: a search may have written
                the same text in other pieces, with another score.
            length_penalty: The exponent alpha, at least 0; by default that of
                `search`.
            batch_tokens: Budget of a batch: its pairs times the tokens of its
                longest text.

        Returns:
            Length-normalised log-probabilities in nats, in order.

        Raises:
            ValueError: If there are not as many targets as sources.
        """
        if length_penalty is None:
            length_penalty = self.search.length_penalty
        return self._pairs.score(sources, targets, length_penalty, batch_tokens)

    def attention(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_source_length: int | None = None,
        batch_tokens: int = 2_048,
    ) -> list[Attention]:
        """Compute what each target piece looks at in the source.

        Args:
            sources: Source texts.
            targets: A translation of each, such as the search found.
            max_source_length: Tokens after which a source is cut.
            batch_tokens: As in `score`.

        Returns:
            The pieces and the attention of every layer and head, in order.

        Raises:
            ValueError: If there are not as many targets as sources.
        """
        return self._pairs.attention(
            sources, targets, max_source_length, batch_tokens
        )

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_source_length: int | None = None,
        batch_tokens: int = 2_048,
    ) -> list[list[tuple[int, int]]]:
        """Find the source word that each target word attends to most.

        Words are what `keras_transformer.data.words.words_of` finds: what
        `str.split` does where a language has spaces. Attention is the mean over
        all layers and heads, added up over the pieces of the two words.

        Args:
            sources: As in `attention`, like all other arguments.
            targets: A translation of each.
            max_source_length: Tokens after which a source is cut.
            batch_tokens: Budget of a batch.

        Returns:
            For each pair of texts the pairs (source word, target word),
            counted from 0, in the order of the target.

        Raises:
            ValueError: If there are not as many targets as sources.
        """
        return self._pairs.align(
            sources,
            targets,
            max_source_length,
            batch_tokens,
            (self.source_lang, self.target_lang),
        )

    def _searches(self, asked: int | None, texts: int) -> int:
        """Choose how many searches run at the same time."""
        on_gpu = bool(tf.config.list_physical_devices("GPU"))
        if asked is None and (on_gpu or not texts):
            return 1
        models = self.text_model.ensemble.models
        return devices.searches(
            asked,
            devices.cores(),
            max(
                model.model_config.d_model
                if isinstance(model, Transformer)
                else devices.TOTAL_WIDTH  # One alone.
                for model in models
            ),
            devices.threads(),
            texts,
        )

    def _search_graph(self, options: Search, inputs: tuple) -> Any:
        """Trace one graph for each set of options, for any batch shape."""
        if options.sampling:
            # The seed is an input: a new one needs no new graph.
            sampling = dataclasses.replace(options.sampling, seed=None)
            options = dataclasses.replace(options, sampling=sampling)
        if (options, inputs) not in self._search_graphs:

            def search(source: tf.Tensor, *others: tf.Tensor) -> BeamResult:
                named = dict(zip(inputs[1:], others, strict=True))
                return self.text_model.search_ids(source, options, **named)

            self._search_graphs[options, inputs] = traced(
                search,
                *(
                    {"seeds": _SEEDS, "prefix": PREFIX}.get(x, IDS)
                    for x in inputs
                ),
            )
        return self._search_graphs[options, inputs]


def search_with(search: Search, **given: Any) -> Search:
    """Override settings of a search, as `Translator.options` does."""
    known = [field.name for field in dataclasses.fields(Search)]
    for name in given.keys() - known:
        # A slip may also mean another argument of `translate`.
        also = ("prefixes", "split_sentences", "batch_tokens", "parallel")
        raise UserError(
            f"Expected a setting of a search, received {name}"
            f"{meant(name, (*known, *also))}"
        )
    return dataclasses.replace(search, **given)


def _hypotheses(texts: np.ndarray, scores: np.ndarray) -> list[Hypothesis]:
    """Collect one sentence's hypotheses, without empty places."""
    return [
        Hypothesis(text.decode("utf-8", "replace"), float(score))
        for text, score in zip(texts, scores, strict=True)
        if score > -np.inf
    ] or [Hypothesis("", -np.inf)]
