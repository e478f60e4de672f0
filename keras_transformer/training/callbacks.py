"""What happens around the steps of `fit`: time, checkpoints, validation."""

import contextlib
import logging
import pathlib
import signal
import time
from collections.abc import Callable

import keras

from keras_transformer.runs.checkpoints import Progress
from keras_transformer.translation import evaluation
from keras_transformer.translation.translator import Translator

logger = logging.getLogger("keras_transformer")


class Stopwatch(keras.callbacks.Callback):
    """Counts updates and seconds, over all sessions of a run.

    It looks at the clock once an update, so that what is written in a
    checkpoint and what ends a training is the same time.

    Args:
        start: The progress that training resumes from.
    """

    def __init__(self, start: Progress) -> None:
        super().__init__()
        self.progress = self.start = start

    def now(self) -> Progress:
        """The progress at the end of the last update."""
        return self.progress

    def on_train_begin(self, logs=None):
        self.began = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        seconds = time.monotonic() - self.began
        self.progress = Progress(
            self.progress.step + 1, self.start.seconds + seconds
        )


class StopTraining(keras.callbacks.Callback):
    """Ends `fit` after the running step: on a signal, or when time is up.

    The first Ctrl-C or SIGTERM lets the step end, so that a checkpoint can be
    written; a second one ends the process at once.

    Args:
        now: Tells the progress.
        minutes: Minutes of training in all; None for no limit.

    Attributes:
        signal: The signal that came, or None. SIGTERM stands for the end of
            another worker's training.
    """

    def __init__(self, now, minutes: float | None) -> None:
        super().__init__()
        self.now = now
        self.minutes = minutes
        self.signal = None
        self.handlers = {}

    def on_train_begin(self, logs=None):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.handlers[number] = signal.signal(number, self._note)

    def _note(self, number, frame):
        self.signal = signal.Signals(number)
        logger.info("%s: ending after this step.", self.signal.name)
        signal.signal(number, signal.SIG_DFL)

    def on_train_batch_end(self, batch, logs=None):
        over = self.minutes and self.now().seconds >= 60 * self.minutes
        if self.signal or over:
            self.model.stop_training = True
        elif self.model.stop_training:
            logger.info("Another worker was asked to end: ending with it.")
            self.signal = signal.SIGTERM

    def on_train_end(self, logs=None):
        self.restore_handlers()

    def restore_handlers(self) -> None:
        """Let signals do what they did before."""
        for number, handler in self.handlers.items():
            signal.signal(number, handler)


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves every so many minutes or updates, and when training ends.

    Args:
        save: Writes a checkpoint of the `Progress` it is given, and returns
            its path.
        progress: Called without arguments, tells the `Progress` to save.
        minutes: Minutes between checkpoints.
        steps: Updates between checkpoints; overrules the minutes.
    """

    def __init__(
        self,
        save: Callable[[Progress], pathlib.Path],
        progress: Callable[[], Progress],
        minutes: float,
        steps: int | None,
    ) -> None:
        super().__init__()
        self.write = save
        self.progress = progress
        self.minutes = minutes
        self.steps = steps
        self.saved = progress()

    def on_train_batch_end(self, batch, logs=None):
        now = self.progress()
        if self.steps:
            due = now.step - self.saved.step >= self.steps
        else:
            due = now.seconds - self.saved.seconds >= 60 * self.minutes
        if due:
            self.save(now)

    def on_train_end(self, logs=None):
        now = self.progress()
        if now.step > self.saved.step:
            self.save(now)

    def save(self, now):
        logger.info("Wrote %s", self.write(now))
        self.saved = now


class Validation(keras.callbacks.Callback):
    """Loss, perplexity and accuracy of a split, and the BLEU of a sample.

    The sample is decoded greedily; `python -m keras_transformer evaluate`
    gives the figure to report.

    Args:
        now: Tells the progress.
        history: Gets a row for every validation.
        batches: Finite dataset, as from `evaluation_batches`.
        sample: Pairs of source and target text.
        tokenizer: The run's tokenizer.
        steps: Updates between validations.
        stop: A `StopTraining`; after a signal nothing is validated.
        weights: Opens a context in which the model has the weights to
            validate; its own by default.
        judged: A model that gets those weights and is validated in its place;
            needed where other workers would have to take part.
    """

    def __init__(
        self,
        now,
        history,
        batches,
        sample,
        tokenizer,
        steps,
        stop,
        weights=contextlib.nullcontext,
        judged=None,
    ) -> None:
        super().__init__()
        self.now = now
        self.history = history
        self.batches = batches
        self.sources, self.targets = zip(*sample, strict=True)
        self.tokenizer = tokenizer
        self.steps = steps
        self.stop = stop
        self.weights = weights
        self.judged = judged
        self.translator = None

    def on_train_batch_end(self, batch, logs=None):
        if self.now().step % self.steps == 0:
            self.validate()

    def on_train_end(self, logs=None):
        if self.now().step % self.steps and not self.stop.signal:
            self.validate()

    def validate(self):
        model = self.judged or self.model
        if self.translator is None:
            self.translator = Translator(model, self.tokenizer)
        with self.weights():
            if self.judged:
                model.set_weights(self.model.get_weights())
            results = model.evaluate(self.batches, verbose=0, return_dict=True)
            translations = self.translator.translate(self.sources, beam_size=1)
        bleu = evaluation.bleu(translations, self.targets)
        now = self.now()
        logger.info(
            "step %d  validation loss %.3f  perplexity %.2f  accuracy %.1f %%  "
            "BLEU %.1f (greedy, %d sentences, %s)",
            now.step,
            results["loss"],
            results["perplexity"],
            100 * results["token_accuracy"],
            bleu.value,
            len(self.sources),
            bleu.signature,
        )
        logger.info("    source      %s", self.sources[0])
        logger.info("    translation %s", translations[0])
        self.history.add(
            now,
            validation_loss=results["loss"],
            validation_perplexity=results["perplexity"],
            validation_accuracy=results["token_accuracy"],
            validation_bleu=bleu.value,
        )
