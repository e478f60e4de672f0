"""Validates during training and at its end, where the better weights are kept.

Every pair of the split is read. A pair that is too long is cut, as the
translator cuts its sources: attention would be quadratic in a book's length.

How the validations stand is in each checkpoint, and the best weights lie beside
them. So a session that resumes after a kill counts as the killed one did.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import (
    EOS_ID,
    PAD_ID,
    Search,
    TrainingConfig,
    logger,
)
from keras_transformer.data import batching
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.machine import files
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging, checkpoints, layout
from keras_transformer.runs.averaging import AVERAGE, BEST, LAST, Chosen
from keras_transformer.runs.checkpoints import Progress, Standing
from keras_transformer.runs.history import History, draw
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training.building import Training
from keras_transformer.translation import evaluation
from keras_transformer.translation.text_batches import Batching, numbered
from keras_transformer.translation.translator import Translator

# A few thousand sentences in large batches would be mostly padding.
VALIDATION_TOKENS = 4_096


def counted(
    recipe: TrainingConfig, now: Progress, figures: Mapping[str, float]
) -> Standing:
    """Count a validation; with `patience`, its weights may be the best.

    Only weights that are kept can be: the count begins with the first one after
    `patience` was given, or `patience_on` changed. One off the interval comes
    from the end of a session: without an interruption there would be none.
    """
    on, before = recipe.patience_on, now.standing
    if before is None or before.on != on:
        before = Standing(on=on)
    if recipe.patience is None or now.step % recipe.validation_steps:
        return before
    # The last bits are no improvement.
    rounded = {name: float(f"{x:.6g}") for name, x in figures.items()}
    best = {"loss": before.loss, on: before.value}
    if before.best is None or badness(rounded, on) < badness(best, on):
        return Standing(now.step, rounded[on], on=on, loss=rounded["loss"])
    return before._replace(waited=before.waited + 1)


def reached(recipe: TrainingConfig, now: Progress) -> dict[str, str]:
    """Say which settings end a training by what validations found, and why."""
    why, target, figures = dict[str, str](), recipe.target_bleu, now.figures
    if target is not None and figures and figures["bleu"] >= target:
        why["target_bleu"] = f"BLEU has reached {target:g}"
    best, value, waited, on, loss = now.standing or Standing()
    limit = recipe.patience
    if limit and limit <= waited and on == recipe.patience_on:
        what = {"loss": "loss", "bleu": "BLEU"}[on]
        if on == "bleu" and not value:  # The loss has decided.
            what, value = "loss", loss
        why["patience"] = (
            f"No better validation {what} than {value:.5g}, of update {best}, "
            f"in {waited} validation{'s' if waited > 1 else ''}"
        )
    return why


def badness(figures: Mapping[str, float], by: str) -> tuple[float, ...]:
    """Make a key to sort validations by, best first; the loss breaks ties."""
    if by == "bleu":
        return -figures["bleu"], figures["loss"]
    return (figures["loss"],)


class Validation:
    """Validates weights by a model of their shape; keeps the better ones."""

    def __init__(self, training: Training, model: Transformer) -> None:
        run, self.run_dir = training.run, training.session.run_dir
        self.run, self.model, self.batches = run, model, training.validation
        self.sources, self.targets = zip(*training.watched, strict=True)
        self.translator = Translator(model, training.tokenizer)
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
        self, now: Progress, model: keras.Model, history: History
    ) -> Progress:
        """Validate the weights of update `now.step`; add what was found."""
        if self.model is not model:
            self.model.set_weights(model.get_weights())
        figures = self.measure(f"step {now.step}")
        # The steps to come would add to the metrics of this evaluation.
        self.model.reset_metrics()
        if figures is None:
            return now
        layout.check_lock(self.run_dir)
        standing = counted(self.run.training, now, figures)
        now = dataclasses.replace(now, figures=figures, standing=standing)
        if standing.best == now.step:
            checkpoints.save_best(self.run_dir, self.model, now)
        row = {f"validation_{name}": x for name, x in figures.items()}
        row["validation_accuracy"] = row.pop("validation_token_accuracy")
        history.add(now, **row)
        # Last: a validation that is not in its checkpoint is done again.
        checkpoints.note(self.run_dir, now)
        checkpoints.forget_best(self.run_dir, standing)
        return now

    def measure(self, what: str) -> dict[str, float] | None:
        """Evaluate, translate a sample, and log the figures.

        `what` begins the line, such as "step 7". It returns the figures that
        `Chosen.validation` describes; None if it failed, which is logged, since
        it is no reason to lose a training.
        """
        try:
            results = self.model.evaluate(
                self.batches, verbose=0, return_dict=True
            )
            best, _ = self.translator.search_texts(
                self.sources, self.search, Batching(parallel=1)
            )
        except Exception as error:  # Any failure, as said above.
            logger.error(
                "%s  could not be validated, which changes nothing in the "
                "training: %s: %.300s",
                what,
                type(error).__name__,
                error,
            )
            return None
        translations = [hypotheses[0].text for hypotheses in best]
        bleu = self._bleu(translations)
        names = ("loss", "perplexity", "token_accuracy")
        figures = {name: float(results[name]) for name in names}
        logger.info(
            "%s  validation loss %.3f  perplexity %.2f  accuracy %.1f %%  "
            "BLEU %.1f (greedy, %d sentences, %s)",
            what,
            figures["loss"],
            figures["perplexity"],
            100 * figures["token_accuracy"],
            bleu.value,
            len(translations),
            bleu.signature,
        )
        shown = self.measured % len(translations)
        self.measured += 1
        logger.info("    source      %.400s", self.sources[shown])
        logger.info("    translation %.400s", translations[shown])
        return {**figures, "bleu": bleu.value}

    def _bleu(self, texts: Sequence[str]) -> evaluation.Score:
        return evaluation.bleu(texts, self.targets, tokenize=self.tokenize)

    def finish(self, now: Progress, last: list[np.ndarray]) -> None:
        """Draw the curve; keep the better of the averaged and last weights.

        If they were compared already, nothing is written. With `patience`, the
        weights of the best validation are a third choice. The weights of the
        model are replaced.
        """
        run_dir = self.run_dir
        layout.check_lock(run_dir)
        result = averaging.final_result(run_dir)
        # A later session may ask for another `average`, if it can have it.
        wanted = self.run.training.average
        chosen = averaging.choose(run_dir, self.run, wanted)
        have = chosen.averaged
        if (
            result is None
            or (have == wanted and result.averaged not in (0, have))
            or result.is_damaged()
        ):
            draw(run_dir)
            self._keep_better(chosen, now, last)

    def _keep_better(
        self, chosen: Chosen, now: Progress, last: list[np.ndarray]
    ) -> None:
        """Write the best after validation, or the average if that fails."""
        recipe, model = self.run.training, chosen.load(self.run)
        of_average = now.figures if chosen.averaged == 1 else None
        # Weights, the checkpoints they are of, and their figures if known.
        made = {
            AVERAGE: (model.get_weights(), chosen.checkpoints, of_average),
            LAST: (last, chosen.checkpoints[-1:], now.figures),
        }
        best = recipe.patience and checkpoints.find_best(
            self.run_dir, now.standing
        )
        if best and best[1].step != now.step:
            model.load_weights(best[0] / checkpoints.WEIGHTS_FILE)
            made[BEST] = model.get_weights(), (best[0].name,), best[1].figures
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
            step=now.step,
            better=better,
            checkpoints=names,
            validation=measured,
            checksum=files.checksum(path),
            by=by,
        )
        result.save()
        logger.info("Wrote %s, the %s.", path, result.sentence())


def validation_batches(
    corpus: TokenisedCorpus, run: RunConfig
) -> tf.data.Dataset:
    """Stream every pair once, shortest first, and log those that are cut.

    S is at most `longest_source`, the end token included, and T at most
    `max_extra_length` more, where a translation of the longest source ends.
    """
    longest = run.longest_source
    limits = longest, longest + run.search.max_extra_length
    batch_tokens = min(run.training.batch_tokens, VALIDATION_TOKENS)
    plan = BatchPlan(corpus, batch_tokens, shuffle=False)
    lengths = np.stack([corpus.source.lengths, corpus.target.lengths], axis=1)
    is_long: np.ndarray = np.any(lengths > limits, axis=1)
    if is_long.any():
        logger.warning(
            "%s: %d of %d pairs are cut in every validation, after %d tokens "
            "of the source and %d of the target: line %s.",
            run.validation_split,
            is_long.sum(),
            len(is_long),
            *limits,
            numbered(is_long),
        )

    def shortened(number: int, *sides: np.ndarray) -> Any:
        return tuple(map(cut_rows, sides, limits))

    return batching.stream(plan, last=len(plan), change=shortened)


def cut_rows(ids: np.ndarray, longest: int) -> np.ndarray:
    """Shorten the longer rows of `(B, L)` to `longest` ids, EOS still last."""
    kept, cut = ids[:, :longest], ids[:, longest:]
    kept[(cut != PAD_ID).any(axis=1), -1] = EOS_ID
    return kept
