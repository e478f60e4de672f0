"""Makes batches of pairs of similar length (section 5.1).

Axes: B rows of a batch, S source length, T target length. Lengths count
tokens, including the end token.
"""

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from keras_transformer.config import OURS, SettingError, SpecialIds, checked
from keras_transformer.data.adapter import TokenizerAdapter
from keras_transformer.data.batch_plan import Batch, BatchPlan
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.texts import checked_pairs, checked_texts
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.settings import logger, whole_number

Texts: TypeAlias = Sequence[str] | tf.Tensor
Ids: TypeAlias = tuple[np.ndarray, np.ndarray]  # Source and target.

_EXPECTED = (
    "a `kt.Tokenizer`, or for `kt.batch` a `kt.TokenizerAdapter` around another"
)


def batches(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    batch_tokens: int = 4_096,
    *,
    max_length: int | None = 256,
    seed: int = 1,
    shuffle: bool = True,
) -> tf.data.Dataset:
    """Batch pairs of texts for `model.fit`; each iteration is an epoch.

    Rows of padding round a batch up, so that `predict` on 200 pairs may return
    208 rows; without `shuffle` there are none. An epoch that was not read to
    its end begins again. A new dataset begins with the order of its first
    epoch, even if `initial_epoch` or `BackupAndRestore` makes `fit` continue
    with a later one.

    Args:
        pairs: Source and target texts; read once, here.
        tokenizer: Vocabulary of both sides.
        batch_tokens: Budget of source tokens, and of target tokens, in a
            batch, including padding.
        max_length: Pairs with a longer side, in tokens with the end token, or
            with an empty side, are dropped; None keeps all, as for validation.
        seed: Fixes the order, which changes with every epoch.
        shuffle: Whether to shuffle; otherwise batches come shortest first and
            have no rows of padding, as for an evaluation.

    Returns:
        Dataset of `((source (B, S), target_in (B, T)), target_out (B, T))`,
        int32, as in `stream`; its `len` is the steps of an epoch.
    """
    if not isinstance(tokenizer, Tokenizer):
        raise SettingError("tokenizer", _EXPECTED, tokenizer)
    batch_tokens = whole_number("batch_tokens", batch_tokens)
    seed = checked("seed", seed)
    if max_length is not None:
        max_length = checked("max_length", max_length)
    texts = checked_pairs("pairs", pairs)
    records = TokenisedCorpus.in_memory(texts, tokenizer, max_length)
    if records.dropped or records.empty:
        said = "Dropped %d pairs above %s tokens (`max_length`) and %d empty."
        logger.warning(said, records.dropped, max_length, records.empty)
    plan = BatchPlan(records, batch_tokens, seed, shuffle)
    steps, completed = len(plan), 0

    def count(number: np.ndarray) -> None:
        nonlocal completed
        completed = max(completed, (int(number) + 1) // steps)

    def numbers_of_epoch(_: tf.Tensor) -> tf.data.Dataset:
        # An abandoned iterator leaves its epoch to the next one.
        epoch = tf.numpy_function(lambda: np.int64(completed), [], tf.int64)
        return tf.data.Dataset.range(steps).map(lambda i: epoch * steps + i)

    numbers = tf.data.Dataset.range(1).flat_map(numbers_of_epoch)
    numbers = numbers.apply(tf.data.experimental.assert_cardinality(steps))
    planned = _planned(plan)

    def without_padding(number: int) -> Batch:
        batch = planned(number)
        return batch._replace(rows=batch.rows[batch.rows >= 0])

    batch_of = planned if shuffle else without_padding
    dataset = _dataset(records, numbers, batch_of, count)
    dataset.vocab_size = tokenizer.vocab_size  # `fit` compares the model's.
    return dataset


def stream(
    plan: BatchPlan,
    first: int = 0,
    last: int | None = None,
    change: Callable[..., Ids] | None = None,
) -> tf.data.Dataset:
    """Stream batches of a plan.

    Batches are numbered over all epochs, from 0. The stream goes from `first`,
    after so many updates, to before `last`, or without end; `change` makes
    other ids of a batch's number, source and target.

    Returns:
        Dataset of `((source (B, S), target_in (B, T)), target_out (B, T))`,
        int32. `target_in` is BOS and the target without EOS, `target_out` the
        target with EOS. PAD fills both, and all of a row of padding.
    """
    numbers = tf.data.Dataset.counter(first)
    if last is not None:
        numbers = tf.data.Dataset.range(first, last)
    return _dataset(plan.corpus, numbers, _planned(plan), None, change)


def _planned(plan: BatchPlan) -> Callable[[int], Batch]:
    """Make a function from a batch's number, over all epochs, to its plan."""
    epoch_of = functools.lru_cache(maxsize=2)(plan.epoch)
    return lambda number: epoch_of(number // len(plan))[number % len(plan)]


def _dataset(
    corpus: TokenisedCorpus,
    numbers: tf.data.Dataset,
    batch: Callable[[int], Batch],
    count: Callable[[np.ndarray], None] | None = None,
    change: Callable[..., Ids] | None = None,
) -> tf.data.Dataset:
    """Assemble the batch of every number; `count` those that are taken."""

    def gather(number: int) -> Ids:
        ids = corpus.gather(*batch(number))
        return change(number, *ids) if change else ids

    # TensorFlow keeps what `numpy_function` calls until the process ends, and
    # with it a corpus and files. The box lets us drop them in time.
    box = [gather]

    def assemble(number: tf.Tensor) -> tuple:
        # Not `from_generator`, which complains when Python exits before it.
        source, target_out = tf.numpy_function(
            lambda number: box[0](int(number)), [number], [tf.int32] * 2
        )
        for ids in (source, target_out):
            ids.set_shape((None, None))
        return number, _shifted(source, target_out)

    def take(number: tf.Tensor, batch: tuple) -> tuple:
        if count:
            tf.numpy_function(count, [number], [])
        return batch

    # Count here, after the batches that are read ahead.
    dataset = numbers.map(assemble).prefetch(8).map(take)
    options = tf.data.Options()
    # If several workers share the batches in `fit`, they split the rows.
    by_rows = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = by_rows
    # There is nothing to tune, and the tuning thread can hold up the end of an
    # iterator for a minute.
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    dataset.has_begin_tokens = True  # `Transformer.fit` need not check.
    # Datasets made from this one, and their iterators, hold it.
    weakref.finalize(dataset, box.clear)
    return dataset


def batch(
    sources: Texts, targets: Texts, tokenizer: Tokenizer | TokenizerAdapter
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Make one batch of texts, for your own data and `fit`.

    It works eagerly and in `tf.data.Dataset.map`.

    Args:
        sources: Source texts: a list, or a string tensor `(B,)`.
        targets: Their translations, as many.
        tokenizer: Vocabulary of both sides, ours or one made elsewhere.

    Returns:
        `((source (B, S), target_in (B, T)), target_out (B, T))`, int32:
        `target_out` ends with `eos_id`, `target_in` is the same, shifted right
        behind `bos_id`; `pad_id` fills both.
    """
    if not isinstance(tokenizer, Tokenizer | TokenizerAdapter):
        raise SettingError("tokenizer", _EXPECTED, tokenizer)
    sources, targets = _texts("sources", sources), _texts("targets", targets)
    rows, others = sources.shape[0], targets.shape[0]
    if None not in (rows, others) and rows != others:
        raise SettingError("targets", f"as many as `sources`, {rows}", others)
    ids = tokenizer.ids
    source = tokenizer.tokenize(sources).to_tensor(ids.pad)
    target = tokenizer.target.tokenize(targets).to_tensor(ids.pad)
    return _shifted(source, target, ids)


def _texts(name: str, texts: Texts) -> tf.Tensor:
    """Convert texts to a string tensor `(B,)`."""
    if not isinstance(texts, tf.Tensor):
        texts = tf.constant(list(checked_texts(name, texts)), tf.string)
    if texts.dtype != tf.string or texts.shape.rank not in (1, None):
        expected = "texts of shape (B,), as `.batch` makes them"
        raise SettingError(name, expected, texts)
    return texts


def _shifted(
    source: tf.Tensor, target_out: tf.Tensor, ids: SpecialIds = OURS
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Add the decoder's input: BOS, and the target without EOS."""
    begin = tf.where(target_out[:, :1] != ids.pad, ids.bos, ids.pad)
    rest = target_out[:, :-1]
    rest = tf.where(rest == ids.eos, ids.pad, rest)
    return (source, tf.concat([begin, rest], axis=1)), target_out
