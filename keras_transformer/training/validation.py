"""Validates during training and at its end, where the better weights are kept.

Every pair of the split is read. A pair that is too long is cut, as the
translator cuts its sources: attention would be quadratic in a book's length.

How the validations stand is in each checkpoint, and the best weights lie beside
them. So a session that resumes after a kill counts as the killed one did.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import (
    EOS_ID,
    PAD_ID,
    Search,
    TrainingConfig,
    UserError,
)
from keras_transformer.data import batching
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging, checkpoints, history, layout
from keras_transformer.runs.averaging import (
    AVERAGE,
    BEST,
    LAST,
    Chosen,
    final_result,
)
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    Progress,
    Standing,
    find_best,
    newest_undamaged,
)
from keras_transformer.runs.history import History
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training.request import Session
from keras_transformer.translation import evaluation
from keras_transformer.translation.text_batches import Batching, numbered
from keras_transformer.translation.translator import Translator

logger = logging.getLogger("keras_transformer")


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

    def count(self, step: int, figures: Mapping[str, float]) -> bool:
        """Count a validation; return whether its weights are the best.

        One off the interval comes from the end of a session: without an
        interruption there would be none.
        """
        if self.limit is None or step % self.every:
            return False
        # The last bits are no improvement.
        rounded = {name: float(f"{x:.6g}") for name, x in figures.items()}
        best = self.standing
        if best.best is None or badness(rounded, self.on) < badness(
            {"loss": best.loss, best.on: best.value}, self.on
        ):
            value, loss = rounded[self.on], rounded["loss"]
            self.standing = Standing(step, value, on=self.on, loss=loss)
            return True
        self.standing = best._replace(waited=best.waited + 1)
        return False

    def reason(self) -> str:
        """Say why the training ends, as the beginning of a sentence."""
        best, value, waited, on, loss = self.standing
        what = {"loss": "loss", "bleu": "BLEU"}[on]
        if on == "bleu" and not value:  # The loss has decided.
            what, value = "loss", loss
        return (
            f"No better validation {what} than {value:.5g}, of update {best}, "
            f"in {waited} validation{'s' if waited > 1 else ''}"
        )


def badness(figures: Mapping[str, float], by: str) -> tuple[float, ...]:
    """Make a key to sort validations by, best first; the loss breaks ties."""
    if by == "bleu":
        return -figures["bleu"], figures["loss"]
    return (figures["loss"],)


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
        best = evaluation.bleu(
            self.targets, self.targets, tokenize=self.tokenize
        )
        if not best.value:
            logger.warning(
                "No reference has four words in a row, so BLEU is always 0: "
                "the loss decides in its place."
            )

    def measure(
        self, what: str, is_unwanted: Callable[[], bool] = lambda: False
    ) -> dict[str, float] | None:
        """Evaluate, translate a sample, and log the figures.

        `what` begins the line, such as "step 7"; `is_unwanted`, asked after
        every batch, stops it. It returns the figures that `Chosen.validation`
        describes; None if it was stopped or failed, which is logged, since it
        is no reason to lose a training.
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
            self.sources,
            self.options,
            Batching(parallel=1, progress=after_batch),
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


class Validation:
    """Validates the weights of a training, and notes what it found.

    Attributes:
        last: The progress at the last validation.
    """

    def __init__(
        self,
        validator: Validator,
        history: History,
        recipe: TrainingConfig,
        patience: Patience,
    ) -> None:
        self.validator, self.history = validator, history
        self.target_bleu, self.patience = recipe.target_bleu, patience
        self.last = Progress()

    def measured(self, now: Progress) -> Progress:
        """Add to a progress what the validations say of it."""
        is_last = now.step == self.last.step
        return dataclasses.replace(
            now,
            figures=self.last.figures if is_last else None,
            standing=self.patience.standing,
        )

    def validate(
        self,
        now: Progress,
        model: keras.Model,
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> str | None:
        """Validate a model's weights, of update `now.step`.

        It returns why the training ends, if it does.
        """
        run_dir, measured = self.history.run_dir, self.validator.model
        if measured is not model:
            measured.set_weights(model.get_weights())
        figures = self.validator.measure(f"step {now.step}", is_unwanted)
        if figures is None:
            return None
        is_best = self.patience.count(now.step, figures)
        standing = self.patience.standing
        now = dataclasses.replace(now, figures=figures, standing=standing)
        if is_best:
            layout.check_lock(run_dir)
            checkpoints.save_best(run_dir, measured, now)
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
        checkpoints.forget_best(run_dir, standing)
        if self.target_bleu is not None and figures["bleu"] >= self.target_bleu:
            return f"BLEU has reached {self.target_bleu:g}"
        return self.patience.reason() if self.patience.is_over else None


def finish(
    session: Session,
    validator: Validator,
    last: list[np.ndarray],
    standing: Standing,
) -> None:
    """Keep the better of the averaged and the last weights; draw the curve.

    If they were compared already, nothing is written. In a short training an
    average reaches back to early weights, which spoils the result. With
    `patience`, the weights of the best validation are a third choice. The
    weights of the validator's model are replaced.
    """
    run, run_dir = session.run, session.run_dir
    layout.check_lock(run_dir)
    result = final_result(run_dir)
    chosen = averaging.choose_average(run_dir, run)
    # A later session may ask for another `average`.
    if result is None or result.averaged not in (0, chosen.averaged):
        _compare(session, validator, last, standing, chosen)
        try:
            logger.info("Wrote %s.", history.draw(run_dir))
        except UserError as error:  # A picture is no reason to fail.
            logger.warning("Left out the learning curve: %s", error)
    logger.info(
        "Next: keras-transformer evaluate --run-dir %s, or keras-transformer "
        "translate --run-dir %s < FILE, or keras-transformer export --run-dir "
        "%s --output DIR",
        *[shlex.quote(str(run_dir))] * 3,
    )


def _compare(
    session: Session,
    validator: Validator,
    last: list[np.ndarray],
    standing: Standing,
    chosen: Chosen,
) -> None:
    """Write the best after validation, or the average if that fails."""
    run, run_dir, recipe = session.run, session.run_dir, session.run.training
    averaged = chosen.load(run, purpose="Validating")
    names = chosen.checkpoints
    averages = chosen.averages
    newest, state = newest_undamaged(run_dir, 1)[0]
    noted = Progress.of(state)
    weights = {LAST: last, AVERAGE: averaged.get_weights()}
    made_of = {LAST: (newest.name,), AVERAGE: names}
    figures = {}
    if noted.figures:
        figures[LAST] = noted.figures
        if len(names) == 1:  # They are the same.
            figures[AVERAGE] = noted.figures
    best = find_best(run_dir, standing) if recipe.patience else None
    if best and best[1].step != noted.step:  # Else they are one of the two.
        path, progress = best
        averaged.load_weights(path / WEIGHTS_FILE)
        weights[BEST], made_of[BEST] = averaged.get_weights(), (path.name,)
        if progress.figures:
            figures[BEST] = progress.figures
    called = {LAST: "last weights", AVERAGE: averages, BEST: "best weights"}
    for which in [x for x in weights if x not in figures]:
        validator.model.set_weights(weights[which])
        if (found := validator.measure(called[which])) is None:
            break
        figures[which] = found
    by = recipe.patience_on if recipe.patience else "loss"
    better = AVERAGE
    if figures.keys() >= {AVERAGE, LAST}:
        if len({found["bleu"] for found in figures.values()}) == 1:
            by = "loss"
        # Among equals the average wins, as in the paper.
        order = [which for which in (AVERAGE, LAST, BEST) if which in figures]
        better = min(order, key=lambda which: badness(figures[which], by))
    averaged.set_weights(weights[better])
    path = run_dir / layout.FINAL_FILE
    with files.whole(path) as partial:
        averaged.save_weights(partial)
    result = Chosen(
        step=noted.step,
        better=better,
        averages=averages,
        checkpoints=made_of[better],
        validation=figures,
        weights=files.checksum(path),
        by=by,
        averaged=len(names),
        run_dir=run_dir,
        is_final=True,
    )
    result.save()
    logger.info("Wrote %s, the %s.", path, result.sentence())


def validation_batches(
    corpus: TokenisedCorpus,
    batch_tokens: int,
    longest_source: int,
    split: str,
    max_extra_length: int = Search.max_extra_length,
) -> tf.data.Dataset:
    """Stream every pair once, shortest first, and log those that are cut.

    S is at most `longest_source`, the end token included, and T at most
    `max_extra_length` more, where a translation of the longest source ends.
    """
    longest_target = longest_source + max_extra_length
    plan = BatchPlan(corpus, batch_tokens, shuffle=False)
    batches = batching.stream(plan, last=len(plan))
    is_long = (np.asarray(corpus.source.lengths) > longest_source) | (
        np.asarray(corpus.target.lengths) > longest_target
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
