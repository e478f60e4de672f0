"""What a training needs in its run directory: vocabulary and records."""

import dataclasses
import itertools
import logging
import random
import zlib

from keras_transformer.config import UserError
from keras_transformer.data import batching
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs import checkpoints, run_config
from keras_transformer.training.progress import log_count
from keras_transformer.translation.translator import TOKENIZER_FILE

logger = logging.getLogger("keras_transformer")

VALIDATION_SAMPLE = 200  # sentences
# A few thousand sentences in large batches would be mostly padding.
VALIDATION_TOKENS = 4_096

# Fields of a recipe that a resumed run may change: they say how long to train
# and what to keep, not what comes out.
CHANGEABLE = (
    "steps",
    "average",
    "checkpoint_minutes",
    "checkpoint_steps",
    "keep_checkpoints",
    "validation_steps",
)


def check_run_dir(run_dir):
    """Refuse a place that is no run directory and cannot become one."""
    if not run_dir.is_dir():
        raise UserError(
            f"Expected a directory as --run-dir, received {run_dir}, which is "
            "a file; choose another name."
        )
    has_config = (run_dir / run_config.CONFIG_FILE).exists()
    if not has_config and checkpoints.list_checkpoints(run_dir):
        raise UserError(
            f"{run_dir} has checkpoints but no "
            f"{run_config.CONFIG_FILE} that says of what; restore the file, "
            "or choose another --run-dir."
        )


def prepare_tokenizer(run, run_dir, corpus):
    """Train the vocabulary, or load it where the run has one.

    Returns:
        The run, with the vocabulary's real size, and the tokenizer.
    """
    path = run_dir / TOKENIZER_FILE
    if (run_dir / run_config.CONFIG_FILE).exists():
        run = run.resume(
            run_config.RunConfig.load(run_dir), CHANGEABLE, run_dir
        )
        tokenizer = Tokenizer.load(path)
    else:
        logger.info("Training a vocabulary of %d pieces.", run.model.vocab_size)
        run_dir.mkdir(parents=True, exist_ok=True)
        sentences = itertools.chain.from_iterable(corpus.pairs(run.train_split))
        tokenizer = Tokenizer.train(sentences, run.model.vocab_size, path)
        run = dataclasses.replace(
            run,
            model=dataclasses.replace(
                run.model, vocab_size=tokenizer.vocab_size
            ),
        )
    return run, tokenizer


def prepare_data(run, run_dir, corpus, tokenizer):
    """Training plan, validation batches, and the pairs to watch BLEU on."""
    recipe = run.training
    vocabulary = zlib.crc32((run_dir / TOKENIZER_FILE).read_bytes())
    records = {}
    for split, max_length in (
        (run.train_split, recipe.max_length),
        (run.validation_split, None),  # Never drop a validation sentence.
    ):
        records[split] = batching.TokenisedCorpus.build(
            corpus.pairs(split),
            tokenizer,
            run_dir / "records" / split,
            max_length=max_length,
            fingerprint=f"{corpus.fingerprint(split)} {vocabulary:x}",
            progress=log_count(f"pairs of {split} tokenised"),
        )
    train = records[run.train_split]
    plan = batching.BatchPlan(train, recipe.batch_tokens, recipe.seed)
    logger.info(
        "%s: %d training pairs in %d batches of up to %d tokens a side, "
        "padding %.1f %%; %d pairs dropped as longer than %d tokens, %d as "
        "empty.",
        run.corpus,
        len(train),
        len(plan),
        recipe.batch_tokens,
        100 * plan.padding_waste(),
        train.dropped,
        recipe.max_length,
        train.empty,
    )
    validation = batching.evaluation_batches(
        records[run.validation_split],
        min(recipe.batch_tokens, VALIDATION_TOKENS),
    )
    pairs = list(corpus.pairs(run.validation_split))
    random.Random(recipe.seed).shuffle(pairs)
    return plan, validation, pairs[:VALIDATION_SAMPLE]
