"""`keras-transformer evaluate`."""

import argparse
import re

from keras_transformer.commands import command_line, flags
from keras_transformer.translation.display import SentenceDisplay

# Signatures name versions of MeCab, which the flag does not take.
_TOKENIZER = re.compile(r"\|tok:((?:ja|ko)-mecab|[^|]+)")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser)
    flags.add_search_flags(parser, n_best=None)
    flags.add_parallel_flag(parser)
    add = parser.add_argument
    add("--corpus", help="a corpus as in train; default: the run's own")
    add("--split", default="test", help="default: %(default)s")
    said = "score lower-cased text too, tokenised by Moses"
    add("--lowercase", action="store_true", help=said)
    add(
        "--tokenize",
        metavar="NAME",
        help="sacreBLEU's tokeniser for BLEU, such as 13a, zh, ja-mecab, "
        "ko-mecab or char; default: that of the target language",
    )


def run(args: argparse.Namespace) -> None:
    """Translate every sentence of a split and print its scores.

    Source, references, translations and scores go to RUN/evaluation/SPLIT, in
    place of earlier ones; those of another corpus to a folder that its name
    begins. sacreBLEU's own command compares the translations of two runs.
    """
    run, search = flags.prepare(args)
    with SentenceDisplay() as display:
        result = run.evaluate(
            args.split,
            args.corpus,
            search=search,
            lowercase=args.lowercase,
            tokenize=args.tokenize,
            parallel=args.parallel,
            progress=display.of_all,
        )
    for score in result.scores.values():
        print(f"{score.value:6.2f}  {score.name}  {score.signature}")
    if folder := result.folder:
        words = [folder / "reference.txt", "-i"]
        words.append(f"RUN/evaluation/{folder.name}/translation.txt")
        words.append(folder / "translation.txt")
        words += ["--tokenize", _TOKENIZER.findall(result.bleu.signature)[0]]
        # Of chrF's tests it can write no JSON.
        words += "--metrics bleu chrf --paired-bs --format text".split()
        command_line.say_next(*words, program="sacrebleu")
