"""`keras-transformer translate`."""

import argparse
import contextlib
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from keras_transformer.commands import command_line, flags, text_streams
from keras_transformer.config import Search
from keras_transformer.data import lines
from keras_transformer.translation import sentences, terms
from keras_transformer.translation.unfinished import chunks, write_chunks

if TYPE_CHECKING:
    from keras_transformer.translation.translator import Translator

# The translations of one text with their scores, best first.
_Hypotheses = Sequence[tuple[str, float]]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser)
    add = parser.add_argument
    either = parser.add_mutually_exclusive_group().add_argument
    either("file", nargs="?", type=pathlib.Path, help="the same as --input")
    either(
        "--input",
        type=pathlib.Path,
        metavar="FILE",
        help="lines of text; default: standard input",
    )
    add("--output", type=pathlib.Path, help="default: standard output")
    flags.add_search_flags(parser)
    flags.add_sampling_flags(parser)
    flags.add_parallel_flag(parser)
    either = parser.add_mutually_exclusive_group().add_argument
    said = "the first words of every translation"
    either("--prefix", metavar="TEXT", help=said)
    either(
        "--prefixes",
        type=pathlib.Path,
        metavar="FILE",
        help="the first words of each translation, line by line, instead of "
        "--prefix; may be empty",
    )
    add(
        "--terms",
        type=pathlib.Path,
        metavar="FILE",
        help="what words become, a term on each line: words of the source, a "
        "tab, and what is wanted, or nothing for as they are; for a model "
        "trained with --term-share",
    )
    add(
        "--alignment",
        action="store_true",
        help="add, for each target word, the source word it attends to most",
    )
    add(
        "--split-sentences",
        action=argparse.BooleanOptionalAction,
        help="translate the sentences of a line one by one. A line of signs "
        "alone, such as ---, stays as it is, except with --no-split-sentences",
    )


def run(args: argparse.Namespace) -> None:
    """Translate UTF-8 text line by line, including empty lines.

    Output is written after every 4,000 lines, at the end of the input, and
    where standard input says nothing for half a second. A file of --output
    appears there once it is complete; the same command after a kill goes on
    with what OUTPUT.unfinished holds.

    With --n-best above 1 each translation has its own line, best first:

        LINE<TAB>SCORE<TAB>TRANSLATION

    LINE counts from 1; SCORE is the length-normalised log-probability in
    nats. Repeated texts are dropped, except with --sample, so a line may have
    fewer than --n-best; an empty line has one.

    --alignment adds pairs such as 0-0 1-2, in the order of the target, counted
    from 0: the source word that a target word attends to most, and that target
    word. White space separates words, and "—" is one; in languages without
    spaces, such as Chinese and Thai, words are what ICU finds, marks among
    them, or without the package icu4py characters (in Python, words_of of
    keras_transformer.data.languages). The pairs follow a translation as

        TRANSLATION ||| PAIRS

    or with --n-best as a fourth column. Lines that are cut after
    --max-source-length tokens are named on standard error.
    """
    args.input = args.input or args.file
    opened, search = flags.prepare(args)
    if args.split_sentences:
        sentences.check_alone(
            n_best=search.n_best > 1,
            prefix=args.prefix is not None,
            prefixes=args.prefixes is not None,
            alignment=args.alignment,
        )
    with contextlib.ExitStack() as stack:
        rows, total = open_chunks(args, stack)
        # Before the work, so that an unwritable place shows at once.
        output = stack.enter_context(text_streams.open_output(args.output))
        translator = opened.translator()
        wanted = terms.read(args.terms) if args.terms else None
        from keras_transformer.translation import text_batches

        progress = text_streams.open_display(args.output, total, stack)
        batching = text_batches.Batching(
            parallel=args.parallel, progress=progress
        )
        form = args.alignment, args.split_sentences

        def translated(chunk: list[tuple[str, str]]) -> Iterator[bytes]:
            texts, prefixes = zip(*chunk, strict=True)
            n_best, truncated = translator.search_texts(
                texts,
                search,
                batching,
                prefixes=prefixes if any(prefixes) else None,
                split_sentences=args.split_sentences,
                terms=wanted,
            )
            first = progress.before + 1
            longest = search.max_source_length
            text_batches.warn_of_cuts(truncated, longest, first)
            yield from rows_out(translator, texts, n_best, first, search, *form)

        how = translator.weights.deciding(search)
        how |= {"by": [*form, wanted]}
        write_chunks(output, rows, translated, how, progress)
    command_line.say_next("view", "--run-dir", args.run_dir, "TEXT")


def open_chunks(
    args: argparse.Namespace, stack: contextlib.ExitStack
) -> tuple[Iterator[list[tuple[str, str]]], int | None]:
    """Return the lines to translate with their prefixes, and their number."""
    if args.prefixes:
        pairs, total = text_streams.open_pairs(
            args.input, "--input", args.prefixes, "--prefixes", stack
        )
        return chunks(pairs), total
    file, name, total = text_streams.open_input(args.input, stack, "--input")
    rows = zip(
        lines.read_lines(file, name), itertools.repeat(args.prefix or "")
    )
    if args.input or (args.output and not args.output.exists()):
        return chunks(rows), total
    return chunks(rows, file.waits), total  # Somebody may wait for answers.


def rows_out(
    translator: "Translator",
    texts: tuple[str, ...],
    n_best: Sequence[_Hypotheses],
    first: int,
    search: Search,
    alignment: bool,
    has_cells: bool,
) -> Iterator[bytes]:
    """Return the lines to write for a chunk."""
    flat = [
        (number, source, text, score)
        for number, (source, hypotheses) in enumerate(
            zip(texts, n_best, strict=True), first
        )
        for text, score in hypotheses
    ]
    alignments: Iterable[list[tuple[int, int]] | None] = itertools.repeat(None)
    if alignment:
        _, sources, targets, _ = zip(*flat, strict=True)
        alignments = translator.align(
            sources, targets, max_source_length=search.max_source_length
        )
    for (number, _, text, score), pairs in zip(flat, alignments, strict=False):
        row = lines.on_one_line(text, "\t" if has_cells else " ")
        if search.n_best > 1:
            row = f"{number}\t{score:.4f}\t{row}"
        if pairs is not None:
            row += "\t" if search.n_best > 1 else " ||| "
            row += " ".join(f"{source}-{target}" for source, target in pairs)
        yield f"{row}\n".encode()
