"""Text to text in Python: any number of texts, batched by length."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from keras_transformer.config import (
    MAX_SOURCE_LENGTH,
    Search,
    UserError,
)
from keras_transformer.data.adapter import TokenizerAdapter
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.frozen_weights import FrozenWeights
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.decoding.prefix_steps import Model
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.machine import devices
from keras_transformer.runs.weights import Runs, Weights
from keras_transformer.settings import (
    did_you_mean,
    of_kind,
    overridden,
    whole_number,
)
from keras_transformer.translation import explaining, loading, sentences
from keras_transformer.translation.alignment import Attention, align_pairs
from keras_transformer.translation.text_batches import (
    Hypothesis,
    as_bytes,
    attention_all,
    mean_attention_all,
    pairs_as_bytes,
    score_all,
    search_all,
    warn_of_cuts,
)
from keras_transformer.translation.text_model import TextModel
from keras_transformer.viewing.explanation import Explanation


class Translator:
    """A trained model, or several that search together, with its tokenizer.

    A text of nothing but whitespace has one translation, "" with score 0,
    whatever the prefix.

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
        weights: What was loaded, if the model comes from a run. Its
            `ensemble_mean` says what several models average.

    Attributes:
        text_model: The same translation inside a graph, as exports hold it.
        tokenizer: As given; so are `search`, both languages and `weights`.

    Raises:
        ValueError: If model and tokenizer differ in vocabulary size.
        UserError: If the model does not return logits, or the ids of a
            tokenizer made elsewhere are unknown.
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
        self.tokenizer: Any = tokenizer
        search = Search() if search is None else search
        self.search: Search = of_kind("search", Search, search)
        self.source_lang = source_lang
        self.target_lang = target_lang
        self.weights = weights or Weights()
        mean = self.weights.ensemble_mean
        self._id_model = IdModel(model, frozen, shortlist, tokenizer.ids, mean)
        self.text_model = TextModel(self._id_model, tokenizer)
        self._is_warned = False  # About texts of several sentences.

    @property
    def model(self) -> Any:
        """The model; `UserError` if there are several."""
        model, *others = self._id_model.models
        if others:
            raise UserError(
                f"Expected one model, received {1 + len(others)} that search "
                "together; give one of them."
            )
        return model

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators in use that not every TensorFlow has."""
        frozen = self._id_model.frozen
        return frozen.operators if frozen else ()

    @property
    def instructions(self) -> tuple[str, ...]:
        """Names of the instructions in use that not every processor has."""
        frozen = self._id_model.frozen
        return frozen.instructions if frozen else ()

    @classmethod
    def of(cls, runs: Runs, weights: Weights) -> "Translator":
        """Load runs whose configurations have been read.

        Raises:
            UserError: If a run has no weights or is of another vocabulary, or
                as from `freeze`.
        """
        devices.let_memory_grow()  # A training may run on the same GPU.
        return cls(**loading.load(runs, weights))

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
        weights = dataclasses.replace(self.weights, precision=precision)
        models, frozen = loading.freeze(
            self._id_model.models, precision, portable
        )
        return Translator(
            *(models, self.tokenizer, self.search),
            *(self.source_lang, self.target_lang),
            *(frozen, self._id_model.shortlist),
            weights,
        )

    def search_with(self, **given: Any) -> Search:
        """Return `search` with other settings.

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
            prefixes: The first words of each translation, "" for none. They
                count in the score and towards the length limit, and are cut
                if they are longer than that.
            split_sentences: Whether to translate each sentence of a text on
                its own, for a model that has learnt from single sentences;
                between them stands what the target language puts there, and
                line ends stay. A tag such as `>>fra<<` at the beginning of a
                text goes before each. By default texts stay whole, and the log
                says once if a text looks like several sentences.
            batch_tokens: Budget of a batch: its texts times the tokens of its
                longest possible translation.
            parallel: Batches searched at the same time, each with memory of
                its own; by default what `devices.searches` chooses, or 1 on a
                GPU. It is fastest with `TF_NUM_INTRAOP_THREADS=1` in the
                environment before TensorFlow's first operator, as on the
                command line. An error ends the call once the other batches
                are done.
            progress: Called with the number of texts done and that of all.
            **options: Other fields of `Search`, such as `beam_size=4`; those
                left out are taken from the attribute `search`.

        Returns:
            One translation for each text, in order; with `n_best` a list of
            hypotheses, best first and each text once, which is shorter
            where fewer exist.

        Raises:
            ValueError: If an option is out of range, `texts` is one `str`, or
                there are not as many prefixes as texts.
            UserError: If `split_sentences` is combined with `n_best` above 1
                or `prefixes`, or sentencex is missing.
        """
        search = self.search_with(
            n_best=1 if n_best is None else n_best, **options
        )
        found, truncated = self.n_best(
            texts,
            search,
            prefixes=prefixes,
            split_sentences=split_sentences,
            batch_tokens=batch_tokens,
            parallel=parallel,
            progress=progress,
        )
        warn_of_cuts(truncated, search.max_source_length)
        if n_best is not None:
            return found
        return [hypotheses[0].text for hypotheses in found]

    def n_best(
        self,
        texts: Sequence[str],
        search: Search,
        *,
        prefixes: Sequence[str] | None = None,
        split_sentences: bool | None = False,
        batch_tokens: int = 8_192,
        parallel: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[list[list[Hypothesis]], np.ndarray]:
        """Search as `search` says, and tell which texts were cut.

        The other arguments are those of `translate`.

        Returns:
            The hypotheses of each text, best first, with the score NaN for a
            text that was split, and whether each text was cut after
            `max_source_length` tokens, bool `(len(texts),)`.

        Raises:
            SettingError: If `search` is no `Search`, or `batch_tokens` or
                `parallel` is not a number from 1 on.
            UserError: If `split_sentences` is combined with several hypotheses
                or `prefixes`.
        """
        beginnings: list[bytes] | None = None
        if prefixes is None:
            encoded = as_bytes("texts", texts)
        else:
            encoded, beginnings = pairs_as_bytes(texts=texts, prefixes=prefixes)
        batch_tokens = whole_number("batch_tokens", batch_tokens)
        of_kind("search", Search, search)
        if split_sentences is not None:
            of_kind("split_sentences", bool, split_sentences)
        decoded = (text.decode() for text in encoded)
        if split_sentences:
            sentences.check_alone(
                n_best=search.n_best > 1, prefixes=prefixes is not None
            )
            languages = self.source_lang, self.target_lang
            whole, are_cut = sentences.Splitter(*languages).translate(
                functools.partial(
                    self.n_best,
                    search=search,
                    batch_tokens=batch_tokens,
                    parallel=parallel,
                ),
                *(decoded, progress),
            )
            found = [[Hypothesis(text, math.nan)] for text in whole]
            return found, np.array(are_cut, bool)
        if split_sentences is None and not self._is_warned:
            self._is_warned = sentences.warn_of_several(decoded)
        return search_all(
            *(self.text_model, encoded, search, beginnings),
            *(batch_tokens, parallel, progress),
        )

    def explain(
        self,
        text: str,
        *,
        n_best: int | None = None,
        prefix: str | None = None,
        **options: Any,
    ) -> Explanation:
        """Translate a text, and show its attention and its search.

        The translations and their scores are those of `translate` with the
        same `n_best`, but a text that two hypotheses spell is there twice.
        With `max_finished`, the best one may depend on `n_best`.

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

        Raises:
            ValueError: If `text` or `prefix` is no `str`, or an option is out
                of range or says to sample.
            UserError: If the model does not say what it attends to.
        """
        if self.search.max_source_length is None:
            options.setdefault("max_source_length", MAX_SOURCE_LENGTH)
        if n_best is None:
            n_best = min(4, self.search_with(n_best=1, **options).beam_size)
        search = self.search_with(n_best=n_best, **options)
        languages = self.source_lang, self.target_lang
        return explaining.explain(
            *(self.text_model, self.model, languages, text, search, prefix)
        )

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
            length_penalty: The exponent alpha; by default that of `search`.
            batch_tokens: Budget of a batch: its pairs times the tokens of its
                longest text.

        Returns:
            Length-normalised log-probabilities in nats, in order.

        Raises:
            ValueError: If there are not as many targets as sources.
        """
        search = overridden(self.search, length_penalty=length_penalty)
        pairs = pairs_as_bytes(sources=sources, targets=targets)
        alpha = search.length_penalty
        return score_all(self.text_model, *pairs, alpha, batch_tokens)

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
        pairs = pairs_as_bytes(sources=sources, targets=targets)
        return attention_all(
            self.text_model, *pairs, max_source_length, batch_tokens
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

        Words are what `keras_transformer.data.languages.words_of` finds: what
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
        pairs = pairs_as_bytes(sources=sources, targets=targets)
        found = mean_attention_all(
            self.text_model, *pairs, max_source_length, batch_tokens
        )
        languages = self.source_lang, self.target_lang
        return align_pairs(found, self.tokenizer, pairs, languages)


def search_with(search: Search, **given: Any) -> Search:
    """Override settings of a search, as `Translator.search_with` does."""
    known = [field.name for field in dataclasses.fields(Search)]
    for name in given.keys() - known:
        # A slip may also mean another argument of `translate`.
        also = ("prefixes", "split_sentences", "batch_tokens", "parallel")
        raise UserError(
            f"Expected a setting of a search, received {name}"
            f"{did_you_mean(name, (*known, *also))}"
        )
    return dataclasses.replace(search, **given)
