"""What happens around the steps of `fit`: time, progress, validation, stops."""

import csv
import logging
import pathlib
import signal
import time
from collections.abc import Callable

import keras
import rich.console
import rich.progress
import tensorflow as tf

from keras_transformer import evaluation
from keras_transformer.checkpoints import Progress
from keras_transformer.translator import Translator

HISTORY_FILE = "history.csv"
HISTORY_FIELDS = (
    "step",
    "minutes",
    "loss",
    "perplexity",
    "learning_rate",
    "tokens_per_second",
    "validation_loss",
    "validation_perplexity",
    "validation_accuracy",
    "validation_bleu",
)

logger = logging.getLogger("keras_transformer")


class Stopwatch(keras.callbacks.Callback):
    """Counts updates and seconds, over all sessions of a run.

    Args:
        start: The progress that training resumes from.
    """

    def __init__(self, start: Progress) -> None:
        super().__init__()
        self.step = start.step
        self.seconds_before = start.seconds
        self.started = time.monotonic()

    def now(self) -> Progress:
        """The progress at this moment."""
        seconds = time.monotonic() - self.started
        return Progress(self.step, self.seconds_before + seconds)

    def on_train_begin(self, logs=None):
        self.started = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1


class StopTraining(keras.callbacks.Callback):
    """Ends `fit` after the running step: on a signal, or when time is up.

    The first Ctrl-C or SIGTERM lets the step end, so that a checkpoint can be
    written; a second one ends the process at once.

    Args:
        now: Tells the progress.
        minutes: Minutes of training in all; None for no limit.

    Attributes:
        signal: The signal that came, or None.
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

    def on_train_end(self, logs=None):
        for number, handler in self.handlers.items():
            signal.signal(number, handler)


class History:
    """The curve of a run: TensorBoard logs and `logs/history.csv`.

    Args:
        run_dir: The run directory.
        step: The update that training resumes from; later rows, left by a
            session that was killed, are dropped.
    """

    def __init__(self, run_dir, step: int) -> None:
        folder = pathlib.Path(run_dir) / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = tf.summary.create_file_writer(str(folder))
        self.path = folder / HISTORY_FILE
        rows = [row for row in read_history(run_dir) if row["step"] <= step]
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, HISTORY_FIELDS)
            table.writeheader()
            table.writerows(rows)

    def add(self, progress: Progress, **values: float) -> None:
        """Add a row; what was not measured stays empty."""
        minutes = progress.seconds / 60
        row = {"step": progress.step, "minutes": f"{minutes:.3f}"}
        row.update({name: f"{value:.6g}" for name, value in values.items()})
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, HISTORY_FIELDS).writerow(row)
        with self.writer.as_default(step=progress.step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self.writer.flush()


def read_history(run_dir) -> list[dict[str, float]]:
    """The rows of `logs/history.csv`, without their empty fields.

    Args:
        run_dir: The run directory.

    Returns:
        Oldest first; an empty list where there is no history.
    """
    path = pathlib.Path(run_dir) / "logs" / HISTORY_FILE
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [
            {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


class ShowProgress(keras.callbacks.Callback):
    """A bar on a terminal; in a log, a line a minute.

    Args:
        now: Tells the progress.
        history: Gets a row for every line.
        steps: Updates of the whole training.
        minutes: Minutes of the whole training; None for no limit.
    """

    def __init__(self, now, history, steps, minutes, seconds=60.0) -> None:
        super().__init__()
        self.now = now
        self.history = history
        self.steps = steps
        self.minutes = minutes
        self.seconds = seconds
        self.bar = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.description}"),
            console=rich.console.Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            disable=not rich.console.Console(stderr=True).is_terminal,
        )
        self.task = self.bar.add_task("first step", total=1.0)

    def on_train_begin(self, logs=None):
        self.begin = self.last = self.now()
        self.window = []
        self.bar.start()

    def on_train_batch_end(self, batch, logs=None):
        now = self.now()
        # Tensors, fetched when a line is due: a GPU need not wait for them.
        self.window.append(
            [logs["tokens"], logs["batch_loss"], logs["perplexity"]]
        )
        first = now.step == self.begin.step + 1
        if first:
            seconds = now.seconds - self.begin.seconds
            logger.info("First step after %.1f s.", seconds)
        if not self.bar.disable and len(self.window) % 10 == 0:
            self.show(now)
        if now.seconds - self.last.seconds >= self.seconds or first:
            self.report(now)

    def on_train_end(self, logs=None):
        if self.window:
            self.report(self.now())
        self.bar.stop()

    def summary(self, now):
        """Means over the window's target tokens, and tokens a second."""
        window = tf.constant(self.window, tf.float64)  # (updates, 3)
        tokens, losses, perplexities = tf.unstack(window, axis=1)
        total = float(tf.reduce_sum(tokens)) or 1.0
        plain = float(tf.reduce_sum(tf.math.log(perplexities) * tokens)) / total
        return {
            "loss": float(tf.reduce_sum(losses * tokens)) / total,
            "perplexity": float(tf.exp(plain)),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "tokens_per_second": total
            / max(now.seconds - self.last.seconds, 1e-9),
        }

    def line(self, now, values):
        done, left = self.estimate(now)
        return (
            f"step {now.step}/{self.steps}  loss {values['loss']:.3f}  "
            f"perplexity {values['perplexity']:.2f}  "
            f"{values['tokens_per_second']:,.0f} target tokens/s  "
            f"{_clock(left)} left"
        ), done

    def estimate(self, now):
        """Share of the training done, and seconds left."""
        seconds = now.seconds - self.begin.seconds
        steps = now.step - self.begin.step
        left = (self.steps - now.step) * seconds / max(steps, 1)
        done = now.step / self.steps
        if self.minutes and 60 * self.minutes - now.seconds < left:
            left = max(60 * self.minutes - now.seconds, 0.0)
            done = min(now.seconds / (60 * self.minutes), 1.0)
        return done, left

    def show(self, now):
        line, done = self.line(now, self.summary(now))
        self.bar.update(self.task, completed=done, description=line)

    def report(self, now):
        values = self.summary(now)
        line, _ = self.line(now, values)
        logger.info("%s", line)
        self.history.add(now, **values)
        self.last, self.window = now, []


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
    """

    def __init__(
        self, now, history, batches, sample, tokenizer, steps, stop
    ) -> None:
        super().__init__()
        self.now = now
        self.history = history
        self.batches = batches
        self.sources, self.targets = zip(*sample, strict=True)
        self.tokenizer = tokenizer
        self.steps = steps
        self.stop = stop
        self.translator = None

    def on_train_batch_end(self, batch, logs=None):
        if self.now().step % self.steps == 0:
            self.validate()

    def on_train_end(self, logs=None):
        if self.now().step % self.steps and not self.stop.signal:
            self.validate()

    def validate(self):
        results = self.model.evaluate(self.batches, verbose=0, return_dict=True)
        if self.translator is None:
            self.translator = Translator(self.model, self.tokenizer)
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


def log_count(what: str, seconds: float = 30.0) -> Callable[[int], None]:
    """A function that logs the count it is given, every so many seconds."""
    last = time.monotonic()

    def count(number: int) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            logger.info("%s %s", f"{number:,}", what)
            last = time.monotonic()

    return count


def _clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
