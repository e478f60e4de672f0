"""Shows the progress of a translation, on a terminal or in a log."""

import datetime
import logging
import sys
import time

import rich.console
import rich.progress

logger = logging.getLogger("keras_transformer")
SECONDS = 30.0  # Between two lines of a log.


class SentenceDisplay:
    """A bar with the time left on a terminal; in a log, a line every 30 s.

    `total` is the number of sentences, None if unknown or until a call tells
    it; `before` counts those of the chunks that have ended.
    """

    def __init__(self, total: int | None = None, bar: bool = True) -> None:
        self.total = total
        self.before = self.skipped = 0
        self.bar = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("sentences, time left"),
            rich.progress.TimeRemainingColumn(),
            console=rich.console.Console(stderr=True),
            transient=True,
            redirect_stdout=False,  # Results are not part of the display.
            disable=not (bar and sys.stderr.isatty()),
        )
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> "SentenceDisplay":
        self.start = self.last = time.monotonic()
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def __call__(self, done: int, of_chunk: int) -> None:
        """Show that `done` sentences of the running chunk are done."""
        self._show(self.before + done)

    def of_all(self, done: int, total: int) -> None:
        """Show that `done` of `total` sentences are done, without chunks."""
        self.total = total
        self.bar.update(self.task, total=total)
        self._show(done)

    def end_chunk(self, count: int, was_there: bool = False) -> None:
        """Count a whole chunk, which may have been done by another process."""
        self.before += count
        if was_there:  # It says nothing of the time left.
            self.skipped += count
            self.bar.reset(self.task, total=self.total, completed=self.before)
        self._show(self.before)

    def _show(self, done: int) -> None:
        self.bar.update(self.task, completed=done)
        now = time.monotonic()
        if not self.bar.disable or now - self.last < SECONDS:
            return
        self.last = now
        if self.total is None:
            logger.info("%d sentences", done)
            return
        each = (now - self.start) / max(done - self.skipped, 1)
        left = datetime.timedelta(seconds=int(each * (self.total - done)))
        logger.info("%d of %d sentences, %s left", done, self.total, left)
