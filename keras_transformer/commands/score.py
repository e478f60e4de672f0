"""`keras-transformer score`."""

import argparse
import contextlib
import pathlib
from collections.abc import Iterator

from keras_transformer.commands import command_line, flags, text_streams
from keras_transformer.translation.unfinished import chunks, write_chunks


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser, "average", "ensemble")
    flags.add_beam_flags(parser, ("length_penalty",))
    add = parser.add_argument
    add("--source", type=pathlib.Path, required=True, help="lines of text")
    add("--target", type=pathlib.Path, required=True, help="their translations")
    add("--output", type=pathlib.Path, help="default: standard output")


def run(args: argparse.Namespace) -> None:
    """Score given translations: print a number for each line of --target.

    The number is the length-normalised log-probability in nats. The source is
    never cut. The tokenizer splits the target into pieces; if a search wrote
    the same text in other pieces, `translate --n-best` prints another score.
    """
    run, search = flags.prepare(args)
    with contextlib.ExitStack() as stack:
        pairs, total = text_streams.open_pairs(
            args.source, "--source", args.target, "--target", stack
        )
        # Before the work, so that an unwritable place shows at once.
        output = stack.enter_context(text_streams.open_output(args.output))
        translator = run.translator()
        alpha = search.length_penalty

        def scored(chunk: list[tuple[str, str]]) -> Iterator[bytes]:
            sources, targets = zip(*chunk, strict=True)
            for number in translator.score(
                sources, targets, length_penalty=alpha
            ):
                yield b"%.4f\n" % number

        progress = text_streams.open_display(args.output, total, stack)
        how = [translator.weights.identity, alpha]
        write_chunks(output, chunks(pairs), scored, how, progress)
    command_line.say_next("evaluate", "--run-dir", args.run_dir)
