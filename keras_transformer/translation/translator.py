"""Text to text: any number of texts, batched by length.

Axes: B batch, S source length, T target length, P prefix length, N hypotheses,
L layers, H heads.
"""

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.config import (
    MAX_SOURCE_LENGTH,
    Search,
    SettingError,
    UserError,
    logger,
)
from keras_transformer.data.adapter import TokenizerAdapter
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding import own_models
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.frozen_weights import FrozenWeights, freeze
from keras_transformer.decoding.id_model import IdModel, Model
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.run_config import load_vocabulary
from keras_transformer.runs.weights import Runs, Weights
from keras_transformer.settings import nearest, of_kind
from keras_transformer.translation import explaining, lexicon, sentences
from keras_transformer.translation.alignment import align_pairs, read_pairs
from keras_transformer.translation.terms import marker
from keras_transformer.translation.text_batches import (
    IDS,
    SEEDS,
    Batching,
    Hypothesis,
    as_pairs,
    as_texts,
    batches,
    check_lengths,
    hypotheses,
    only_signs,
    search_inputs,
    texts_of,
    warn_of_cuts,
    warn_of_several,
    with_choice,
)
from keras_transformer.viewing.explanation import Explanation

_BATCHING = Batching()
_MOST_GRAPHS = 8


class Translator:
    """A trained model, or several that search together, with its tokenizer.

    A blank text has one translation, "" with score 0, whatever the prefix;
    `translate` says which others stay as they are.

    Args:
        model: The model, or a list of several that search together, of the
            tokenizer's vocabulary. Any model serves that maps int32 ids
            `((source, target_in))` to logits `(B, T, V)`. One that is no
            `Transformer`, or changes its decoder and not `decode_step`, is
            searched by whole prefixes.
        tokenizer: The tokenizer, or another in a `TokenizerAdapter`.
        search: The default settings of a search.
        source_lang: Language code of the texts, used to split sentences.
        target_lang: Language code of the translations, used to join them.
        frozen: Weights of the model that no longer change, as `freeze` makes
            them; by default translations follow any training of the model.
        shortlist: The only target pieces to score for a source; by default
            all. Sampling ignores it.
        weights: What was loaded, if the model comes from a run.

    Attributes:
        id_model: The same from ids to ids, inside a graph.
        search: As given; so are both languages and `weights`.
    """

    def __init__(
        self,
        model: Model | Sequence[Model],
        tokenizer: Any,
        search: Search | None = None,
        source_lang: str = "en",
        target_lang: str = "de",
        frozen: FrozenWeights | None = None,
        shortlist: Shortlist | None = None,
        weights: Weights | None = None,
    ) -> None:
        if not isinstance(tokenizer, Tokenizer | TokenizerAdapter):
            tokenizer = TokenizerAdapter(tokenizer)
        self._tokenizer, self._process = tokenizer, os.getpid()
        self.search: Search = of_kind("search", Search, search or Search())
        self.source_lang = source_lang
        self.target_lang = target_lang
        self.weights = weights or Weights()
        self.id_model = IdModel(model, frozen, shortlist, tokenizer.ids)
        if not tokenizer.fits(self.id_model.vocab_size):
            raise ValueError(
                "`model` and `tokenizer` must share one vocabulary. Received: "
                f"{self.id_model.vocab_size} and {tokenizer.vocab_size} pieces"
            )
        for each in self.id_model.models:
            if not isinstance(each, Transformer):
                own_models.warn_of_padding(each, tokenizer.ids)
        # Of ids only: a graph that holds the tokenizer becomes useless once
        # `tf.random.set_seed` has unloaded its vocabulary.
        self._graphs: dict[Any, Callable] = {}
        self._lock = threading.RLock()  # Of the graphs.
        self._is_warned = False  # About texts of several sentences.

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; `UserError` in a process that was forked since."""
        if os.getpid() != self._process:
            raise UserError(
                "Expected a translator that this process loaded, received one "
                "from before a fork; load one in each process, or start these "
                "by spawn."
            )
        return self._tokenizer

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it is made of; graphs are traced again."""
        of_ids, frozen = self.id_model, self.id_model.frozen
        first = self._tokenizer, self.search, self.source_lang, self.target_lang
        last = of_ids.shortlist, self.weights
        return _remade, (frozen and type(frozen), of_ids.models, first, last)

    @property
    def model(self) -> Any:
        """The only model, which translations follow if you train it.

        Those in int8 do not, so make another translator afterwards.
        """
        if self.id_model.frozen and self.weights.precision != "int8":
            with self._lock:  # They have packed what may change from now on.
                self.id_model.frozen = None
                self._graphs.clear()
        return self.id_model.model

    def freeze(
        self, precision: str = "float32", portable: bool = False
    ) -> "Translator":
        """Make a faster translator from the current weights.

        Make another if you train the model further. In float32 its logits
        differ from the model's by 1e-5 at most. In bfloat16 weights and
        activations are rounded; statistics of layer norms, every softmax and
        all scores stay float32. In int8 only products with weights are rounded.

        bfloat16 is for processors that multiply it (AMX, AVX512-BF16), int8 for
        those with VNNI. If `portable`, on a GPU, or where TensorFlow lacks
        those for x86-64, only operators that every TensorFlow has are used.
        """
        if self.weights.precision == "bfloat16" != precision:
            raise UserError(
                "Expected bfloat16, to which the weights are rounded, received "
                f"{precision}; freeze the translator that has them in float32."
            )
        models, frozen = freeze(self.id_model.models, precision, portable)
        weights = dataclasses.replace(self.weights, precision=precision)
        sides = self.source_lang, self.target_lang
        words = self.id_model.shortlist
        return Translator(
            models, self.tokenizer, self.search, *sides, frozen, words, weights
        )

    def search_with(self, **given: Any) -> Search:
        """Return `search` with other settings."""
        for name in given.keys() - vars(self.search).keys():
            raise UserError(
                f"Expected a setting of a search, received {name}"
                f"{nearest(name, vars(self.search))}."
            )
        return dataclasses.replace(self.search, **given)

    def translate(
        self,
        texts: Sequence[str],
        *,
        n_best: int | None = None,
        prefixes: Sequence[str] | None = None,
        split_sentences: bool | None = None,
        terms: Mapping[str, str] | None = None,
        batch_tokens: int = 8_192,
        parallel: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> list[Any]:
        """Translate any number of texts, batched by length.

        Args:
            texts: Source texts.
            n_best: Hypotheses per text; by default one, as plain `str`.
            prefixes: The first words of each translation, "" for none. They
                count in the score and towards the length limit, and are cut
                if they are longer than that.
            split_sentences: Whether to translate each sentence of a text on
                its own, for a model that has learnt from single sentences;
                between them stands what the target language puts there, and
                line ends stay. A tag such as `>>fra<<` at the beginning of a
                text goes before each. By default texts stay whole, and the log
                says once if a text looks like several sentences; one without a
                letter or a digit, such as `---`, is its own translation, with
                score 0. With False the model translates that too.
            terms: What words of the source become, such as
                `{"lamp": "Leuchte"}`, and "" for as they are, by a model
                trained with `term_share`. Such a model also leaves addresses,
                `{placeholders}` and code as they are.
            batch_tokens: Budget of a batch: its texts times the tokens of its
                longest possible translation.
            parallel: Batches searched at the same time, each with memory of
                its own; by default as fits the cores, or 1 on a GPU. It is
                fastest with `TF_NUM_INTRAOP_THREADS=1` in the environment
                before TensorFlow's first operator, as on the command line.
            progress: Called with the number of texts done and that of all.
            **options: Other fields of `Search`, such as `beam_size=4`; those
                left out are taken from the attribute `search`.

        Returns:
            One translation for each text, `str`, in order; with `n_best` a
            list of `Hypothesis`, best first and each text once, which is
            shorter where fewer exist.
        """
        options["n_best"] = 1 if n_best is None else n_best
        search = self.search_with(**options)
        results, truncated = self.search_texts(
            texts,
            search,
            Batching(batch_tokens, parallel, progress),
            prefixes=prefixes,
            split_sentences=split_sentences,
            terms=terms,
        )
        warn_of_cuts(truncated, search.max_source_length)
        if n_best is not None:
            return results
        return [hypotheses[0].text for hypotheses in results]

    def search_texts(
        self,
        texts: Sequence[str],
        search: Search,
        batching: Batching = _BATCHING,
        *,
        prefixes: Sequence[str] | None = None,
        split_sentences: bool | None = False,
        terms: Mapping[str, str] | None = None,
    ) -> tuple[list[list[Hypothesis]], np.ndarray]:
        """Translate as `translate` does, and tell which texts were cut.

        Returns:
            The hypotheses of each text, best first, with NaN as the score of
            one that was split, and whether each was cut, bool `(len(texts),)`.
        """
        texts, begun = as_texts("texts", texts), None
        if prefixes is not None:
            begun = as_texts("prefixes", prefixes)
            check_lengths(texts=texts, prefixes=begun)
        of_kind("search", Search, search)
        if split_sentences:
            sentences.check_alone(prefixes=begun is not None)
            return sentences.search_each(self, texts, search, batching, terms)
        kept = [""] * len(texts)
        if split_sentences is None:
            self._is_warned = self._is_warned or warn_of_several(texts)
            kept = [only_signs(text) for text in texts]
        tokenizer = self.tokenizer
        knows_marks = getattr(tokenizer, "has_marks", False)
        mark = marker(terms, self.source_lang, knows_marks)
        both = zip(texts, kept, strict=True)
        texts = ["" if signs else mark(text) for text, signs in both]
        inputs, truncated = search_inputs(tokenizer, search, texts, begun)
        lengths = inputs["source"].row_lengths().numpy()
        limits = search.max_length or lengths + search.max_extra_length
        results = [[Hypothesis(signs, 0.0)] for signs in kept]
        waiting = np.flatnonzero(lengths > len(tokenizer.ids.blank))
        if not len(waiting):
            return results, truncated.numpy()
        parallel = batching.searches(self.id_model.models, len(waiting))
        costs = np.maximum(lengths, limits)
        for rows, result in batching.run(
            # Traced in this thread, since others lack Keras's settings.
            self._search_graph(search, tuple(inputs)),
            list(inputs.values()),
            batches(waiting, lengths, costs, batching.batch_tokens, parallel),
            tokenizer.ids.pad,
            parallel,
        ):
            of_batch = [texts[row] for row in rows]
            found = texts_of(tokenizer, result, search, of_batch)
            best = (x.numpy() for x in found)
            for row, *of_row in zip(rows, *best, strict=True):
                results[row] = hypotheses(*of_row)
        none = [texts[x] for x in waiting if results[x][0].score == -np.inf]
        if none:
            logger.warning(
                "The search allows no translation of %d of %d texts, such as "
                "%r, and theirs are empty; loosen `no_repeat_ngram`, "
                "`min_length`, `no_unknown` or `shortlist`.",
                len(none),
                len(texts),
                none[0][:60],
            )
        return results, truncated.numpy()

    def _search_graph(
        self, search: Search, names: tuple[str, ...]
    ) -> Callable[..., BeamResult]:
        """Trace a search once, for batches of any shape."""
        drawn = search.sampling
        # Sources are cut already, and the seed is an input.
        search = dataclasses.replace(
            with_choice(self.tokenizer, search),
            max_source_length=None,
            sampling=drawn and dataclasses.replace(drawn, seed=None),
        )
        return self.graph(
            (search, names),
            lambda *ids: self.id_model.search_ids(
                search=search, **dict(zip(names, ids, strict=True))
            ),
            *(SEEDS if name == "seeds" else IDS for name in names),
        )

    def graph(
        self, key: Any, function: Callable, *inputs: tf.TensorSpec
    ) -> Callable:
        """Trace a function of ids, and keep the graphs last used by their keys.

        A graph holds packed weights of its own, so there is a bound on them.
        """
        with self._lock:
            made = self._graphs.pop(key, None)
            if made is None:
                # Now: TensorFlow warns when several in a row trace at their
                # first call.
                traced = tf.function(function, inputs, autograph=False)
                made = traced.get_concrete_function()
            self._graphs[key] = made  # The last one.
            if len(self._graphs) > _MOST_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)))
            return made

    def explain(
        self,
        text: str,
        *,
        n_best: int | None = None,
        prefix: str | None = None,
        **options: Any,
    ) -> Explanation:
        """Translate a text, and show its attention and its search.

        Translations and scores are those of `translate` with the same `n_best`,
        but a text that two hypotheses spell is there twice, and marks of terms
        change no order.

        Args:
            text: A source text.
            n_best: Hypotheses returned; by default 4, or the number of beams
                if that is less.
            prefix: How the translation begins.
            **options: The other fields of `Search`, such as
                `beam_size=8`, except `sampling`. `max_source_length` is 256
                if `search` has none.

        Returns:
            An explanation, which a notebook shows, `save_html` writes and
            NumPy reads.
        """
        if self.search.max_source_length is None:
            options.setdefault("max_source_length", MAX_SOURCE_LENGTH)
        if n_best is None:
            n_best = min(4, self.search_with(n_best=1, **options).beam_size)
        search = self.search_with(n_best=n_best, **options)
        if search.sampling:
            expected = "None, since what is drawn has no beam to explain"
            raise SettingError("sampling", expected, search.sampling)
        of_kind("text", str, text)  # One, unlike `translate`.
        begun = as_texts("prefix", [prefix]) if prefix else None
        return explaining.explain(self, text, search, begun)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        length_penalty: float | None = None,
    ) -> list[float]:
        """Score given translations as the search scores its own.

        Args:
            sources: Source texts; none is cut.
            targets: A translation of each. The score is that of the tokenizer's
                pieces: a search may have written others, with another score.
            length_penalty: The exponent alpha; by default that of `search`.

        Returns:
            Length-normalised log-probabilities in nats, in order.
        """
        search = self.search
        if length_penalty is not None:
            search = dataclasses.replace(search, length_penalty=length_penalty)
        pairs = as_pairs(sources, targets)
        alpha = tf.constant(search.length_penalty, tf.float32)
        penalty = tf.TensorSpec([], tf.float32)
        score = self.graph("score", self.id_model.score_ids, IDS, IDS, penalty)
        scores = read_pairs(self, lambda *ids: score(*ids, alpha), pairs)
        return [float(score) for score, _ in scores]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_source_length: int | None = None,
    ) -> list[list[tuple[int, int]]]:
        """Find the source word that each target word attends to most.

        Words are those of `keras_transformer.data.languages.words_of`.
        Attention is the mean over all layers and heads, added up over the
        pieces of the two words.

        Returns:
            For each pair of texts the pairs (source word, target word),
            counted from 0, in the order of the target; none if the model reads
            other words, as of a source that is cut after `max_source_length`
            tokens or has a mark of `terms`.
        """
        return align_pairs(self, as_pairs(sources, targets), max_source_length)


def _remade(kind: Any, models: Any, first: Any, last: Any) -> Any:
    """Unpickle a translator; `kind` is the class of its frozen weights."""
    made_of: Any = models, *first, kind and kind(*models), *last
    return Translator(*made_of)


def load(runs: Runs, weights: Weights) -> Translator:
    """Load one run, or several that search together as the first does."""
    devices.let_memory_grow()  # A training may run on the same GPU.
    first, run = runs[0]
    tokenizer = load_vocabulary(first, run)
    for path, config in runs[1:]:
        if load_vocabulary(path, config).model != tokenizer.model:
            raise UserError(
                f"Expected {path} to have the vocabulary of {first}, received "
                f"another; train it with --tokenizer {first / TOKENIZER_FILE}."
            )
    words = None
    if weights.shortlist:  # A wrong one shows before the weights are loaded.
        words = lexicon.read(weights.shortlist, tokenizer)
    loaded = [averaging.load(path, weights.average, its) for path, its in runs]
    models, frozen = freeze([model for model, _ in loaded], weights.precision)
    chosen = tuple(taken for _, taken in loaded)
    weights = dataclasses.replace(weights, chosen=chosen)
    sides = run.source_lang, run.target_lang
    return Translator(
        models, tokenizer, run.search, *sides, frozen, words, weights
    )
