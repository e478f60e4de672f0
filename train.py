"""Train a Transformer: section 5 of the paper as a recipe.

Example:
    python train.py --preset demo --corpus demo --run-dir runs/demo

The same command again resumes at the last checkpoint. What is not given comes
from the preset. @FILE stands for the arguments in a file, such as
@recipes/wmt14-en-de-base.args; --dry-run tells what the training would cost.
"""

import argparse
import dataclasses
import logging
import os
import pathlib
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import zlib

from keras_transformer import config
from keras_transformer.commands import command_line
from keras_transformer.config import UserError
from keras_transformer.runs import run_config

command_line.quiet_tensorflow()

import keras  # noqa: E402

from keras_transformer.data import batching, corpora  # noqa: E402
from keras_transformer.losses import SmoothedCrossEntropy  # noqa: E402
from keras_transformer.runs import averaging, checkpoints, curves  # noqa: E402
from keras_transformer.runs.history import History  # noqa: E402
from keras_transformer.schedules import TransformerSchedule  # noqa: E402
from keras_transformer.training import callbacks, dry_run, exact_step, workers  # noqa: E402,E501
from keras_transformer.training.compilations import Compilations  # noqa: E402
from keras_transformer.training.guard import StopOnNonFinite  # noqa: E402
from keras_transformer.training.optimizers import Adam  # noqa: E402
from keras_transformer.training.preparation import (  # noqa: E402
    CHANGEABLE,
    check_run_dir,
    prepare_data,
    prepare_tokenizer,
)
from keras_transformer.training.progress import ShowProgress  # noqa: E402

logger = logging.getLogger("keras_transformer")

XLA = {"auto": "auto", "on": True, "off": False}


def with_files(argv: list[str]) -> list[str]:
    """Put the arguments that a file holds in the place of its `@FILE`."""
    arguments = []
    for argument in argv:
        if not argument.startswith("@"):
            arguments.append(argument)
            continue
        path = pathlib.Path(argument[1:])
        try:
            text = path.read_text(encoding="utf-8")
            arguments += shlex.split(text, comments=True)
        except OSError as error:
            raise UserError(
                f"Expected a file of arguments after @, received {path} "
                f"({error.strerror}); the recipes are in recipes/."
            ) from None
        except ValueError as error:
            raise UserError(
                f"Expected arguments and # comments in {path}, found "
                f"something else ({error}); correct the file."
            ) from None
    return arguments


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--preset", default="base", help=", ".join(config.PRESETS))
    add(
        "--corpus",
        required=True,
        help="demo, a folder of SPLIT.LANG files, or tfds:NAME[/CONFIG]",
    )
    add("--run-dir", type=pathlib.Path, help="default: runs/PRESET")
    add("--source-lang", default="en")
    add("--target-lang", default="de")
    add("--train-split", default="train")
    add("--validation-split", default="val")
    add("--vocab-size", type=int, help="pieces of the shared vocabulary")
    add("--dropout", type=float, help="share of units dropped, in [0, 1)")
    add(
        "--batch-tokens",
        type=int,
        help="target tokens, and source tokens, in a global batch",
    )
    add("--max-length", type=int, help="longest training side, in tokens")
    add("--steps", type=int, help="optimizer updates in all")
    add("--minutes", type=float, help="minutes of training in all")
    add("--warmup-steps", type=int, help="updates of linear warm-up")
    add("--learning-rate-scale", type=float, help="factor on equation 3")
    add("--label-smoothing", type=float, help="in [0, 1)")
    add("--average", type=int, help="checkpoints averaged at the end")
    add("--checkpoint-minutes", type=float, help="minutes between checkpoints")
    add("--checkpoint-steps", type=int, help="updates between checkpoints")
    add("--keep-checkpoints", type=int, help="newest checkpoints kept")
    add("--validation-steps", type=int, help="updates between validations")
    add("--ema", type=float, help="moving average of the weights, in (0, 1)")
    add("--precision", help="float32, mixed_bfloat16 or mixed_float16")
    add("--seed", type=int, help="fixes weights, data order and dropout")
    add("--strategy", default="auto", help=", ".join(workers.STRATEGIES))
    add("--accumulate", type=int, default=1, help="micro-batches of a batch")
    add(
        "--xla",
        default="auto",
        choices=XLA,
        help="compile the gradient for every batch shape; auto: on GPUs",
    )
    add("--dry-run", action="store_true", help="print the costs, train nothing")
    return parser.parse_args(with_files(sys.argv[1:] if argv is None else argv))


def run_config(args: argparse.Namespace) -> run_config.RunConfig:
    """The preset, with what the command line says otherwise."""
    if args.preset not in config.PRESETS:
        raise UserError(
            f"Expected a preset among {', '.join(config.PRESETS)}; received "
            f"{args.preset}."
        )
    preset = config.PRESETS[args.preset]
    given = {name: v for name, v in vars(args).items() if v is not None}
    if "checkpoint_minutes" in given:
        given.setdefault("checkpoint_steps", None)  # Overrules a preset's.
    model, training = (
        dataclasses.replace(
            part,
            **{
                field.name: given[field.name]
                for field in dataclasses.fields(part)
                if field.name in given
            },
        )
        for part in (preset.model, preset.training)
    )
    run = run_config.RunConfig(
        preset=args.preset,
        corpus=corpora.absolute_name(args.corpus),
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        train_split=args.train_split,
        validation_split=args.validation_split,
        requested_vocab_size=model.vocab_size,
        model=model,
        training=training,
    )
    run.check()
    for name in ("minutes", "accumulate"):
        if name in given and not given[name] > 0:
            raise UserError(
                f"Expected --{name} above 0, received {given[name]}."
            )
    return run


def build_model(run, accumulate, xla):
    """The model, compiled with the optimizer and the loss of section 5."""
    recipe = run.training
    keras.utils.set_random_seed(recipe.seed)
    model = exact_step.ExactTransformer(
        **dataclasses.asdict(run.model),
        accumulate=accumulate,
        dtype=recipe.precision,
    )
    model.compile(
        # Sections 5.3 and 5.4.
        optimizer=Adam(
            TransformerSchedule(
                run.model.d_model,
                recipe.warmup_steps,
                recipe.learning_rate_scale,
            ),
            beta_1=0.9,
            beta_2=0.98,
            epsilon=1e-9,
        ),
        loss=SmoothedCrossEntropy(recipe.label_smoothing),
        jit_compile=XLA[xla],
    )
    model.optimizer.build(model.trainable_variables)
    return model


def local_copy(run):
    """A model to evaluate on the chief alone."""
    model = exact_step.ExactTransformer(
        **dataclasses.asdict(run.model), dtype=run.training.precision
    )
    model.compile(
        loss=SmoothedCrossEntropy(run.training.label_smoothing),
        jit_compile=False,
    )
    return model


def fit_beside_chief(run, model, average, plan, start):
    """Take part in every step of `fit`; returns a signal that came, or None."""
    stopwatch = callbacks.Stopwatch(start)
    # The chief looks at the clock.
    stop = callbacks.StopTraining(stopwatch.now, None)
    batches = batching.batches(plan, divmod(start.step, len(plan)))
    try:
        model.fit(
            workers.share_rows(model.distribute_strategy, batches),
            steps_per_epoch=run.training.steps - start.step,
            shuffle=False,
            verbose=0,
            callbacks=[stopwatch, *([average] if average else []), stop],
        )
    finally:
        stop.restore_handlers()
    return stop.signal


def fit(run, run_dir, model, average, data, tokenizer, start, minutes):
    """Train from `start` on; returns the signal that ended it, or None."""
    plan, validation, sample = data
    recipe = run.training
    stopwatch = callbacks.Stopwatch(start)
    now = stopwatch.now
    history = History(run_dir, start.step)
    stop = callbacks.StopTraining(now, minutes)
    batches = batching.batches(plan, divmod(start.step, len(plan)))
    strategy = model.distribute_strategy
    guard = StopOnNonFinite(run_dir, now, plan, tokenizer)
    show = ShowProgress(now, history, recipe.steps, minutes)

    def save(progress):
        guard.check()
        return checkpoints.save_checkpoint(
            run_dir,
            model,
            progress,
            recipe.keep_checkpoints,
            average.variables if average else (),
        )

    try:
        model.fit(
            workers.share_rows(strategy, batches),
            steps_per_epoch=recipe.steps - start.step,
            shuffle=False,
            verbose=0,
            callbacks=[
                stopwatch,
                *([Compilations(plan, start.step)] if model.xla else []),
                *([average] if average else []),
                guard,
                # First of those that take time: a second signal finds it done.
                callbacks.SaveCheckpoints(
                    save,
                    now,
                    recipe.checkpoint_minutes,
                    recipe.checkpoint_steps,
                ),
                stop,
                show,
                callbacks.Validation(
                    now,
                    history,
                    validation,
                    sample,
                    tokenizer,
                    recipe.validation_steps,
                    stop,
                    *([average.in_use] if average else []),
                    judged=local_copy(run)
                    if workers.are_several(strategy)
                    else None,
                ),
            ],
        )
    finally:  # Keras ends no callback after an error.
        stop.restore_handlers()
        show.bar.stop()
    return stop.signal


def finish(run, run_dir):
    """Average the newest checkpoints, draw the curve, say what is next."""
    averaged = averaging.load_model(run_dir)
    path = run_dir / averaging.AVERAGED_FILE
    partial = path.with_name(f".partial-{path.name}")
    averaged.save_weights(partial)
    partial.replace(path)
    count = len(averaging.averaged_checkpoints(run_dir))
    logger.info(
        "Wrote %s, the %s, and %s.",
        path,
        "moving average of the weights"
        if run.training.ema
        else f"average of the last {count} checkpoints",
        curves.draw(run_dir),
    )
    logger.info(
        "Peak memory: %.1f GB.",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )
    logger.info(
        "Next: python -m keras_transformer evaluate --run-dir %s, or "
        "python -m keras_transformer translate --run-dir %s < FILE, or "
        "python export.py --run-dir %s --output DIR",
        *[run_dir] * 3,
    )


def print_costs(run, run_dir, corpus, strategy, accumulate, xla):
    """Print what the run would cost; nothing is written where it would go."""
    corpus = dry_run.head(corpus)
    replicas = strategy.num_replicas_in_sync
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        has_run = (run_dir / run_config.CONFIG_FILE).exists()
        run, tokenizer = prepare_tokenizer(
            run, run_dir if has_run else folder, corpus
        )
        plan, is_whole = dry_run.make_plan(run, corpus, tokenizer, folder)
        if not (has_run or is_whole):  # The rest will fill the vocabulary.
            model = dataclasses.replace(
                run.model, vocab_size=run.requested_vocab_size
            )
            run = dataclasses.replace(run, model=model)
        costs = dry_run.count(run, plan, replicas, accumulate)
        with strategy.scope():
            model = build_model(run, accumulate, xla)
        measured = dry_run.measure(model, run, plan, costs.flops, replicas)
    print(dry_run.report(run, plan, costs, measured, replicas, accumulate))


def restore_model(args, run, run_dir, strategy):
    """The model and its moving average, if any, and where they are."""
    with strategy.scope():
        model = build_model(run, args.accumulate, args.xla)
        average = None
        if run.training.ema:
            average = averaging.MovingAverage(model, run.training.ema)
        with workers.chief_first(strategy):  # It sets damaged ones aside.
            start = checkpoints.restore_checkpoint(
                run_dir, model, average.variables if average else ()
            )
    recipe = zlib.crc32(f"{run} {args.minutes}".encode())
    workers.check_alike(
        strategy,
        f"update {start.step} of {run.training.steps} in {run_dir}, recipe "
        f"{recipe:08x}",
    )
    return model, average, start


def is_finished(args, run, start):
    """Whether there is nothing left to train."""
    over = args.minutes and start.seconds >= 60 * args.minutes
    return over or start.step >= run.training.steps


def train_beside_chief(args, run, run_dir, strategy):
    """Train as another worker than the chief, which alone writes."""
    workers.meet(strategy)  # The chief has prepared the run directory.
    workers.wait_for_file(run_dir / run_config.CONFIG_FILE)
    run = run.resume(run_config.RunConfig.load(run_dir), CHANGEABLE, run_dir)
    records = batching.TokenisedCorpus.load(
        run_dir / "records" / run.train_split
    )
    plan = batching.BatchPlan(
        records, run.training.batch_tokens, run.training.seed
    )
    model, average, start = restore_model(args, run, run_dir, strategy)
    if is_finished(args, run, start):
        return command_line.DONE
    stopped = fit_beside_chief(run, model, average, plan, start)
    return 130 if stopped == signal.SIGINT else command_line.DONE


def main(argv=None) -> int:
    """Train, or go on training; returns an exit code."""
    args = parse_args(argv)
    run = run_config(args)
    run_dir = args.run_dir or pathlib.Path("runs", run.preset)
    if args.dry_run and (
        args.strategy == "multiworker" or os.environ.get("TF_CONFIG")
    ):
        raise UserError(
            "Expected one machine for --dry-run, received --strategy "
            "multiworker or TF_CONFIG; leave them out."
        )
    strategy = workers.make_strategy(args.strategy)
    with workers.one_fate(strategy):
        if workers.is_chief(strategy):
            code = train(args, run, run_dir, strategy)
        else:
            code = train_beside_chief(args, run, run_dir, strategy)
        workers.meet(strategy)  # Or who ends first would seem lost.
    return code


def train(args, run, run_dir, strategy):
    """Train on this machine, or as the chief of several."""
    corpus = corpora.open_corpus(run.corpus, run.source_lang, run.target_lang)
    for split in (run.train_split, run.validation_split):
        corpus.pairs(split)  # Fails now, not after an hour, if it must.
    is_new = not run_dir.exists()
    if not is_new:
        check_run_dir(run_dir)
    if args.dry_run:
        print_costs(run, run_dir, corpus, strategy, args.accumulate, args.xla)
        return command_line.DONE
    if not is_new:
        checkpoints.remove_leftovers(run_dir)
    try:
        run, tokenizer = prepare_tokenizer(run, run_dir, corpus)
        data = prepare_data(run, run_dir, corpus, tokenizer)
        run.save(run_dir)
    except (UserError, OSError):
        if is_new:
            shutil.rmtree(run_dir, ignore_errors=True)
        raise
    workers.meet(strategy)  # The others read what is written now.
    model, average, start = restore_model(args, run, run_dir, strategy)
    logger.info(
        "%s: %s parameters, %d replicas.",
        run.preset,
        f"{model.count_params():,}",
        strategy.num_replicas_in_sync,
    )
    if is_finished(args, run, start):
        logger.info(
            "%s is finished: %d updates in %.1f minutes. More --steps or "
            "--minutes would go on.",
            run_dir,
            start.step,
            start.seconds / 60,
        )
    else:
        if start.step:
            logger.info("Resuming after update %d.", start.step)
        stopped = fit(
            run, run_dir, model, average, data, tokenizer, start, args.minutes
        )
        if stopped:
            logger.info("Stopped; the same command goes on from here.")
            return 130 if stopped.name == "SIGINT" else command_line.DONE
    finish(run, run_dir)
    return command_line.DONE


if __name__ == "__main__":
    sys.exit(command_line.run(main))
