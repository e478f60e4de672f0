"""`keras-transformer view`."""

import argparse
import pathlib

from keras_transformer.commands import command_line, flags, text_streams
from keras_transformer.config import UserError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser, "average")
    add = parser.add_argument
    add("text", metavar="TEXT", help="a text of the source language")
    said = "the page; default: view.html in the run directory"
    add("--output", type=pathlib.Path, help=said)
    add("--prefix", metavar="TEXT", help="as in translate")
    flags.add_search_flags(parser, "4, or --beam-size if that is less")


def run(args: argparse.Namespace) -> None:
    """Translate a text, and draw its attention and its search on a page.

    The page shows the attention of all layers and heads, the search step by
    step and the beam as a tree. It needs no network and no other file: any
    browser opens it.
    """
    path = args.output or args.run_dir / "view.html"
    if not args.text.strip():
        why = f"Expected a TEXT with words, received {args.text!r}; give some."
        raise UserError(why)
    if args.output:
        text_streams.check_new(path)
    run, search = flags.prepare(args, n_best=4)
    explain = run.translator().explain
    explain(args.text, prefix=args.prefix, **vars(search)).save_html(path)
    print(path)
    command_line.say_next("serve", "--run-dir", args.run_dir)
