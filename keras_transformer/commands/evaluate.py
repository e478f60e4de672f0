"""`python -m keras_transformer evaluate`."""

import argparse
import contextlib
import json
import logging
import pathlib

from keras_transformer.commands import command_line, search_flags
from keras_transformer.commands.sentence_progress import Progress
from keras_transformer.data import lines
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.runs import run_config

logger = logging.getLogger("keras_transformer")

EVALUATION_FOLDER = "evaluation"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what the verb alone has."""
    search_flags.add_beam_flags(parser)
    add = parser.add_argument
    add("--corpus", help="as in train.py; default: the run's own")
    add("--split", default="test", help="default: %(default)s")
    add("--json", type=pathlib.Path, help="write the results here too")


def evaluate(args: argparse.Namespace) -> None:
    """Translate every sentence of a split and print its scores.

    The translations go to RUN/evaluation/SPLIT.LANG.txt and all figures to
    RUN/evaluation/SPLIT.json, in place of those of an earlier evaluation.
    """
    with search_flags.refusals():
        SearchOptions(args.beam_size, args.length_penalty)
    run = run_config.RunConfig.load(args.run_dir)
    command_line.quiet_tensorflow()
    from keras_transformer.data import corpora

    name = args.corpus or run.corpus
    corpus = corpora.open_corpus(name, run.source_lang, run.target_lang)
    pairs = list(corpus.pairs(args.split))
    from keras_transformer.runs import averaging
    from keras_transformer.translation import evaluation
    from keras_transformer.translation.translator import Translator

    translator = Translator.from_run(args.run_dir, args.average)
    averaged = averaging.averaged_checkpoints(args.run_dir, args.average)
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
            "ema": None if args.average else run.training.ema,
            "checkpoints": [path.name for path in averaged],
            **result.report(),
        }
        for line in result.translations:
            text_file.write(lines.on_one_line(line).encode() + b"\n")
        for file in json_files:
            file.write(json.dumps(report, indent=2).encode() + b"\n")
    for score in result.scores.values():
        print(f"{score.value:6.2f}  {score.name}  {score.signature}")
    logger.info("Wrote %s.", " and ".join(map(str, (text_path, *json_paths))))
