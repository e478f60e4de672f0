"""Any number of texts in batches by length, several of them at a time.

Threads within one matrix product must synchronise, which narrow matrices do not
repay; independent searches need not.

Axes: B batch, L tokens of the longest text.
"""

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Sequence,
)
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from keras_transformer.config import Search
from keras_transformer.data.texts import checked_texts
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.settings import whole_number
from keras_transformer.translation.alignment import Attention
from keras_transformer.translation.text_model import (
    IDS,
    SEEDS,
    TextModel,
)

logger = logging.getLogger("keras_transformer")

_MOST_NUMBERS = 20  # In a message.
# With this many batches for each thread, their sums do not matter.
_MANY = 8
Item = TypeVar("Item")
Result = TypeVar("Result")


def as_bytes(name: str, texts: Sequence[str]) -> list[bytes]:
    """Encode texts in UTF-8; `name` stands for them in errors."""
    # UTF-8 cannot encode a lone surrogate.
    return [x.encode("utf-8", "replace") for x in checked_texts(name, texts)]


def pairs_as_bytes(
    **texts: Sequence[str],
) -> tuple[list[bytes], list[bytes]]:
    """Encode two lists of texts, which must be of one length."""
    one, other = texts
    ones, others = (as_bytes(name, given) for name, given in texts.items())
    if len(ones) != len(others):
        raise ValueError(
            f"`{one}` and `{other}` must be of one length. Received: "
            f"{len(ones)} {one}, {len(others)} {other}"
        )
    return ones, others


def numbered(are_cut: Iterable[bool], first: int = 1) -> str:
    """Name the lines that were cut, such as "3, 17" or "1, …, 20 and 7 more".

    The number of the first line is `first`.
    """
    lines = [number for number, is_cut in enumerate(are_cut, first) if is_cut]
    more = len(lines) - _MOST_NUMBERS
    named = ", ".join(map(str, lines[:_MOST_NUMBERS]))
    return named + (f" and {more} more" if more > 0 else "")


def warn_of_cuts(
    are_cut: np.ndarray, longest: int | None, first: int = 1
) -> None:
    """Log which texts were cut, if any; the first one has the number `first`.

    In a file it is the number of the line.
    """
    if are_cut.any():
        logger.warning(
            "Cut %d of %d texts after %d tokens: number %s.",
            *(are_cut.sum(), len(are_cut), longest, numbered(are_cut, first)),
        )


class Hypothesis(NamedTuple):
    """A translation and its length-normalised log-probability in nats."""

    text: str
    score: float


def search_all(
    text_model: TextModel,
    texts: list[bytes],
    search: Search,
    prefixes: list[bytes] | None,
    batch_tokens: int,
    parallel: int | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[list[Hypothesis]], np.ndarray]:
    """Translate texts, as `Translator.n_best` says."""
    sources, truncated = _source_ids(
        text_model, texts, search.max_source_length
    )
    lengths = sources.row_lengths().numpy()
    limits = search.max_length or lengths + search.max_extra_length
    inputs = {"source": sources}
    if prefixes is not None:
        longest = int(np.max(limits, initial=0))
        inputs["prefix"] = text_model.prefix_ids(prefixes, longest)
    if search.sampling:
        inputs["seeds"] = text_model.seeds(
            tf.constant(texts, tf.string), search
        )
    special = text_model.tokenizer.ids
    found = [[Hypothesis("", 0.0)] for _ in texts]
    # Blank ones are answered.
    waiting = np.flatnonzero(lengths > len(special.blank))
    done = len(texts) - len(waiting)
    parallel = _searches(text_model, parallel, len(waiting))
    costs = np.maximum(lengths, limits)
    planned = batches(waiting, lengths, costs, batch_tokens, parallel)
    if not planned:
        return found, truncated.numpy()
    # Traced in this thread, since others lack Keras's settings.
    graph = _search_graph(text_model, search, tuple(inputs))
    with contextlib.closing(
        _apply(graph, inputs.values(), planned, special.pad, parallel)
    ) as searched:
        for rows, result in searched:
            of_rows = (x.numpy() for x in text_model.texts_of(result, search))
            for row, translations, scores in zip(rows, *of_rows, strict=True):
                found[row] = _hypotheses(translations, scores)
            done += len(rows)
            if progress:
                progress(done, len(texts))
    _warn_of_none(found, texts)
    return found, truncated.numpy()


def _source_ids(
    text_model: TextModel, texts: list[bytes], longest: int | None
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Tokenize sources, and log what the vocabulary has never met."""
    sources, truncated = text_model.source_ids(texts, longest)
    if isinstance(text_model.tokenizer, Tokenizer):
        text_model.tokenizer.log_unmet(sources.values.numpy())
    return sources, truncated


def _hypotheses(texts: np.ndarray, scores: np.ndarray) -> list[Hypothesis]:
    """Collect one sentence's hypotheses, without empty places."""
    return [
        Hypothesis(text.decode("utf-8", "replace"), float(score))
        for text, score in zip(texts, scores, strict=True)
        if score > -np.inf
    ] or [Hypothesis("", -np.inf)]


def _warn_of_none(found: list[list[Hypothesis]], texts: list[bytes]) -> None:
    """Log which texts a search has found no translation of, if any."""
    pairs = zip(texts, found, strict=True)
    none = [text for text, (best, *_) in pairs if best.score == -np.inf]
    if none:
        logger.warning(
            "The search allows no translation of %d of %d texts, such as %r, "
            "and theirs are empty; loosen `no_repeat_ngram`, `min_length`, "
            "`no_unknown` or `shortlist`.",
            *(len(none), len(texts), none[0].decode()[:60]),
        )


def _searches(text_model: TextModel, asked: int | None, texts: int) -> int:
    """Choose how many searches run at the same time."""
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    if asked is None and (on_gpu or not texts):
        return 1
    return devices.searches(
        asked,
        devices.cores(),
        max(
            model.model_config.d_model
            if isinstance(model, Transformer)
            else devices.TOTAL_WIDTH  # One alone.
            for model in text_model.id_model.models
        ),
        devices.threads(),
        texts,
    )


def _search_graph(
    text_model: TextModel, search: Search, inputs: tuple[str, ...]
) -> Callable[..., BeamResult]:
    """Trace a search once, for batches of any shape."""
    # Sources are cut already.
    search = dataclasses.replace(search, max_source_length=None)
    if search.sampling:
        # The seed is an input: a new one needs no new graph.
        sampling = dataclasses.replace(search.sampling, seed=None)
        search = dataclasses.replace(search, sampling=sampling)

    def find(source: tf.Tensor, *others: tf.Tensor) -> BeamResult:
        named = dict(zip(inputs[1:], others, strict=True))
        return text_model.id_model.search_ids(source, search, **named)

    specs = {"source": IDS, "prefix": IDS, "seeds": SEEDS}
    return text_model.graph(
        (search, inputs), find, *(specs[name] for name in inputs)
    )


def score_all(
    text_model: TextModel,
    sources: list[bytes],
    targets: list[bytes],
    length_penalty: float,
    batch_tokens: int,
) -> list[float]:
    """Score pairs of texts, as `Translator.score` says."""
    penalty = tf.TensorSpec([], tf.float32)
    score = text_model.graph(
        "score", text_model.id_model.score_ids, IDS, IDS, penalty
    )
    alpha = tf.constant(length_penalty, tf.float32)

    def of_batch(*ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return score(*ids, alpha)

    found = _read(text_model, of_batch, sources, targets, None, batch_tokens)
    return [float(score) for score, _ in found]


def attention_all(
    text_model: TextModel,
    sources: list[bytes],
    targets: list[bytes],
    max_source_length: int | None,
    batch_tokens: int,
) -> list[Attention]:
    """Find what targets look at, as `Translator.attention` says."""
    look = text_model.graph("attention", text_model.attention_ids, IDS, IDS)
    pieces = text_model.tokenizer.pieces
    pairs = sources, targets
    return [
        Attention(pieces(source), pieces(target), weights)
        for source, target, weights in _attended(
            text_model, look, pairs, max_source_length, batch_tokens
        )
    ]


def mean_attention_all(
    text_model: TextModel,
    sources: list[bytes],
    targets: list[bytes],
    max_source_length: int | None,
    batch_tokens: int,
) -> list[np.ndarray]:
    """Average what targets look at over layers and heads, each `(T, S)`."""
    look = text_model.graph("mean", text_model.mean_attention_ids, IDS, IDS)
    pairs = sources, targets
    found = _attended(text_model, look, pairs, max_source_length, batch_tokens)
    return [weights for *_, weights in found]


def _attended(
    text_model: TextModel,
    look: Callable,
    pairs: tuple[list[bytes], list[bytes]],
    max_source_length: int | None,
    batch_tokens: int,
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the ids of each pair and its attention, without padding."""

    def of_batch(*ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return *ids, look(*ids)

    found, pad = [], text_model.tokenizer.ids.pad
    for *ids, weights in _read(
        text_model, of_batch, *pairs, max_source_length, batch_tokens
    ):
        source, target = (of_side[of_side != pad] for of_side in ids)
        own = weights[..., : len(target), : len(source)]
        found.append((source, target, own))
    return found


def _read(
    text_model: TextModel,
    graph: Callable,
    sources: list[bytes],
    targets: list[bytes],
    max_source_length: int | None,
    batch_tokens: int,
) -> list[Any]:
    """Call a graph with batches of pairs; return what it says of each pair."""
    tokenizer = text_model.tokenizer
    if max_source_length is not None:
        whole_number("max_source_length", max_source_length, least=2)
    source_ids, _ = _source_ids(text_model, sources, max_source_length)
    ids = source_ids, tokenizer.target.tokenize(targets)
    longest = np.maximum(*(side.row_lengths().numpy() for side in ids))
    everyone = np.arange(len(sources))
    planned = batches(everyone, longest, longest, batch_tokens)
    found: list[Any] = [None] * len(sources)
    for rows, result in _apply(graph, ids, planned, tokenizer.ids.pad):
        of_rows = (x.numpy() for x in result)
        for row, *of_row in zip(rows, *of_rows, strict=True):
            found[row] = of_row
    return found


def batches(
    rows: np.ndarray,
    lengths: np.ndarray,
    costs: np.ndarray,
    batch_tokens: int,
    parallel: int = 1,
) -> list[np.ndarray]:
    """Batch rows of similar length, within a budget of their costs.

    The longest come first: they need the most memory, and an estimate of the
    time left errs on the safe side.

    Args:
        rows: Numbers of the rows, int `(N,)`.
        lengths: Lengths of all rows, to sort by, int.
        costs: Cost of each row, int.
        batch_tokens: The budget: rows of a batch times its largest cost.
        parallel: Batches searched at the same time. If there are few for each,
            their number is a multiple of this and their sums of lengths are
            similar, so that nobody waits long for the last one. There may be
            further batches of short rows, cut only by the budget.

    Returns:
        The rows of each batch.
    """
    batch_tokens = whole_number("batch_tokens", batch_tokens)
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    found = _fill(rows, lengths, costs, batch_tokens)
    # If there are many, the last ones are the shortest and soon done.
    if parallel == 1 or not 0 < len(found) <= _MANY * parallel:
        return found
    count = -(-len(found) // parallel) * parallel
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
    found = []
    while len(rows):
        count = batch_tokens // int(costs[rows[0]])
        full = int(np.searchsorted(np.cumsum(lengths[rows[:count]]), share))
        count = max(1, min(count, full + 1))
        found.append(rows[:count])
        rows = rows[count:]
    return found


def _apply(
    graph: Callable[..., Result],
    inputs: Collection[tf.Tensor | tf.RaggedTensor],
    planned: Iterable[np.ndarray],
    pad_id: int,
    parallel: int = 1,
) -> Generator[tuple[np.ndarray, Result], None, None]:
    """Call a graph with each batch of rows of `inputs`, as `results` does."""

    def of_rows(rows: np.ndarray) -> Result:
        batch = [tf.gather(each, rows) for each in inputs]
        return graph(
            *(
                x.to_tensor(pad_id) if isinstance(x, tf.RaggedTensor) else x
                for x in batch
            )
        )

    return results(of_rows, planned, parallel)


def results(
    function: Callable[[Item], Result], items: Iterable[Item], parallel: int
) -> Generator[tuple[Item, Result], None, None]:
    """Apply a function to items, several at the same time.

    The function is called in threads of its own, or in the caller's if
    `parallel` is 1. An item is taken when there is room for it. An error, or
    closing, drops the waiting items and waits for the running ones: a search
    cannot be stopped.

    Yields:
        An item and its result, in the order in which they are done.
    """
    if parallel == 1:
        for item in items:
            yield item, function(item)
        return
    rest = iter(items)
    running: dict[Future[Result], Item] = {}
    with ThreadPoolExecutor(parallel, "search") as pool:
        try:
            # One more than can run, so that no thread waits for the caller.
            for item in itertools.islice(rest, parallel + 1):
                running[pool.submit(function, item)] = item
            while running:
                for future in wait(running, None, FIRST_COMPLETED).done:
                    item, result = running.pop(future), future.result()
                    for following in itertools.islice(rest, 1):
                        running[pool.submit(function, following)] = following
                    yield item, result
        finally:
            for future in running:
                future.cancel()
