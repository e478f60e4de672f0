"""Validates during training and at its end, and ends it when nothing improves.

Every pair of the split is read. A pair that is too long is cut, as the
translator cuts its sources: attention would be quadratic in a book's length.

How the validations stand is in each checkpoint, and the best weights lie beside
them. So a session that resumes after a kill counts as the killed one did.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import EOS_ID, PAD_ID, Search, TrainingConfig
from keras_transformer.data import batching
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.model import Transformer
from keras_transformer.runs import checkpoints, lock
from keras_transformer.runs.checkpoints import Progress, Standing
from keras_transformer.runs.history import History
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training.callbacks import Logs, StopTraining
from keras_transformer.translation import evaluation
from keras_transformer.translation.text_batches import numbered
from keras_transformer.translation.translator import Translator


class Patience:
    """Counts validations since the best one.

    Only weights that are kept can be the best: the count begins with the first
    validation after `patience` was given.

    Attributes:
        standing: How the validations stand now.
    """

    def __init__(
        self, recipe: TrainingConfig, standing: Standing | None
    ) -> None:
        self.limit, self.on = recipe.patience, recipe.patience_on
        self.every = recipe.validation_steps
        self.standing = Standing(on=self.on)
        if standing and standing.on == self.on:
            self.standing = standing

    @property
    def is_over(self) -> bool:
        """Whether the training ends, or has ended, by now."""
        return self.limit is not None and self.standing.waited >= self.limit

    def count(self, step: int, value: float) -> bool:
        """Count a validation; return whether its weights are the best.

        One off the interval comes from the end of a session: without an
        interruption there would be none.
        """
        if self.limit is None or step % self.every:
            return False
        value = float(f"{value:.6g}")  # The last bits are no improvement.
        best = self.standing.value
        is_better = value > best if self.on == "bleu" else value < best
        if is_better or self.standing.best is None:
            self.standing = Standing(step, value, on=self.on)
            return True
        waited = self.standing.waited + 1
        self.standing = self.standing._replace(waited=waited)
        return False

    def reason(self) -> str:
        """Say why the training ends, as the beginning of a sentence."""
        best, value, waited, on = self.standing
        what = {"loss": "loss", "bleu": "BLEU"}[on]
        return (
            f"No better validation {what} than {value:.5g}, of update {best}, "
            f"in {waited} validation{'s' if waited > 1 else ''}"
        )


logger = logging.getLogger("keras_transformer")
_LOGGED = 400  # Characters of a sentence.


class Abandoned(Exception):
    """A validation is no longer wanted."""


class Validator:
    """Measures a model's present weights.

    Args:
        model: A `Transformer`, compiled with its loss.
        tokenizer: The run's tokenizer.
        batches: Finite dataset, as in `validation_batches`.
        sample: Pairs of source and target text, decoded for BLEU.
        run: The configuration, which says where texts are cut.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        batches: tf.data.Dataset,
        sample: Sequence[tuple[str, str]],
        run: RunConfig,
    ) -> None:
        self.model = model
        self.batches = batches
        self.sources, self.targets = zip(*sample, strict=True)
        self.translator = Translator(model, tokenizer)
        # Greedy. `validation_batches` has logged which pairs are cut.
        self.tokenize = evaluation.bleu_tokenizer(run.target_lang)
        self.options = Search(
            beam_size=1,
            max_source_length=run.longest_source,
            max_extra_length=run.search.max_extra_length,
        )
        self.measured = 0  # How often, so that the log shows other sentences.

    def measure(
        self, what: str, is_unwanted: Callable[[], bool] = lambda: False
    ) -> dict[str, float] | None:
        """Evaluate, translate a sample, and log the figures.

        Args:
            what: The start of the line, such as "step 7".
            is_unwanted: Called after every batch; returns whether to stop.

        Returns:
            The figures that `Result.validation` describes; None if it was
            stopped or failed. A failure is logged, since it is no reason to
            lose a training.
        """

        def leave_off(*_: Any, **__: Any) -> None:
            if is_unwanted():
                raise Abandoned

        try:
            return self._measure(what, leave_off)
        except Abandoned:
            pass
        except Exception as error:  # Any failure, as said above.
            logger.error(
                "%s  could not be validated, which changes nothing in the "
                "training: %s: %.300s",
                what,
                type(error).__name__,
                error,
            )
        return None

    def _measure(
        self, what: str, after_batch: Callable[..., None]
    ) -> dict[str, float]:
        results = self.model.evaluate(
            self.batches,
            verbose=0,
            return_dict=True,
            callbacks=[
                keras.callbacks.LambdaCallback(on_test_batch_end=after_batch)
            ],
        )
        found, _ = self.translator.n_best(
            self.sources, self.options, parallel=1, progress=after_batch
        )
        translations = [hypotheses[0].text for hypotheses in found]
        bleu = evaluation.bleu(
            translations, self.targets, tokenize=self.tokenize
        )
        names = ("loss", "perplexity", "token_accuracy")
        figures = {name: float(results[name]) for name in names}
        figures["bleu"] = bleu.value
        logger.info(
            "%s  validation loss %.3f  perplexity %.2f  accuracy %.1f %%  "
            "BLEU %.1f (greedy, %d sentences, %s)",
            what,
            figures["loss"],
            figures["perplexity"],
            100 * figures["token_accuracy"],
            figures["bleu"],
            len(self.sources),
            bleu.signature,
        )
        shown = self.measured % len(self.sources)
        self.measured += 1
        logger.info("    source      %s", _begin(self.sources[shown]))
        logger.info("    translation %s", _begin(translations[shown]))
        return figures


def _begin(text: str) -> str:
    """Shorten a text for the log."""
    return text if len(text) <= _LOGGED else f"{text[:_LOGGED]}…"


@dataclasses.dataclass(eq=False)
class Validation(keras.callbacks.Callback):
    """Validates at intervals of updates, and when training ends."""

    now: Callable[[], Progress]
    history: History  # Gets a row for every validation.
    validator: Validator
    steps: int  # Between validations.
    # After a signal no validation begins, and a running one stops.
    stop: StopTraining
    patience: Patience
    target_bleu: float | None = None  # Ends the training; None for never.
    last: Progress = Progress()  # At the last validation.

    def __post_init__(self) -> None:
        super().__init__()

    def measured(self, now: Progress) -> Progress:
        """Add to a progress what the validations say of it."""
        is_last = now.step == self.last.step
        return dataclasses.replace(
            now,
            figures=self.last.figures if is_last else None,
            standing=self.patience.standing,
        )

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.now().step % self.steps == 0 and not self.stop.signal:
            self.validate()

    def on_train_end(self, logs: Logs = None) -> None:
        if self.now().step % self.steps and not self.stop.signal:
            self.validate()

    def validate(self) -> None:
        now, run_dir = self.now(), self.history.run_dir
        if self.validator.model is not self.model:
            self.validator.model.set_weights(self.model.get_weights())
        figures = self.validator.measure(
            f"step {now.step}", lambda: self.stop.signal is not None
        )
        if figures:
            value = figures[self.patience.on]
            is_best = self.patience.count(now.step, value)
            now = dataclasses.replace(
                now, figures=figures, standing=self.patience.standing
            )
            if is_best:
                lock.check(run_dir)
                checkpoints.save_best(run_dir, self.validator.model, now)
        if self.stop.signal:  # No further step: the sender may be in a hurry.
            self.model.stop_training = True
        if figures is None:
            return
        self.history.add(
            now,
            validation_loss=figures["loss"],
            validation_perplexity=figures["perplexity"],
            validation_accuracy=figures["token_accuracy"],
            validation_bleu=figures["bleu"],
        )
        # Last: a validation that is not in its checkpoint is done again.
        self.last = now
        checkpoints.note(run_dir, now)
        checkpoints.forget_best(run_dir, self.patience.standing)
        if self.target_bleu is not None and figures["bleu"] >= self.target_bleu:
            self._end(f"BLEU has reached {self.target_bleu:g}", now)
        if self.patience.is_over:
            self._end(self.patience.reason(), now)

    def _end(self, reason: str, now: Progress) -> None:
        if self.stop.wanted:  # Other workers have yet to hear of it.
            return
        logger.info("%s: ending after step %d.", reason, now.step)
        self.stop.wanted = True
        self.model.stop_training = True


def validation_batches(
    corpus: TokenisedCorpus,
    batch_tokens: int,
    longest_source: int,
    split: str,
    max_extra_length: int = Search.max_extra_length,
) -> tf.data.Dataset:
    """Stream every pair once, and log those that are cut.

    Args:
        corpus: The pairs, in the order of the split.
        batch_tokens: As in `evaluation_batches`.
        longest_source: Tokens, including the end token, after which a source
            is cut. A target is cut where a translation of the longest source
            must end.
        split: The pairs' name in the log.
        max_extra_length: Most tokens of a translation beyond its source's.

    Returns:
        Dataset in the form of `evaluation_batches`. If a pair must be cut, S is
        at most `longest_source` and T at most `max_extra_length` more.
    """
    longest_target = longest_source + max_extra_length
    batches = batching.evaluation_batches(corpus, batch_tokens)
    is_long = (np.asarray(corpus.source_lengths) > longest_source) | (
        np.asarray(corpus.target_lengths) > longest_target
    )
    if not is_long.any():
        return batches
    logger.warning(
        "%s: %d of %d pairs are cut in every validation, after %d tokens of "
        "the source and %d of the target: line %s.",
        split,
        is_long.sum(),
        len(is_long),
        longest_source,
        longest_target,
        numbered(is_long),
    )

    def cut(
        inputs: tuple[tf.Tensor, tf.Tensor], target: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        source, target_in = inputs
        return (
            (cut_rows(source, longest_source), target_in[:, :longest_target]),
            cut_rows(target, longest_target),
        )

    return batches.map(cut)


def cut_rows(ids: tf.Tensor, longest: int) -> tf.Tensor:
    """Shorten the longer rows of `(B, L)` to `longest` ids, EOS still last."""
    is_long = tf.reduce_any(ids[:, longest:] != PAD_ID, axis=1)  # (B,)
    kept = ids[:, :longest]
    last = tf.where(is_long, EOS_ID, kept[:, -1])
    return tf.concat([kept[:, :-1], last[:, None]], axis=1)
