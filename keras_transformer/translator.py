"""Text to text: tokenizer, model and search together (section 6.1).

`translate` and `score` are for Python; the methods they share with an
exported model work inside a `tf.function`, on tensors of any batch size.

Axes: B batch, S source length, T target length, N hypotheses, V vocabulary.
"""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer import checkpoints
from keras_transformer.beam_search import (
    BeamResult,
    beam_search,
    check_arguments,
    length_normaliser,
)
from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UserError
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.model import Transformer

TOKENIZER_FILE = "tokenizer.model"
# A translation is at most this much longer than its source (section 6.1).
EXTRA_TOKENS = 50

logger = logging.getLogger("keras_transformer")

_IDS = tf.TensorSpec([None, None], tf.int32)


class Hypothesis(NamedTuple):
    """A translation and its length-normalised log-probability in nats."""

    text: str
    score: float


class TextResult(NamedTuple):
    """Hypotheses as tensors, best first; empty with -inf where none exist."""

    translations: tf.Tensor  # (B, N) string
    scores: tf.Tensor  # (B, N) float32, as in `Hypothesis`
    truncated: tf.Tensor  # (B,) bool, whether the source was cut


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        beam_size: Live hypotheses per sentence. At least 1; 1 is greedy.
        length_penalty: The exponent alpha of `length_normaliser`, at least 0.
        n_best: Hypotheses per sentence, from 1 to `beam_size`.
        min_length: Fewest tokens of a translation, its end token included.
        max_length: Most tokens of a translation, its end token included;
            source length + 50 where not given.
        max_source_length: Tokens, end token included, after which a source is
            cut; never where not given. At least 2.

    Raises:
        ValueError: If an option is out of range.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1
    min_length: int = 0
    max_length: int | None = None
    max_source_length: int | None = None

    def __post_init__(self) -> None:
        check_arguments(self.beam_size, self.length_penalty, self.n_best)
        for name, least in (
            ("min_length", 0),
            ("max_length", 1),
            ("max_source_length", 2),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(
                    f"`{name}` must be at least {least}. Received: "
                    f"{name}={value}"
                )
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(
                "`max_length` must be at least `min_length`. Received: "
                f"max_length={self.max_length}, min_length={self.min_length}"
            )


class Translator:
    """A trained model with its tokenizer.

    A text of nothing but space has the one translation "" with score 0.

    Args:
        model: The model; its vocabulary is the tokenizer's.
        tokenizer: The tokenizer.

    Raises:
        ValueError: If the two differ in vocabulary size.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        if model.vocab_size != tokenizer.vocab_size:
            raise ValueError(
                "`model` and `tokenizer` must share one vocabulary. Received: "
                f"{model.vocab_size} and {tokenizer.vocab_size} pieces"
            )
        self.model = model
        self.tokenizer = tokenizer
        # One graph for each set of options, for batches of any shape.
        self._search_graphs: dict[SearchOptions, Callable] = {}
        self._score_graph = tf.function(
            self.score_ids,
            input_signature=[_IDS, _IDS, tf.TensorSpec([], tf.float32)],
        )

    @classmethod
    def from_run(
        cls, run_dir: str | os.PathLike, average: int = 5
    ) -> "Translator":
        """Load what train.py wrote.

        Args:
            run_dir: The run directory.
            average: Newest checkpoints whose weights are averaged.

        Raises:
            UserError: If `run_dir` is no run directory with a checkpoint, or
                its vocabulary is not that of its model.
        """
        model = checkpoints.load_model(run_dir, average)
        tokenizer = Tokenizer.load(pathlib.Path(run_dir) / TOKENIZER_FILE)
        try:
            return cls(model, tokenizer)
        except ValueError:
            raise UserError(
                f"Expected {model.vocab_size} pieces in {run_dir}/"
                f"{TOKENIZER_FILE} as in the model, found "
                f"{tokenizer.vocab_size}; restore the file of this run."
            ) from None

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam_size: int = 4,
        length_penalty: float = 0.6,
        n_best: int | None = None,
        min_length: int = 0,
        max_length: int | None = None,
        max_source_length: int | None = None,
        batch_tokens: int = 8_192,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[str] | list[list[Hypothesis]]:
        """Translate any number of texts, batched by length.

        Args:
            texts: Source texts.
            beam_size: As in `SearchOptions`, like all up to
                `max_source_length`.
            length_penalty: The exponent alpha.
            n_best: Hypotheses per text; not given, one, as plain `str`.
            min_length: Fewest tokens of a translation.
            max_length: Most tokens of a translation.
            max_source_length: Tokens after which a source is cut.
            batch_tokens: Budget of a batch: its texts times the tokens of its
                longest possible translation.
            progress: Called with the numbers of texts done and of all texts.

        Returns:
            One translation for each text, in order; with `n_best` a list of
            hypotheses, best first, which is shorter where fewer exist.

        Raises:
            ValueError: If an option is out of range or `texts` is one `str`.
        """
        options = SearchOptions(
            beam_size,
            length_penalty,
            1 if n_best is None else n_best,
            min_length,
            max_length,
            max_source_length,
        )
        found = self._n_best(texts, options, batch_tokens, progress)
        if n_best is None:
            return [hypotheses[0].text for hypotheses in found]
        return found

    def _n_best(
        self, texts, options, batch_tokens, progress
    ) -> list[list[Hypothesis]]:
        """As `translate`."""
        sources = self.tokenizer.tokenize(_as_bytes("texts", texts))
        sources, truncated = _cut(sources, options.max_source_length)
        if np.any(truncated):
            logger.warning(
                "Cut %d of %d texts after %d tokens.",
                np.sum(truncated),
                len(texts),
                options.max_source_length,
            )
        lengths = sources.row_lengths().numpy()
        limits = options.max_length or lengths + EXTRA_TOKENS
        found = [[Hypothesis("", 0.0)] for _ in texts]
        waiting = np.flatnonzero(lengths > 1)  # Blank ones are answered.
        done = len(texts) - len(waiting)
        search = self._search_graph(options)
        for rows in _batches(
            waiting, lengths, np.maximum(lengths, limits), batch_tokens
        ):
            result = search(tf.gather(sources, rows).to_tensor(PAD_ID))
            translations = self.tokenizer.detokenize(result.ids).numpy()
            for row, texts_of_row, scores in zip(
                rows, translations, result.scores.numpy(), strict=True
            ):
                found[row] = _hypotheses(texts_of_row, scores)
            done += len(rows)
            if progress:
                progress(done, len(texts))
        return found

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        length_penalty: float = 0.6,
        batch_tokens: int = 2_048,
    ) -> list[float]:
        """Score given translations as the search scores its own.

        Args:
            sources: Source texts.
            targets: A translation of each.
            length_penalty: The exponent alpha, at least 0.
            batch_tokens: Budget of a batch: its pairs times the tokens of its
                longest text.

        Returns:
            Length-normalised log-probabilities in nats, in order.

        Raises:
            ValueError: If there are not as many targets as sources.
        """
        if len(sources) != len(targets):
            raise ValueError(
                "`sources` and `targets` must be of one length. Received: "
                f"{len(sources)} sources, {len(targets)} targets"
            )
        source_ids = self.tokenizer.tokenize(_as_bytes("sources", sources))
        target_ids = self.tokenizer.tokenize(_as_bytes("targets", targets))
        longest = np.maximum(
            source_ids.row_lengths().numpy(), target_ids.row_lengths().numpy()
        )
        scores = np.zeros(len(sources))
        for rows in _batches(
            np.arange(len(sources)), longest, longest, batch_tokens
        ):
            scores[rows], _ = self._score_graph(
                tf.gather(source_ids, rows).to_tensor(PAD_ID),
                tf.gather(target_ids, rows).to_tensor(PAD_ID),
                length_penalty,
            )
        return scores.tolist()

    def search(self, text: tf.Tensor, options: SearchOptions) -> TextResult:
        """Translate texts, string `(B,)`, inside a graph too."""
        source, truncated = _cut(
            self.tokenizer.tokenize(text), options.max_source_length
        )
        result = self.search_ids(source.to_tensor(PAD_ID), options)
        return TextResult(
            self.tokenizer.detokenize(result.ids), result.scores, truncated
        )

    def search_ids(
        self, source: tf.Tensor, options: SearchOptions
    ) -> BeamResult:
        """Translate ids, int32 `(B, S)`, EOS last, inside a graph too.

        `max_source_length` is not applied.
        """
        memory, source_mask = self.model.encode(source, training=False)
        # Once for each sentence, not for each beam or step.
        cross = self.model.cross_keys_values(memory)

        def step(ids, position, cache):
            return self.model.decode_step(
                ids, position, cache, cross, source_mask
            )

        lengths = _token_counts(source)
        limits = (
            lengths + EXTRA_TOKENS
            if options.max_length is None
            else tf.fill(tf.shape(lengths), options.max_length)
        )
        return beam_search(
            step,
            self.model.empty_cache(tf.shape(source)[0], options.beam_size),
            # A blank source, EOS alone, has the empty translation.
            max_lengths=tf.where(lengths > 1, limits, 0),
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            n_best=options.n_best,
            min_length=options.min_length,
        )

    def score_text(
        self, source: tf.Tensor, target: tf.Tensor, options: SearchOptions
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Score translations as the search would, inside a graph too.

        Args:
            source: string `(B,)`, cut like a source of the search.
            target: string `(B,)`, cut where the search would stop writing for
                the longest source.
            options: The length penalty and the limits.

        Returns:
            The scores float32 `(B,)` and the numbers of target tokens, end
            token included, int32 `(B,)`. Where both texts are blank, 0 and 0.
        """
        longest = options.max_source_length
        source, _ = _cut(self.tokenizer.tokenize(source), longest)
        if longest is not None:
            longest = options.max_length or longest + EXTRA_TOKENS
        target, _ = _cut(self.tokenizer.tokenize(target), longest)
        return self.score_ids(
            source.to_tensor(PAD_ID),
            target.to_tensor(PAD_ID),
            options.length_penalty,
        )

    def score_ids(
        self, source: tf.Tensor, target: tf.Tensor, length_penalty: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `score_text`, for ids `(B, S)` and `(B, T)`, EOS last."""
        # (B, T): the start token, then all but the last one.
        target_in = tf.pad(target, [[0, 0], [1, 0]], constant_values=BOS_ID)
        logits = self.model((source, target_in[:, :-1]), training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits)
        log_probs = -tf.reduce_sum(
            tf.where(target == PAD_ID, 0.0, losses), axis=-1
        )
        num_tokens = _token_counts(target)
        scores = log_probs / length_normaliser(num_tokens, length_penalty)
        is_blank = (_token_counts(source) <= 1) & (num_tokens <= 1)
        return tf.where(is_blank, 0.0, scores), tf.where(
            is_blank, 0, num_tokens
        )

    def _search_graph(self, options: SearchOptions) -> Callable:
        """One graph for each set of options, for batches of any shape."""
        if options not in self._search_graphs:
            # Ids only: a graph that holds the tokenizer would be of no use any
            # more once `tf.random.set_seed` has unloaded its vocabulary.
            self._search_graphs[options] = tf.function(
                lambda source: self.search_ids(source, options),
                input_signature=[_IDS],
            )
        return self._search_graphs[options]


def _as_bytes(name: str, texts: Sequence[str]) -> list[bytes]:
    if isinstance(texts, str):
        raise ValueError(
            f"`{name}` must be a sequence of texts. Received: {name}={texts!r}"
        )
    # A lone surrogate is no character that UTF-8 could carry.
    return [text.encode("utf-8", "replace") for text in texts]


def _cut(
    ids: tf.RaggedTensor, longest: int | None
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Shorten rows to `longest` ids, EOS still last; tell which were longer."""
    if longest is None:
        return ids, tf.zeros([ids.nrows()], tf.bool)
    truncated = ids.row_lengths() > longest
    ends = tf.fill([ids.nrows(), 1], EOS_ID)
    return tf.concat([ids[:, :-1][:, : longest - 1], ends], axis=1), truncated


def _token_counts(ids: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=-1)


def _batches(
    rows: np.ndarray,
    lengths: np.ndarray,
    costs: np.ndarray,
    batch_tokens: int,
) -> Iterator[np.ndarray]:
    """Rows of similar length together, within a budget of their costs.

    The longest come first: they need the most memory, and an estimate of the
    time left errs on the safe side.
    """
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    while len(rows):
        count = max(1, batch_tokens // int(costs[rows[0]]))
        yield rows[:count]
        rows = rows[count:]


def _hypotheses(texts: np.ndarray, scores: np.ndarray) -> list[Hypothesis]:
    """One sentence's, without the places that hold none."""
    return [
        Hypothesis(text.decode("utf-8", "replace"), float(score))
        for text, score in zip(texts, scores, strict=True)
        if score > -np.inf
    ] or [Hypothesis("", -np.inf)]
