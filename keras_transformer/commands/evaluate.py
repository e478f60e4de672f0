"""`keras-transformer evaluate`."""

import argparse
import pathlib
from typing import TYPE_CHECKING

from keras_transformer.commands import command_line, flags
from keras_transformer.config import RUN_SEARCH
from keras_transformer.data.corpus import TFDS_PREFIX, parts_of
from keras_transformer.translation.display import SentenceDisplay

if TYPE_CHECKING:
    from keras_transformer.translation.significance import Tested


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser)
    flags.add_beam_flags(parser)
    flags.add_parallel_flag(parser)
    add = parser.add_argument
    add(
        "--corpus",
        help="a corpus as in train, or one of sacreBLEU's test sets such as "
        "sacrebleu:wmt14/full; default: the run's own",
    )
    add("--split", default="test", help="default: %(default)s")
    add(
        "--reference",
        type=pathlib.Path,
        action="append",
        metavar="FILE",
        help="score against FILE, a text on each line, instead of the corpus's "
        "references; may be given several times, once for each reference",
    )
    add(
        "--hypotheses",
        type=pathlib.Path,
        metavar="FILE",
        help="score FILE, a translation on each line, instead of translating",
    )
    add(
        "--lowercase",
        action="store_true",
        help="score lower-cased text too, plain and tokenised by Moses",
    )
    add(
        "--tokenize",
        metavar="NAME",
        help="sacreBLEU's tokeniser for BLEU, such as 13a, zh, ja-mecab, "
        "ko-mecab or char; default: that of the target language",
    )
    add(
        "--against",
        type=pathlib.Path,
        metavar="OTHER",
        help="compare with OTHER by sacreBLEU's paired bootstrap and "
        "approximate randomization; OTHER is a run directory in which evaluate "
        "has translated the same split, or a text file with one translation a "
        "line",
    )
    add("--json", type=pathlib.Path, help="write the results here too")


def run(args: argparse.Namespace) -> None:
    """Translate every sentence of a split and print its scores.

    The translations go to RUN/evaluation/SPLIT.LANG.txt and all figures to
    RUN/evaluation/SPLIT.json. They replace those of an earlier evaluation.
    With --hypotheses it scores a file and leaves those as they are.

    A folder may have several references of a split: SPLIT.LANG.0,
    SPLIT.LANG.1 and on.
    """
    run, _ = flags.prepare(args)
    parts = parts_of(args.corpus or run.config.corpus)
    if any(part.name.startswith(TFDS_PREFIX) for part in parts):
        run.before_loading()
    with SentenceDisplay() as display:
        result = run.evaluate(
            args.split,
            args.corpus,
            reference=args.reference,
            hypotheses=args.hypotheses,
            **{name: getattr(args, name) for name in RUN_SEARCH},
            lowercase=args.lowercase,
            tokenize=args.tokenize,
            against=args.against,
            json_file=args.json,
            parallel=args.parallel,
            progress=display.of_all,
        )
    for score in result.scores.values():
        print(f"{score.value:6.2f}  {score.name}  {score.signature}")
    for comparison in result.comparisons:
        print(f"\n{comparison.metric}, {comparison.test}")
        for name, tested in (
            (args.against, comparison.other),
            (args.hypotheses or args.run_dir, comparison.system),
        ):
            print(_row(name, tested))
        print(f"        {comparison.signature}")
    if args.hypotheses:
        return
    exported = f"exported/{args.run_dir.resolve().name}"
    command_line.say_next(
        "export", "--run-dir", args.run_dir, "--output", exported
    )


def _row(name: pathlib.Path, tested: "Tested") -> str:
    """Return the line of a system: score, 95 % interval and p-value."""
    interval = p_value = ""
    if tested.confidence is not None:
        interval = f"{tested.mean:.2f} ± {tested.confidence:.2f}"
    if tested.p_value is not None:
        p_value = f"p = {tested.p_value:.4f}"
    return f"{tested.score:6.2f}  {interval:13}  {p_value:10}  {name}"
