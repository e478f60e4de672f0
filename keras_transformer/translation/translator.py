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
    MAX_SOURCE_LENGTH,
    SEARCH_PRECISIONS,
    Search,
    SettingError,
    UserError,
)
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.runs.vocabulary import load_vocabulary
from keras_transformer.settings import meant, whole_number
from keras_transformer.translation import sentences
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
from keras_transformer.translation.text_model import TextModel, traced
from keras_transformer.viewing.explanation import Explanation

logger = logging.getLogger("keras_transformer")

_IDS = tf.TensorSpec([None, None], tf.int32)
_SEEDS = tf.TensorSpec([None, 2], tf.int32)


class Hypothesis(NamedTuple):
    """A translation and its length-normalised log-probability in nats."""

    text: str
    score: float


class Translator:
    """A trained model with its tokenizer.

    A text of nothing but space has the one translation "" with score 0,
    whatever the prefix.

    Args:
        model: The model; its vocabulary is the tokenizer's.
        tokenizer: The tokenizer.
        search: How to search where nobody says otherwise.
        source_lang: Language code of the texts, by which sentences are split.

    Attributes:
        text_model: The same inside a graph, of which exports are made.
        search: As the argument, like `source_lang`.

    Raises:
        ValueError: If the two differ in vocabulary size.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        search: Search | None = None,
        source_lang: str = "en",
    ) -> None:
        self.text_model = TextModel(model, tokenizer)
        self.search = search or Search()
        self.source_lang = source_lang
        self._is_warned = False  # Of texts of several sentences.
        self._pairs = GivenPairs(self.text_model)
        self._explainer = Explainer(self.text_model)
        # One graph for each set of options, for batches of any shape. Ids
        # only: a graph that holds the tokenizer would be of no use any more
        # once `tf.random.set_seed` has unloaded its vocabulary.
        self._search_graphs: dict[tuple, Any] = {}

    @property
    def model(self) -> Transformer:
        """The model."""
        return self.text_model.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self.text_model.tokenizer

    @classmethod
    def from_run(
        cls,
        run_dir: str | os.PathLike,
        average: int | None = None,
        precision: str = "float32",
    ) -> "Translator":
        """Load what a training wrote, to search as the run's recipe says.

        Args:
            run_dir: The run directory.
            average: Newest checkpoints whose weights are averaged; None for
                what the run asks for, as in `averaging.load_model`.
            precision: What to compute in, `"float32"` or `"bfloat16"`, as
                `in_bfloat16`.

        Raises:
            UserError: If `run_dir` is no run directory with a checkpoint, its
                vocabulary is not that of its model, or the precision is
                another.
        """
        if precision not in SEARCH_PRECISIONS:
            raise UserError(
                f"Expected a precision of {' or '.join(SEARCH_PRECISIONS)}, "
                f"received {precision!r}."
            )
        devices.let_memory_grow()  # A training may run beside.
        model = averaging.load_model(run_dir, average)
        tokenizer = load_vocabulary(run_dir)
        run = RunConfig.load(run_dir)
        try:
            found = cls(model, tokenizer, run.search, run.source_lang)
        except ValueError:
            raise UserError(
                f"Expected {model.vocab_size} pieces in {run_dir}/"
                f"{TOKENIZER_FILE} as in the model, found "
                f"{tokenizer.vocab_size}; restore the file of this run."
            ) from None
        if precision == "bfloat16":
            devices.warn_of_slow_bfloat16()
            return found.in_bfloat16()
        return found

    def in_bfloat16(self) -> "Translator":
        """The same with weights rounded to bfloat16, to compute in it.

        Many sentences take half the time where the processor multiplies
        bfloat16 (AMX, AVX512-BF16). Statistics of layer norms, every softmax,
        log-probabilities and scores stay float32; logits have the 8 bits that
        a product in bfloat16 gives.

        Returns:
            A translator with a model of its own.
        """
        settings = {**self.model.get_config(), "dtype": "bfloat16"}
        model = Transformer.from_config(settings)
        model.set_weights(self.model.get_weights())
        return Translator(model, self.tokenizer, self.search, self.source_lang)

    def options(self, **given: Any) -> Search:
        """The options of a search: those given, or else of `search`.

        Raises:
            SettingError: If a setting makes no sense.
            UserError: If a name is unknown.
        """
        known = [field.name for field in dataclasses.fields(Search)]
        for name in given.keys() - known:
            # What `translate` has besides is as near as a setting.
            also = ("prefixes", "split_sentences", "batch_tokens", "parallel")
            raise UserError(
                f"Expected a setting of a search, received {name}"
                f"{meant(name, (*known, *also))}"
            )
        return dataclasses.replace(self.search, **given)

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
            n_best: Hypotheses per text; not given, one, as plain `str`.
            prefixes: As in `n_best`, like `batch_tokens` and `progress`.
            split_sentences: Whether each sentence of a text is translated on
                its own, as by a model that has learnt from single ones; the
                space between them stays. Not given, none is, and the log says
                once where a text looks like several.
            batch_tokens: Budget of a batch.
            parallel: Batches searched at the same time, as in `n_best`.
            progress: Called with the numbers of texts done and of all texts.
            **options: The other fields of `Search`, such as
                `beam_size=4`; what is not given is as in `search`.

        Returns:
            One translation for each text, in order; with `n_best` a list of
            hypotheses, best first, which is shorter where fewer exist.

        Raises:
            ValueError: If an option is out of range, or as from `n_best`.
            UserError: If sentences are split beside `n_best` or `prefixes`, or
                sentencex is missing.
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
                self.n_best, texts, self.source_lang, options=search, **how
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
        """Translate as `translate`, and tell which texts were cut.

        Args:
            texts: Source texts.
            options: How to search.
            prefixes: How each translation begins, "" for no matter how. The
                space at its ends is dropped, and the search may go on inside
                its last word. It counts in the score and towards the limit,
                where it is cut too.
            batch_tokens: Budget of a batch: its texts times the tokens of its
                longest possible translation.
            parallel: Batches searched at the same time, each with memory of
                its own; by default what `parallel.searches` says, or 1 on a
                GPU. Fastest where `TF_NUM_INTRAOP_THREADS=1` is in the
                environment before TensorFlow's first operator, as the command
                line has it. An error ends the call once the others are done.
            progress: Called with the numbers of texts done and of all texts.

        Returns:
            The hypotheses of each text, best first, and whether each text was
            cut after `max_source_length` tokens, bool `(len(texts),)`.

        Raises:
            SettingError: If `options` is no `Search`, or `batch_tokens` or
                `parallel` no number from 1 on.
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
            self.tokenizer.tokenize(encoded), options.max_source_length
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
        waiting = np.flatnonzero(lengths > 1)  # Blank ones are answered.
        done = len(texts) - len(waiting)
        parallel = self._searches(parallel, len(waiting))
        costs = np.maximum(lengths, limits)
        planned = batches(waiting, lengths, costs, batch_tokens, parallel)
        if not planned:
            return found, truncated.numpy()
        # Traced in this thread: another has not Keras's settings.
        search = self._search_graph(options, tuple(inputs))

        def search_rows(rows: np.ndarray) -> BeamResult:
            return search(
                *(dense(tf.gather(tensor, rows)) for tensor in inputs.values())
            )

        with contextlib.closing(
            results(search_rows, planned, parallel)
        ) as searched:
            for rows, result in searched:
                translations = self.tokenizer.detokenize(result.ids).numpy()
                for row, texts_of_row, scores in zip(
                    rows, translations, result.scores.numpy(), strict=True
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
        """Translate a text, and show what it looked at and how it was found.

        The translations and their scores are those of `translate`.

        Args:
            text: A source text.
            n_best: Hypotheses returned; by default 4, or as many as beams
                where those are fewer.
            prefix: How the translation begins.
            **options: The other fields of `Search`, such as
                `beam_size=8`, but `sampling`. `max_source_length` is 256
                where it is not given.

        Returns:
            What a notebook shows, `save_html` writes and NumPy reads.

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
            targets: A translation of each. What is scored is the pieces into
                which the tokenizer splits it: a search may have written the
                same text in others, with another score.
            length_penalty: The exponent alpha, at least 0; that of `search` if
                not given.
            batch_tokens: Budget of a batch: its pairs times the tokens of its
                longest text.

        Returns:
            Length-normalised log-probabilities in nats, in order.

        Raises:
            ValueError: If there are not as many targets as sources.
        """
        if length_penalty is None:
            length_penalty = self.search.length_penalty
        return self._pairs.score(
            sources,
            targets,
            length_penalty=length_penalty,
            batch_tokens=batch_tokens,
        )

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
            targets: A translation of each, such as the search has found.
            max_source_length: Tokens after which a source is cut.
            batch_tokens: As in `score`.

        Returns:
            The pieces and the attention of every layer and head, in order.

        Raises:
            ValueError: If there are not as many targets as sources.
        """
        return self._pairs.attention(
            sources,
            targets,
            max_source_length=max_source_length,
            batch_tokens=batch_tokens,
        )

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_source_length: int | None = None,
        batch_tokens: int = 2_048,
    ) -> list[list[tuple[int, int]]]:
        """The source word that each target word looks at most.

        Words are what `str.split` finds. Attention is the mean over all layers
        and heads, added up over the pieces of the two words.

        Args:
            sources: As in `attention`, like all that follow.
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
            max_source_length=max_source_length,
            batch_tokens=batch_tokens,
        )

    def _searches(self, asked: int | None, texts: int) -> int:
        """Choose how many searches run at the same time."""
        on_gpu = bool(tf.config.list_physical_devices("GPU"))
        if asked is None and (on_gpu or not texts):
            return 1
        return devices.searches(
            asked,
            devices.cores(),
            self.model.model_config.d_model,
            devices.threads(),
            texts,
        )

    def _search_graph(self, options: Search, inputs: tuple) -> Any:
        """One graph for each set of options, for batches of any shape."""
        if options.sampling:
            # An input: another seed needs no other graph.
            sampling = dataclasses.replace(options.sampling, seed=None)
            options = dataclasses.replace(options, sampling=sampling)
        if (options, inputs) not in self._search_graphs:

            def search(source: tf.Tensor, *others: tf.Tensor) -> BeamResult:
                named = dict(zip(inputs[1:], others, strict=True))
                return self.text_model.search_ids(source, options, **named)

            self._search_graphs[options, inputs] = traced(
                search,
                *(_SEEDS if name == "seeds" else _IDS for name in inputs),
            )
        return self._search_graphs[options, inputs]


def _hypotheses(texts: np.ndarray, scores: np.ndarray) -> list[Hypothesis]:
    """One sentence's, without the places that hold none."""
    return [
        Hypothesis(text.decode("utf-8", "replace"), float(score))
        for text, score in zip(texts, scores, strict=True)
        if score > -np.inf
    ] or [Hypothesis("", -np.inf)]
