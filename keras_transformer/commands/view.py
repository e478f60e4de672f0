"""`keras-transformer view`."""

import argparse
import contextlib
import pathlib

from keras_transformer.commands import command_line, flags, text_streams
from keras_transformer.config import UserError
from keras_transformer.machine import files


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser, "average")
    add = parser.add_argument
    add("text", metavar="TEXT", help="a text of the source language")
    add(
        "--output",
        type=pathlib.Path,
        help="the page; default: view.html in the run directory",
    )
    add(
        "--prefix",
        metavar="TEXT",
        help="the first words of the translation, as in translate",
    )
    flags.add_search_flags(parser, "4, or --beam-size if that is less")


def run(args: argparse.Namespace) -> None:
    """Translate a text, and draw its attention and its search on a page.

    The page shows the attention of all layers and heads, the search step by
    step and the beam as a tree. It needs no network and no other file: any
    browser opens it.
    """
    if not args.text.strip():
        raise UserError(
            "Expected a text as TEXT, received an empty one; give what to "
            "translate."
        )
    run, search = flags.prepare(args, n_best=4)
    with contextlib.ExitStack() as stack:
        # Before the work, so that an unwritable place shows at once.
        path = args.output or args.run_dir / "view.html"
        if args.output:
            text_streams.check_new(path)
        output = stack.enter_context(files.open_whole(path))
        explained = run.translator().explain(
            args.text, prefix=args.prefix, **vars(search)
        )
        from keras_transformer.viewing import viewer

        output.write(viewer.document(args.text, explained.to_html()).encode())
    print(path)
    command_line.say_next("serve", "--run-dir", args.run_dir)
