"""`keras-transformer score`."""

import argparse
import contextlib
import pathlib
import sys

from keras_transformer.commands import (
    command_line,
    search_flags,
    text_streams,
)
from keras_transformer.commands.display import SentenceDisplay


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what the verb alone has."""
    search_flags.add_run_flags(parser)
    search_flags.add_beam_flags(parser, ("length_penalty",))
    add = parser.add_argument
    add("--source", type=pathlib.Path, required=True, help="lines of text")
    add(
        "--target",
        type=pathlib.Path,
        required=True,
        help="a translation of each line",
    )
    add("--output", type=pathlib.Path, help="default: standard output")


def score(args: argparse.Namespace) -> None:
    """Score given translations: for each line of --target a number.

    It is the length-normalised log-probability in nats of a source that is
    never cut, and of the pieces into which the tokenizer splits the target. A
    search may have written the same text in other pieces, and `translate
    --n-best` then prints another score.
    """
    penalty = search_flags.search_of_run(args).length_penalty
    with contextlib.ExitStack() as stack:
        pairs, total = text_streams.open_pairs(
            *(args.source, "--source", args.target, "--target"), stack
        )
        # Before the work, so that a place that cannot be written shows.
        output = text_streams.open_output(args.output, stack)
        command_line.quiet_tensorflow()
        from keras_transformer.translation.translator import Translator

        translator = Translator.from_run(args.run_dir, args.average)
        on_screen = not args.output and sys.stdout.isatty()
        progress = stack.enter_context(
            SentenceDisplay(total, bar=not on_screen)
        )
        for chunk in text_streams.chunks(pairs):
            scores = translator.score(
                *zip(*chunk, strict=True), length_penalty=penalty
            )
            output.writelines(b"%.4f\n" % number for number in scores)
            output.flush()
            progress.end_chunk(len(chunk))
    command_line.say_next("evaluate", "--run-dir", args.run_dir)
