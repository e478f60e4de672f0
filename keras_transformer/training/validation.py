"""Validates during training and at its end, where the better weights are kept.

Every pair of the split is read. A pair that is too long is cut, as the
translator cuts its sources: attention would be quadratic in a book's length.

How the validations stand is in each checkpoint, and the best weights lie beside
them. So a session that resumes after a kill counts as the killed one did.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
import logging
import pathlib
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
from keras_transformer.runs import averaging, checkpoints, layout
from keras_transformer.runs.averaging import AVERAGE, BEST, LAST, Chosen
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    Progress,
    Standing,
    find_best,
)
from keras_transformer.runs.history import History, draw
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation import evaluation
from keras_transformer.translation.text_batches import Batching, numbered
from keras_transformer.translation.translator import Translator

logger = logging.getLogger("keras_transformer")


class Patience:
    """Counts validations since the best one.

    Only weights that are kept can be the best: the count begins with the first
    validation after `patience` was given.
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


class Abandoned(Exception):
    """A validation is no longer wanted."""


class Validation:
    """Validates the weights of a training, and keeps the better at its end.

    The loss is that of `batches`, as `validation_batches` makes them. The
    `sample`, pairs of source and target text, is decoded greedily for BLEU.
    `last` is the progress at the last validation.
    """

    def __init__(
        self,
        run_dir: pathlib.Path,
        run: RunConfig,
        model: Transformer,
        tokenizer: Tokenizer,
        batches: tf.data.Dataset,
        sample: Sequence[tuple[str, str]],
        patience: Patience,
        last: Progress,
    ) -> None:
        self.run_dir, self.run, self.model = run_dir, run, model
        self.batches, self.patience, self.last = batches, patience, last
        self.sources, self.targets = zip(*sample, strict=True)
        self.translator = Translator(model, tokenizer)
        self.tokenize = evaluation.bleu_tokenizer(run.target_lang)
        # `validation_batches` has logged which pairs are cut.
        self.search = Search(
            beam_size=1,
            max_source_length=run.longest_source,
            max_extra_length=run.search.max_extra_length,
        )
        self.measured = 0  # How often, so that the log shows other sentences.
        if not self._bleu(self.targets).value:
            logger.warning(
                "No reference has four words in a row, so BLEU is always 0: "
                "the loss decides in its place."
            )

    def validate(
        self,
        now: Progress,
        model: keras.Model,
        history: History,
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> str | None:
        """Validate a model's weights, of update `now.step`, and note it.

        It returns why the training ends, if it does.
        """
        if self.model is not model:
            self.model.set_weights(model.get_weights())
        figures = self.measure(f"step {now.step}", is_unwanted)
        if figures is None:
            return None
        layout.check_lock(self.run_dir)
        is_best = self.patience.count(now.step, figures)
        standing = self.patience.standing
        now = dataclasses.replace(now, figures=figures, standing=standing)
        if is_best:
            checkpoints.save_best(self.run_dir, self.model, now)
        names = {"token_accuracy": "accuracy"}
        history.add(
            now,
            **{f"validation_{names.get(n, n)}": x for n, x in figures.items()},
        )
        # Last: a validation that is not in its checkpoint is done again.
        self.last = now
        checkpoints.note(self.run_dir, now)
        checkpoints.forget_best(self.run_dir, standing)
        target = self.run.training.target_bleu
        if target is not None and figures["bleu"] >= target:
            return f"BLEU has reached {target:g}"
        return self.patience.reason() if self.patience.is_over else None

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

        watching = keras.callbacks.LambdaCallback(on_test_batch_end=leave_off)
        one_by_one = Batching(parallel=1, progress=leave_off)
        try:
            results = self.model.evaluate(
                self.batches, verbose=0, return_dict=True, callbacks=[watching]
            )
            best, _ = self.translator.search_texts(
                self.sources, self.search, one_by_one
            )
        except Abandoned:
            return None
        except Exception as error:  # Any failure, as said above.
            logger.error(
                "%s  could not be validated, which changes nothing in the "
                "training: %s: %.300s",
                *(what, type(error).__name__, error),
            )
            return None
        translations = [hypotheses[0].text for hypotheses in best]
        bleu = self._bleu(translations)
        names = ("loss", "perplexity", "token_accuracy")
        figures = {name: float(results[name]) for name in names}
        logger.info(
            "%s  validation loss %.3f  perplexity %.2f  accuracy %.1f %%  "
            "BLEU %.1f (greedy, %d sentences, %s)",
            *(what, figures["loss"], figures["perplexity"]),
            *(100 * figures["token_accuracy"], bleu.value),
            *(len(translations), bleu.signature),
        )
        shown = self.measured % len(translations)
        self.measured += 1
        logger.info("    source      %.400s", self.sources[shown])
        logger.info("    translation %.400s", translations[shown])
        return {**figures, "bleu": bleu.value}

    def _bleu(self, texts: Sequence[str]) -> evaluation.Score:
        return evaluation.bleu(texts, self.targets, tokenize=self.tokenize)

    def finish(self, last: list[np.ndarray]) -> None:
        """Keep the better of the averaged and the last weights; draw the curve.

        If they were compared already, nothing is written. In a short training
        an average reaches back to early weights, which spoils the result. With
        `patience`, the weights of the best validation are a third choice. The
        weights of the model are replaced.
        """
        run_dir = self.run_dir
        layout.check_lock(run_dir)
        result = averaging.final_result(run_dir)
        chosen = averaging.choose_average(run_dir, self.run)
        # A later session may ask for another `average`, if it can have it.
        wanted, have = self.run.training.average, chosen.averaged
        if (
            result is None
            or (have == wanted and result.averaged not in (0, have))
            or result.is_damaged()
        ):
            self._keep_better(chosen, last)
            try:
                logger.info("Wrote %s.", draw(run_dir))
            except UserError as error:  # A picture is no reason to fail.
                logger.warning("Left out the learning curve: %s", error)
        logger.info(
            "Next: keras-transformer evaluate --run-dir %s, or "
            "keras-transformer translate --run-dir %s < FILE, or "
            "keras-transformer export --run-dir %s --output DIR",
            *[shlex.quote(str(run_dir))] * 3,
        )

    def _keep_better(self, chosen: Chosen, last: list[np.ndarray]) -> None:
        """Write the best after validation, or the average if that fails."""
        recipe, model = self.run.training, chosen.load(self.run)
        newest = chosen.checkpoints[-1]
        step = checkpoints.step_of(pathlib.Path(newest))
        known = self.last.figures if self.last.step == step else None
        # Weights, the checkpoints they are of, and their figures if known.
        made = {
            AVERAGE: (
                *(model.get_weights(), chosen.checkpoints),
                known if chosen.averaged == 1 else None,
            ),
            LAST: (last, (newest,), known),
        }
        standing = self.patience.standing
        best = recipe.patience and find_best(self.run_dir, standing)
        if best and best[1].step != step:
            model.load_weights(best[0] / WEIGHTS_FILE)
            only = (best[0].name,)
            made[BEST] = model.get_weights(), only, best[1].figures
        measured = {}
        for which, (weights, _, figures) in made.items():
            if not figures:
                self.model.set_weights(weights)
                figures = self.measure(f"{which} weights")
            if figures:
                measured[which] = figures
        by = recipe.patience_on if recipe.patience else "loss"
        if len({figures["bleu"] for figures in measured.values()}) == 1:
            by = "loss"
        # Among equals the average, the first, wins, as in the paper.
        better = AVERAGE
        if measured.keys() >= {AVERAGE, LAST}:
            better = min(measured, key=lambda x: badness(measured[x], by))
        weights, names, _ = made[better]
        model.set_weights(weights)
        path = self.run_dir / layout.FINAL_FILE
        with files.whole(path) as partial:
            model.save_weights(partial)
        result = dataclasses.replace(
            chosen,
            step=step,
            better=better,
            checkpoints=names,
            validation=measured,
            weights=files.checksum(path),
            by=by,
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
    if is_long.any():
        logger.warning(
            "%s: %d of %d pairs are cut in every validation, after %d tokens "
            "of the source and %d of the target: line %s.",
            *(split, is_long.sum(), len(is_long)),
            *(longest_source, longest_target, numbered(is_long)),
        )
    return batches.map(
        lambda inputs, target: (
            (
                cut_rows(inputs[0], longest_source),
                inputs[1][:, :longest_target],
            ),
            cut_rows(target, longest_target),
        )
    )


def cut_rows(ids: tf.Tensor, longest: int) -> tf.Tensor:
    """Shorten the longer rows of `(B, L)` to `longest` ids, EOS still last."""
    is_long = tf.reduce_any(ids[:, longest:] != PAD_ID, axis=1)  # (B,)
    kept = ids[:, :longest]
    last = tf.where(is_long, EOS_ID, kept[:, -1])
    return tf.concat([kept[:, :-1], last[:, None]], axis=1)
