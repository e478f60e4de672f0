"""Translate a corpus larger than a machine: sharded text in, sharded text out.

An Apache Beam pipeline over an exported SavedModel; it needs tensorflow,
tensorflow-text and apache-beam, and nothing of keras_transformer. Line i of
output shard k of n answers line i of input shard k, its translation and its
score with a tab between.

Example:
    python translate_corpus.py --model exported/demo/1 \
        --input 'corpus/en-*.txt' --output translated/de \
        --direct_running_mode multi_processing --direct_num_workers 2
"""

import argparse
import logging
import os
import sys
import uuid

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.shared import Shared

# The answer for a row that cannot be translated; the model gives this score to
# a translation that does not exist.
NO_ANSWER = ("", float("-inf"))
# Metrics of the namespace `translate`, rows each.
COUNTED = ("rows", "blank", "truncated", "not_utf8", "refused")
# Characters that would end a line or a column.
BREAKS = str.maketrans("\n\r\t", "   ")


class ReadBlocks(beam.DoFn):
    """(k, path) to blocks of lines: ((k, block), lines), at least one."""

    def __init__(self, lines):
        self.lines = lines

    def process(self, shard):
        number, path = shard
        block, rows = 0, []
        with FileSystems.open(path) as file:
            while line := file.readline():
                rows.append(line.removesuffix(b"\n").removesuffix(b"\r"))
                if len(rows) == self.lines:
                    yield (number, block), rows
                    block, rows = block + 1, []
        if rows or not block:
            yield (number, block), rows


class Model:
    """A SavedModel of keras_transformer; a process has one of each path."""

    def __init__(self, path, threads):
        # Not where the pipeline is put together, which needs neither.
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  The tokenizer's operators.

        if threads:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        self.refusals = (
            tf.errors.InvalidArgumentError,
            tf.errors.ResourceExhaustedError,
        )
        self.constant = tf.constant
        self.loaded = tf.saved_model.load(path)
        self.search = self.loaded.signatures["serving_default"]
        logging.info("Process %d has loaded %s.", os.getpid(), path)

    def translate(self, rows):
        """Translate lines in UTF-8: bytes, scores and whether it was cut."""
        found = self.search(text=self.constant(rows))
        names = ("translation", "score", "truncated")
        return list(zip(*(found[name].numpy() for name in names), strict=True))


class Translate(beam.DoFn):
    """((k, block), lines) to (k, (block, answers)), as many as lines."""

    def __init__(self, path, batch, threads, shared):
        self.path, self.batch, self.threads = path, batch, threads
        # The handle by which all threads of a process find one model.
        self.shared = shared
        self.counters = {
            name: Metrics.counter("translate", name) for name in COUNTED
        }

    def setup(self):
        self.model = self.shared.acquire(
            lambda: Model(self.path, self.threads), tag=self.path
        )

    def process(self, element):
        (shard, block), lines = element
        answers = [NO_ANSWER] * len(lines)
        self.counters["rows"].inc(len(lines))
        good = [i for i, line in enumerate(lines) if self.is_text(line)]
        # Lines of similar length together: padding costs as much as text.
        good.sort(key=lambda i: len(lines[i]))
        for start in range(0, len(good), self.batch):
            places = good[start : start + self.batch]
            found = self.answer([lines[i] for i in places])
            for i, answer in zip(places, found, strict=True):
                answers[i] = answer
        yield shard, (block, answers)

    def is_text(self, line):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self.counters["not_utf8"].inc()
            return False
        if not text.strip():
            self.counters["blank"].inc()
        return True

    def answer(self, lines):
        try:
            found = self.model.translate(lines)
        except self.model.refusals:
            if len(lines) > 1:  # Perhaps one of them is to blame.
                return [self.answer([line])[0] for line in lines]
            self.counters["refused"].inc()
            return [NO_ANSWER]
        answers = []
        for translation, score, was_cut in found:
            self.counters["truncated"].inc(int(was_cut))
            text = translation.decode(errors="replace").translate(BREAKS)
            answers.append((text, float(score)))
        return answers


class WriteShard(beam.DoFn):
    """(k, blocks in any order) to the path of output shard k."""

    def __init__(self, prefix, shards):
        self.prefix, self.shards = prefix, shards

    def process(self, element):
        shard, blocks = element
        path = f"{self.prefix}-{shard:05d}-of-{self.shards:05d}.tsv"
        # Under another name until it is whole; a bundle may run twice.
        partial = f"{path}.{uuid.uuid4().hex}.tmp"
        with FileSystems.create(partial, "text/plain") as file:
            for _, answers in sorted(blocks):
                for text, score in answers:
                    file.write(f"{text}\t{score:.4f}\n".encode())
        FileSystems.rename([partial], [path])
        yield path


def parse_args(argv=None):
    """Parse our arguments; return them and those for Beam's runner."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, help="VERSION folder that workers can read")
    add("--input", required=True, help="pattern of text files, a line a row")
    add("--output", required=True, help="prefix: PREFIX-00000-of-00003.tsv")
    add("--batch-size", type=int, default=64, help="rows translated together")
    add(
        "--block-lines",
        type=int,
        default=1024,
        help="lines that one worker takes at a time, sorted by length",
    )
    add("--threads", type=int, default=0, help="of a process; 0: all cores")
    return parser.parse_known_args(argv)


def main(argv=None):
    """Run the pipeline; prints the counts of rows by name."""
    args, beam_argv = parse_args(argv)
    (match,) = FileSystems.match([args.input])
    paths = sorted(file.path for file in match.metadata_list)
    if not paths:
        sys.exit(f"error: Expected text files at {args.input}, found none.")
    # What stands in this file travels with the pipeline.
    options = PipelineOptions(beam_argv, save_main_session=False)
    pipeline = beam.Pipeline(options=options)
    _ = (
        pipeline
        | beam.Create(list(enumerate(paths)))
        | "Read" >> beam.ParDo(ReadBlocks(args.block_lines))
        # Blocks go to whoever is free, not to the reader of their file.
        | beam.Reshuffle()
        | beam.ParDo(
            Translate(args.model, args.batch_size, args.threads, Shared())
        )
        | beam.GroupByKey()
        | "Write" >> beam.ParDo(WriteShard(args.output, len(paths)))
    )
    result = pipeline.run()
    result.wait_until_finish()
    counts = dict.fromkeys(COUNTED, 0)
    for counter in result.metrics().query()["counters"]:
        if counter.key.metric.namespace == "translate":
            counts[counter.key.metric.name] += counter.committed
    for name, count in counts.items():
        print(f"{name}\t{count}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
