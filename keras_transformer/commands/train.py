"""`keras-transformer train`."""

import argparse
import contextlib
import pathlib
import shlex
from typing import Any

from keras_transformer import exhaustion
from keras_transformer.commands import argument_files, command_line
from keras_transformer.config import PRESETS, UserError
from keras_transformer.runs.checks import POSITIONS
from keras_transformer.training.cluster import count_workers
from keras_transformer.training.request import default_run_dir, request
from keras_transformer.training.session import STRATEGIES, XLA, Session

# Which of `keras_transformer.train`'s arguments the flags are not.
_OF_THE_COMMAND = {"verb", "parser", "run_dir", "dry_run"}
_OF_THE_SESSION = {"minutes", "strategy", "accumulate", "xla"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all flags; a training takes no flag of another verb."""
    add = parser.add_argument
    add("--run-dir", type=pathlib.Path, help="default: runs/PRESET")
    add("--preset", help=f"{', '.join(PRESETS)}; default: base")
    _add_corpus_flags(parser)
    _add_shape_flags(parser)
    _add_recipe_flags(parser)
    _add_search_flags(parser)
    add("--minutes", type=float, help="minutes of training in all")
    add(
        "--strategy",
        default=Session.strategy,
        help=f"{', '.join(STRATEGIES)}; default: %(default)s",
    )
    add(
        "--accumulate",
        type=int,
        default=Session.accumulate,
        help="micro-batches of a batch; default: %(default)s",
    )
    add(
        "--xla",
        default=Session.xla,
        choices=XLA,
        help="compile the gradient for every batch shape; auto: on GPUs",
    )
    add("--dry-run", action="store_true", help="print the costs, train nothing")


def _add_corpus_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--corpus",
        required=True,
        help="demo, a folder of SPLIT.LANG files, or tfds:NAME[/CONFIG]",
    )
    add("--source-lang", default="en", help="default: %(default)s")
    add("--target-lang", default="de", help="default: %(default)s")
    add("--train-split", default="train", help="default: %(default)s")
    add("--validation-split", default="val", help="default: %(default)s")
    add(
        "--tokenizer",
        type=pathlib.Path,
        metavar="FILE",
        help="a sentencepiece model made elsewhere, in place of a new one",
    )
    add(
        "--symbols",
        type=pathlib.Path,
        metavar="FILE",
        help="strings, one a line, that stay one piece in a new vocabulary",
    )
    add(
        "--init-from",
        type=pathlib.Path,
        metavar="RUN",
        help="start with the weights and the vocabulary of another run",
    )


def _add_shape_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--vocab-size", type=int, help="pieces of the shared vocabulary")
    add("--num-layers", type=int, help="layers of encoder and decoder: N")
    add("--d-model", type=int, help="width of the model, even")
    add("--num-heads", type=int, help="attention heads: h")
    add("--key-dim", type=int, help="d_k; with another --d-model: d_model / h")
    add("--value-dim", type=int, help="d_v; likewise")
    add("--ffn-dim", type=int, help="inner width of feed-forward: d_ff")
    add("--positions", help=", ".join(POSITIONS))
    add(
        "--restrict",
        type=int,
        metavar="R",
        dest="restriction",
        help="self-attention sees positions less than R away, a decoder's the "
        "last R; default: all",
    )
    add(
        "--norm-first",
        action="store_const",
        const=True,
        help="norm what a sub-layer reads, not its sum with what it writes: a "
        "small model then learns from the first hundred updates on",
    )
    add("--dropout", type=float, help="share of units dropped, in [0, 1)")


def _add_recipe_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--batch-tokens",
        type=int,
        help="target tokens, and source tokens, in a global batch",
    )
    add(
        "--length-growth",
        type=float,
        help="growth of the lengths that batches are padded to; default: 1.06, "
        "or 1.15 where a run begins with XLA",
    )
    add("--max-length", type=int, help="longest training side, in tokens")
    add("--steps", type=int, help="optimizer updates in all")
    add("--warmup-steps", type=int, help="updates of linear warm-up")
    add("--learning-rate-scale", type=float, help="factor on equation 3")
    add("--label-smoothing", type=float, help="in [0, 1)")
    add(
        "--bpe-dropout",
        type=float,
        help="probability of leaving out a merge where training text is cut "
        "into pieces, in [0, 1); 0.1 pays where pairs are few",
    )
    add("--average", type=int, help="checkpoints averaged at the end")
    add("--checkpoint-minutes", type=float, help="minutes between checkpoints")
    add("--checkpoint-steps", type=int, help="updates between checkpoints")
    add("--keep-checkpoints", type=int, help="newest checkpoints kept")
    add("--validation-steps", type=int, help="updates between validations")
    add(
        "--target-bleu",
        type=float,
        help="end where the BLEU of a validation reaches it",
    )
    add("--ema", type=float, help="moving average of the weights, in (0, 1)")
    add("--precision", help="float32, mixed_bfloat16 or mixed_float16")
    add("--seed", type=int, help="fixes weights, data order and dropout")


def _add_search_flags(parser: argparse.ArgumentParser) -> None:
    """Add what later verbs, and a validation's limit, are told by the run."""
    add = parser.add_argument
    add("--beam-size", type=int, help="of later searches of the run")
    add("--length-penalty", type=float, help="alpha of later searches")
    add(
        "--max-extra-length",
        type=int,
        help="tokens of a translation beyond its source's in any search",
    )


def train(args: argparse.Namespace) -> None:
    """Train a Transformer: section 5 of the paper as a recipe.

    Example:
        keras-transformer train --preset demo --corpus demo --run-dir runs/demo

    The same command again resumes at the last checkpoint. What is not given
    comes from the preset. @FILE stands for the arguments in a file, and
    @wmt14-en-de-base and its like for the recipes of this package; --dry-run
    tells what the training would cost.
    """
    arguments = arguments_of(args)
    chosen = {name: getattr(args, name) for name in _OF_THE_SESSION}
    session = Session(**chosen)
    # What can be seen to be wrong is told before TensorFlow is loaded.
    session.check()
    run, corpus = request(**arguments, run_dir=args.run_dir)
    if args.dry_run and (args.strategy == "multiworker" or count_workers() > 1):
        raise UserError(
            "Expected one machine for --dry-run, received --strategy "
            "multiworker or several workers in TF_CONFIG; leave them out."
        )
    command_line.quiet_tensorflow()
    if args.dry_run:
        from keras_transformer.training.dry_run import print_costs

        run_dir = args.run_dir or default_run_dir(run.preset)
        with exhaustion.explained(session.less_memory):
            print_costs(run, run_dir, session, corpus, args.tokenizer)
        return
    from keras_transformer.run import train as train_run

    # After SIGTERM: the checkpoint is written, and nothing has failed.
    with contextlib.suppress(SystemExit):
        train_run(args.run_dir, **arguments, **chosen)


def recipe(name: str) -> dict[str, Any]:
    """A recipe as arguments of `keras_transformer.train`.

    Such as `train(corpus="my-text", **recipe("small-corpus"))`, or, with
    something else in it, `**recipe("small-corpus") | {"steps": 8_000}`.

    Args:
        name: Name of a recipe of this package.

    Returns:
        The arguments that the recipe gives, and no others.

    Raises:
        UserError: If there is no such recipe.
    """
    known = argument_files.recipes()
    if name not in known:
        raise UserError(
            f"Expected a recipe among {', '.join(known)}; received {name}."
        )
    parser = argparse.ArgumentParser()
    add_flags(parser)
    words = shlex.split(known[name], comments=True)
    args = parser.parse_args(["--corpus", "", *words])  # It must have one.
    return {
        argument: value
        for argument, value in vars(args).items()
        if value not in ("", parser.get_default(argument))
    }


def arguments_of(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `keras_transformer.train` that name what is trained."""
    return {
        name: value
        for name, value in vars(args).items()
        if name not in _OF_THE_COMMAND | _OF_THE_SESSION
    }
