"""Use a trained run: translate text, evaluate it on a test set.

Examples:
    python -m keras_transformer translate --run-dir runs/demo < FILE
    python -m keras_transformer evaluate --run-dir runs/demo
"""

import argparse
import contextlib
import datetime
import inspect
import json
import logging
import math
import pathlib
import sys
import time

import rich.console
import rich.progress

from keras_transformer import command_line, config, lines
from keras_transformer.config import UserError

# TensorFlow takes seconds to import. Neither --help nor a mistake in the
# arguments waits for it: the verbs import what needs it when they do.

logger = logging.getLogger("keras_transformer")

EVALUATION_FOLDER = "evaluation"

# A translation stays on its line and in its column.
_BREAKS = str.maketrans("\n\r\t", "   ")


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m keras_transformer",
        description=__doc__,
        formatter_class=raw,
    )
    common = argparse.ArgumentParser(add_help=False)
    add = common.add_argument
    add("--run-dir", required=True, type=pathlib.Path, help="as in train.py")
    add(
        "--average",
        type=int,
        help="newest checkpoints averaged; default: as many as train.py did",
    )
    add(
        "--beam-size",
        type=int,
        default=4,
        help="1 is greedy; default: %(default)s",
    )
    add(
        "--length-penalty",
        type=float,
        default=0.6,
        help="alpha of ((5 + length) / 6)^alpha; default: %(default)s",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    verb = verbs.add_parser(
        "translate",
        parents=[common],
        help="lines of text in, lines of text out",
        description=inspect.getdoc(translate),
        formatter_class=raw,
    )
    verb.set_defaults(verb=translate)
    add = verb.add_argument
    add("--input", type=pathlib.Path, help="default: standard input")
    add("--output", type=pathlib.Path, help="default: standard output")
    add(
        "--n-best",
        type=int,
        default=1,
        help="translations of a line; default: %(default)s",
    )
    add(
        "--min-length",
        type=int,
        default=0,
        help="fewest tokens of a translation; default: %(default)s",
    )
    add(
        "--max-length",
        type=int,
        help="most tokens of a translation; default: source length + 50",
    )

    verb = verbs.add_parser(
        "evaluate",
        parents=[common],
        help="BLEU and chrF of a test set",
        description=inspect.getdoc(evaluate),
        formatter_class=raw,
    )
    verb.set_defaults(verb=evaluate)
    add = verb.add_argument
    add("--corpus", help="as in train.py; default: the run's own")
    add("--split", default="test", help="default: %(default)s")
    add("--json", type=pathlib.Path, help="write the results here too")
    return parser.parse_args(argv)


def translate(args: argparse.Namespace) -> None:
    """Translate UTF-8 text line by line, empty lines included.

    With --n-best above 1 every line has its translations on lines of their
    own, best first, as

        LINE<TAB>SCORE<TAB>TRANSLATION

    LINE counts from 1; SCORE is the length-normalised log-probability in
    nats. There are fewer where the search finds fewer; an empty line has one.
    """
    run = config.RunConfig.load(args.run_dir)
    average = args.average or run.training.average
    if args.output and args.output.exists():
        raise UserError(
            f"Expected a new file as --output, but {args.output} exists; "
            "remove it or choose another name."
        )
    with contextlib.ExitStack() as stack:
        file, name, total = lines.open_input(args.input, stack)
        # Before the work, so that a place that cannot be written shows.
        output = sys.stdout.buffer
        if args.output:
            output = stack.enter_context(lines.write_whole(args.output))
        from keras_transformer.translator import Translator

        translator = Translator.from_run(args.run_dir, average)
        on_screen = not args.output and sys.stdout.isatty()
        progress = stack.enter_context(Progress(total, bar=not on_screen))
        for chunk in lines.chunks(lines.read_lines(file, name)):
            results = translator.translate(
                chunk,
                beam_size=args.beam_size,
                length_penalty=args.length_penalty,
                n_best=args.n_best,
                min_length=args.min_length,
                max_length=args.max_length,
                progress=progress,
            )
            for number, hypotheses in enumerate(results, progress.before + 1):
                for text, score in hypotheses:
                    line = text.translate(_BREAKS)
                    if args.n_best > 1:
                        line = f"{number}\t{score:.4f}\t{line}"
                    output.write(line.encode() + b"\n")
            output.flush()
            progress.end_chunk(len(chunk))


def evaluate(args: argparse.Namespace) -> None:
    """Translate every sentence of a split and print its scores.

    The translations go to RUN/evaluation/SPLIT.LANG.txt and all figures to
    RUN/evaluation/SPLIT.json, in place of those of an earlier evaluation.
    """
    run = config.RunConfig.load(args.run_dir)
    from keras_transformer.data import corpora

    name = args.corpus or run.corpus
    corpus = corpora.open_corpus(name, run.source_lang, run.target_lang)
    pairs = list(corpus.pairs(args.split))
    from keras_transformer import checkpoints, evaluation
    from keras_transformer.translator import Translator

    average = args.average or run.training.average
    translator = Translator.from_run(args.run_dir, average)
    averaged = checkpoints.newest_undamaged(args.run_dir, average)
    folder = args.run_dir / EVALUATION_FOLDER
    folder.mkdir(exist_ok=True)
    text_path = folder / f"{args.split}.{run.target_lang}.txt"
    json_paths = [folder / f"{args.split}.json"]
    if args.json and args.json.resolve() != json_paths[0].resolve():
        json_paths.append(args.json)
    with contextlib.ExitStack() as stack:
        # Before the work, so that a place that cannot be written shows.
        text_file, *json_files = [
            stack.enter_context(lines.write_whole(path))
            for path in (text_path, *json_paths)
        ]
        result = evaluation.evaluate(
            translator,
            pairs,
            run.target_lang,
            beam_size=args.beam_size,
            length_penalty=args.length_penalty,
            progress=stack.enter_context(Progress(len(pairs))),
        )
        report = {
            "corpus": name,
            "split": args.split,
            "source_lang": run.source_lang,
            "target_lang": run.target_lang,
            "beam_size": args.beam_size,
            "length_penalty": args.length_penalty,
            "checkpoints": [path.name for path, _ in averaged],
            **result.report(),
        }
        for line in result.translations:
            text_file.write(line.translate(_BREAKS).encode() + b"\n")
        for file in json_files:
            file.write(json.dumps(report, indent=2).encode() + b"\n")
    for score in result.scores.values():
        print(f"{score.value:6.2f}  {score.name}  {score.signature}")
    logger.info("Wrote %s.", " and ".join(map(str, (text_path, *json_paths))))


def check_numbers(args: argparse.Namespace) -> None:
    """Raise a `UserError` for the first number that makes no sense."""
    for name, least in (
        ("average", 1),
        ("beam_size", 1),
        ("length_penalty", 0),
        ("n_best", 1),
        ("min_length", 0),
        ("max_length", max(1, getattr(args, "min_length", 1))),
    ):
        value = getattr(args, name, None)
        if value is not None and not least <= value < math.inf:
            raise UserError(
                f"Expected --{name.replace('_', '-')} of at least {least}, "
                f"received {value}."
            )
    if getattr(args, "n_best", 1) > args.beam_size:
        raise UserError(
            f"Expected --n-best of at most --beam-size, received "
            f"{args.n_best} and {args.beam_size}."
        )


class Progress:
    """A bar with the time left on a terminal; in a log, a line every 30 s.

    Args:
        total: Sentences in all; None where nobody knows.
        bar: Whether a bar may be drawn at all.
        seconds: Seconds between lines in a log.

    Attributes:
        before: Sentences of the chunks that have ended.
    """

    def __init__(
        self, total: int | None, bar: bool = True, seconds: float = 30.0
    ) -> None:
        self.total = total
        self.seconds = seconds
        self.before = 0
        self.bar = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("sentences, time left"),
            rich.progress.TimeRemainingColumn(),
            console=rich.console.Console(stderr=True),
            transient=True,
            redirect_stdout=False,  # Results are not part of the picture.
            disable=not (bar and sys.stderr.isatty()),
        )
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> "Progress":
        self.start = self.last = time.monotonic()
        self.bar.start()
        return self

    def __exit__(self, *error) -> None:
        self.bar.stop()

    def __call__(self, done: int, of_chunk: int) -> None:
        """Show that `done` sentences of the running chunk are done."""
        self._show(self.before + done)

    def end_chunk(self, count: int) -> None:
        """Count a whole chunk, blank lines at its end included."""
        self.before += count
        self._show(self.before)

    def _show(self, done):
        self.bar.update(self.task, completed=done)
        now = time.monotonic()
        if not self.bar.disable or now - self.last < self.seconds:
            return
        self.last = now
        if self.total is None:
            logger.info("%d sentences", done)
            return
        left = (now - self.start) / max(done, 1) * (self.total - done)
        logger.info(
            "%d of %d sentences, %s left",
            done,
            self.total,
            datetime.timedelta(seconds=int(left)),
        )


def main(argv=None) -> int:
    """Run a verb; returns an exit code."""
    args = parse_args(argv)
    check_numbers(args)
    command_line.quiet_tensorflow()
    args.verb(args)
    return command_line.DONE


if __name__ == "__main__":
    sys.exit(command_line.run(main))
