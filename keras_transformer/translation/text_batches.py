"""Texts as ids and back, and any number of them in batches by length.

Threads within one matrix product must synchronise, which narrow matrices do not
repay; independent searches need not.

Axes: B batch, N hypotheses of a text.
"""

import contextlib
import dataclasses
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from keras_transformer.config import Sampling, Search, logger
from keras_transformer.data.kept_spans import put_away, put_back
from keras_transformer.data.source_reading import is_visible
from keras_transformer.data.texts import checked_texts, some
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.settings import Checked, setting

# With this many batches for each thread, their sums do not matter.
_MANY = 8
_MAX_SEED = 2**31 - 1
# An end of a sentence and the beginning of the next: a guess, for a warning.
_TWO = re.compile(
    # After two letters it could be "Dr. Dog".
    r"(?:\w{3}\.|\w[!?…])[^\w\s]*\s+[^\w\s]*[^\W\d_a-z]"
    r"|[。！？।۔؟։።။។]\s*\w"
)
# To Unicode, Braille is signs.
_LETTER = re.compile(r"[^\W_]|[\u2801-\u28ff]")
IDS = tf.TensorSpec([None, None], tf.int32)
SEEDS = tf.TensorSpec([None, 2], tf.int32)
Result = TypeVar("Result")


class Hypothesis(NamedTuple):
    """A translation and its length-normalised log-probability in nats."""

    text: str
    score: float


@dataclasses.dataclass(frozen=True)
class Batching(Checked):
    """How any number of texts are batched, as `Translator.translate` says."""

    batch_tokens: int = setting(8_192, "budget of a batch")
    parallel: int | None = setting(None, "batches searched at the same time")
    progress: Callable[[int, int], None] | None = None

    def searches(self, models: Iterable[Any], texts: int) -> int:
        """Choose how many batches are searched at the same time."""
        if self.parallel or texts <= 1:
            return self.parallel or 1
        if tf.config.list_physical_devices("GPU"):
            return 1
        widths = [
            model.model_config.d_model
            if isinstance(model, Transformer)
            else devices.TOTAL_WIDTH  # One alone.
            for model in models
        ]
        cores, threads = devices.cores(), devices.threads()
        return devices.searches(cores, max(widths), threads, texts)

    def run(
        self,
        graph: Callable[..., Result],
        inputs: Sequence[tf.Tensor | tf.RaggedTensor],
        planned: Sequence[np.ndarray],
        pad_id: int,
        parallel: int = 1,
    ) -> Iterator[tuple[np.ndarray, Result]]:
        """Call a graph with the rows of each `planned` batch, several at once.

        `inputs` are those of all rows, and what is ragged is padded. Yields the
        rows of a batch with what the graph says of them, in order.
        """

        def call(rows: np.ndarray) -> Result:
            return graph(*(padded(tf.gather(x, rows), pad_id) for x in inputs))

        total = inputs[0].shape[0]
        done = total - sum(map(len, planned))
        with ThreadPoolExecutor(parallel, "search") as pool:
            called: Any = pool.map(call, planned)  # To close: a generator.
            # An error, or closing, drops the waiting batches and waits for the
            # running ones: a search cannot be stopped.
            with contextlib.closing(called):
                for rows, result in zip(planned, called, strict=True):
                    yield rows, result
                    done += len(rows)
                    if self.progress:
                        self.progress(done, total)


def as_texts(
    name: str, texts: Sequence[str], without_zero: bool = True
) -> list[str]:
    """Check texts; `name` stands for them in errors."""
    # UTF-8 cannot encode a lone surrogate.
    given = checked_texts(name, texts, without_zero=without_zero)
    return [text.encode("utf-8", "replace").decode() for text in given]


def as_pairs(
    sources: Sequence[str], targets: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Check sources and their translations."""
    pairs = as_texts("sources", sources), as_texts("targets", targets, False)
    check_lengths(sources=pairs[0], targets=pairs[1])
    return pairs


def check_lengths(**texts: list[str]) -> None:
    """Refuse two lists of texts of unequal length."""
    (one, ones), (other, others) = texts.items()
    if len(ones) != len(others):
        raise ValueError(
            f"`{one}` and `{other}` must be of one length. Received: "
            f"{len(ones)} {one}, {len(others)} {other}"
        )


def only_signs(text: str) -> str:
    """Return a text without a letter or a digit, "" for any other."""
    is_other = _LETTER.search(text) or not is_visible(text)
    return "" if is_other else text.strip()


def search_inputs(
    tokenizer: Any,
    search: Search,
    texts: tf.Tensor | list[str],
    begun: tf.Tensor | list[str] | None,
) -> tuple[dict[str, Any], tf.Tensor]:
    """Make what a search reads, by name; return which texts were cut."""
    source, truncated = source_ids(tokenizer, texts, search.max_source_length)
    inputs: dict[str, Any] = {"source": source}
    if begun is not None:
        longest = source.bounding_shape(1) + search.max_extra_length
        ids = tokenizer.target.tokenize(begun)[:, :-1]  # They do not end yet.
        # A search uses no more.
        inputs["prefix"] = ids[:, : search.max_length or longest]
    if search.sampling:
        of_texts = tf.convert_to_tensor(texts, tf.string)
        inputs["seeds"] = seeds(of_texts, search.sampling)
    return inputs, truncated


def padded(ids: tf.Tensor | tf.RaggedTensor, pad_id: int) -> tf.Tensor:
    """Make what a graph takes of an input of `search_inputs`."""
    return ids.to_tensor(pad_id) if isinstance(ids, tf.RaggedTensor) else ids


def source_ids(
    tokenizer: Any, text: tf.Tensor | Sequence[str], longest: int | None
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Tokenize sources; return which of them were cut after `longest`."""
    ids, truncated = cut(tokenizer.tokenize(text), longest, tokenizer.ids.blank)
    if tf.executing_eagerly() and isinstance(tokenizer, Tokenizer):
        tokenizer.log_unmet(ids.values.numpy())
    return ids, truncated


def cut(
    ids: tf.RaggedTensor, longest: int | None, end: tuple[int, ...]
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Shorten rows, the last of `end` still last; return which were longer."""
    if longest is None:
        return ids, tf.zeros([ids.nrows()], tf.bool)
    truncated = ids.row_lengths() > longest
    if not end:
        return ids[:, :longest], truncated
    ends = tf.fill([ids.nrows(tf.int32), 1], end[-1])
    return tf.concat([ids[:, :-1][:, : longest - 1], ends], axis=1), truncated


def texts_of(
    tokenizer: Any,
    result: BeamResult,
    search: Search,
    source: tf.Tensor | Sequence[str],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Detokenize hypotheses of sources to texts and scores `(B, N)`.

    Of a search each text is there once, first those that do what marks want;
    drawn texts may repeat.
    """
    texts, scores = tokenizer.detokenize(result.ids), result.scores
    if getattr(tokenizer, "has_marks", False):
        texts, faults = put_back(texts, put_away(source)[1])
        if not search.sampling:
            faults = tf.where(scores > -math.inf, faults, faults.dtype.max)
            texts, scores = _sorted_by(faults, texts, scores)
    if not search.sampling and search.n_best > 1:
        texts, scores = _each_once(texts, scores)
    return texts[:, : search.n_best], scores[:, : search.n_best]


def with_choice(tokenizer: Any, search: Search) -> Search:
    """Search for all hypotheses that `texts_of` needs, to heed marks."""
    if search.sampling or not getattr(tokenizer, "has_marks", False):
        return search
    return dataclasses.replace(search, n_best=search.beam_size)


def hypotheses(
    texts: Sequence[bytes], scores: Sequence[float]
) -> list[Hypothesis]:
    """Return those of a row that exist, or an empty one with score -inf."""
    return [
        Hypothesis(text.decode("utf-8", "replace"), float(score))
        for text, score in zip(texts, scores, strict=True)
        if score > -math.inf
    ] or [Hypothesis("", -math.inf)]


def _each_once(texts: tf.Tensor, scores: tf.Tensor) -> list[tf.Tensor]:
    """Keep the best score of equal texts; "" with -inf fills up the rest."""
    same = texts[:, :, None] == texts[:, None, :]
    numbers = tf.range(tf.shape(texts)[1])
    repeats = tf.reduce_any(same & (numbers[:, None] > numbers), axis=2)
    texts = tf.where(repeats, "", texts)
    scores = tf.where(repeats, -math.inf, scores)
    return _sorted_by(tf.cast(repeats, tf.int32), texts, scores)


def _sorted_by(keys: tf.Tensor, *columns: tf.Tensor) -> list[tf.Tensor]:
    order = tf.argsort(keys, stable=True)
    return [tf.gather(column, order, batch_dims=1) for column in columns]


def seeds(text: tf.Tensor, sampling: Sampling) -> tf.Tensor:
    """Make a seed for each text, int32 `(B, 2)`: the user's with a hash.

    So a text has the same draws whatever texts come with it. Without the
    user's seed, draws are random.
    """
    batch = tf.size(text)
    if sampling.seed is None:
        return tf.random.uniform([batch, 2], 0, _MAX_SEED, tf.int32)
    hashes = tf.strings.to_hash_bucket_fast(text, _MAX_SEED)
    of_user = tf.fill([batch], sampling.seed)
    return tf.stack([of_user, tf.cast(hashes, tf.int32)], axis=1)


def numbered(are_cut: Iterable[bool], first: int = 1) -> str:
    """Name the lines that were cut, counted from `first`."""
    lines = enumerate(are_cut, first)
    return some(tuple(str(i) for i, is_cut in lines if is_cut))


def warn_of_cuts(
    are_cut: np.ndarray, longest: int | None, first: int = 1
) -> None:
    """Log which texts, counted from `first`, were cut, if any."""
    if are_cut.any():
        logger.warning(
            "Cut %d of %d texts after %d tokens: number %s.",
            are_cut.sum(),
            len(are_cut),
            longest,
            numbered(are_cut, first),
        )


def warn_of_several(texts: Iterable[str]) -> bool:
    """Log a text that looks like several sentences; return whether one does."""
    several = next(filter(_looks_like_several, texts), None)
    if several is not None:
        logger.warning(
            "%r looks like several sentences, and a model that has learnt from "
            "single ones may leave some out; translate with --split-sentences, "
            "or in Python with split_sentences=True.",
            several[:60] + "…" * (len(several) > 60),
        )
    return several is not None


def _looks_like_several(text: str) -> bool:
    if not text.isascii():
        # To the pattern a mark is no part of a word, and where marks are vowels
        # short words have few letters. Those from U+FE00 on choose emoji.
        text = "".join(
            "x" * (each < "\ufe00")
            if unicodedata.category(each)[0] == "M"
            else each
            for each in unicodedata.normalize("NFC", text)
        )
    # The pattern takes a small letter such as ü for a capital.
    return any(not match[0][-1].islower() for match in _TWO.finditer(text))


def batches(
    rows: np.ndarray,
    lengths: np.ndarray,
    costs: np.ndarray,
    batch_tokens: int,
    parallel: int = 1,
) -> list[np.ndarray]:
    """Batch rows of similar length, within a budget of their costs.

    The longest come first: they need the most memory, and an estimate of the
    time left errs on the safe side. If there are few for each of the `parallel`
    searches, these get equally many of similar sums of lengths, so that nobody
    waits long for the last one. The cost of a batch is its rows times the
    largest of their `costs`; these and `lengths` are of all rows.
    """
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    batches = _fill(rows, lengths, costs, batch_tokens)
    # If there are many, the last ones are the shortest and soon done.
    if parallel == 1 or not 0 < len(batches) <= _MANY * parallel:
        return batches
    count = -(-len(batches) // parallel) * parallel
    share = lengths[rows].sum() / count
    return _fill(rows, lengths, costs, batch_tokens, share)


def _fill(
    rows: np.ndarray,
    lengths: np.ndarray,
    costs: np.ndarray,
    batch_tokens: int,
    share: float = np.inf,
) -> list[np.ndarray]:
    """Cut sorted rows where the budget, or a share of all lengths, is full."""
    batches = []
    while len(rows):
        count = batch_tokens // int(costs[rows[0]])
        full = int(np.searchsorted(np.cumsum(lengths[rows[:count]]), share))
        count = max(1, min(count, full + 1))
        batches.append(rows[:count])
        rows = rows[count:]
    return batches
