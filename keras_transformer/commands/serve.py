"""`keras-transformer serve`."""

import argparse
import dataclasses
import functools
import logging
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from keras_transformer.commands import command_line, flags
from keras_transformer.config import MAX_SOURCE_LENGTH, UserError
from keras_transformer.exporting import serving_kit
from keras_transformer.machine import devices, extras
from keras_transformer.runs.layout import CONFIG_FILE, EXPORTED
from keras_transformer.runs.weights import WEIGHTS
from keras_transformer.serving.limits import LIMITS, Batching, Limits
from keras_transformer.translation.model_card import ModelCard, find_versions

if TYPE_CHECKING:
    from keras_transformer.run import Run
    from keras_transformer.translation.translator import Translator


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    add = parser.add_argument
    add(
        "exported",
        nargs="?",
        type=pathlib.Path,
        metavar="EXPORTED",
        help="the OUTPUT of export, with all its versions, or a run directory",
    )
    add(
        "--run-dir",
        type=pathlib.Path,
        help="serve this run instead; it is first exported to "
        "RUN_DIR/exported, unless that is up to date, or to a temporary "
        "folder if RUN_DIR is read-only",
    )
    flags.add(parser, [WEIGHTS["ensemble"]])
    add("--host", default="127.0.0.1", help="default: %(default)s")
    add("--port", type=int, default=8501, help="default: %(default)s")
    add(
        "--name",
        help="the model's name for clients; default: the name of the folder",
    )
    add(
        "--cors",
        type=str.lower,  # As browsers name a site.
        action="append",
        default=[],
        metavar="ORIGIN",
        help="another site whose pages may ask, such as "
        "https://example.org, or '*' for any; may be given several times",
    )
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept requests for this host name too, besides --host and "
        "localhost; may be given several times; with --host 0.0.0.0, all "
        "names are accepted unless you list some",
    )
    add(
        "--batching-parameters",
        type=pathlib.Path,
        metavar="FILE",
        help="default: EXPORTED/batching_parameters.txt, if it is there",
    )
    flags.add(parser, LIMITS)


def run(args: argparse.Namespace) -> None:
    """Serve an export over HTTP: a page, and the interfaces of two servers.

    Example:
        keras-transformer serve exported/demo

    It speaks TensorFlow Serving's REST interface and LibreTranslate's API, and
    has a page at /. A newer version in the folder takes over by itself. On
    Ctrl-C or SIGTERM it answers the requests it has taken and ends within 20
    seconds.
    """
    run = _served_run(args)
    for origin in args.cors:
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise UserError(
                "Expected an origin such as https://example.org as --cors, "
                f"received {origin}."
            )
    for name in args.allow_host:
        if not re.fullmatch(r"[^/:\s]+|\[[^]\s]+\]", name):
            raise UserError(
                "Expected a name without scheme and port, such as example.org, "
                f"as --allow-host, received {name}."
            )
    name = serving_kit.model_name(args.run_dir or args.exported, args.name)
    limits = Limits(**flags.given(args, LIMITS))
    for package in "python_multipart", "sentencex", "starlette", "uvicorn":
        extras.needs(package, "serve")
    # Without a handler, SIGTERM would not end a container's first process while
    # the model loads. Uvicorn raises it again when it has finished.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # This takes seconds, and a misspelt argument need not wait for it.
    command_line.quiet_tensorflow()
    # What other libraries log may hold a client's text.
    logger = logging.getLogger("keras_transformer")
    logger.setLevel(logging.INFO)
    # It names characters of texts.
    logger.addFilter(lambda record: record.module != "tokenizer")
    logging.getLogger().setLevel(logging.CRITICAL)
    from keras_transformer.serving import server
    from keras_transformer.serving.batcher import Batcher
    from keras_transformer.serving.service import Service
    from keras_transformer.serving.versions import Versions

    listening = server.bind(args.host, args.port)
    folder, explain = args.exported, None
    if run is not None:
        folder = args.run_dir / EXPORTED
        if not os.access(args.run_dir, os.W_OK):
            logger.info("%s is read-only: exporting elsewhere.", args.run_dir)
            kept = tempfile.TemporaryDirectory()  # Until the server ends.
            folder = pathlib.Path(kept.name)
        keep_exported(run, folder)
        if not args.ensemble:
            explain = explainer(args.run_dir)
    path, batching = args.batching_parameters, Batching()
    if path or (path := folder / serving_kit.BATCHING_FILE).exists():
        batching = Batching(**serving_kit.read_batching(path))
    # The session loader warns that it is outdated; an export resets this level.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # Parallel batches share the cores: two threads that meet after every
    # operator cost more than they gain.
    threads = max(1, devices.cores() // batching.num_batch_threads)
    versions, batcher = Versions(folder, threads), Batcher(batching)
    names = server.names_of(args.host, args.allow_host)
    service = Service(
        name, versions, batcher, limits, explain, args.cors, names
    )
    server.serve(listening, service)


def keep_exported(run: "Run", output: pathlib.Path) -> None:
    """Export a run as it is now, unless that has been done.

    If the weights or the search of the run differ from those of the highest
    version in `output`, write a version one above it. It replaces the one that
    it differs from in its weights alone.
    """
    newest = max(find_versions(output), default=0)
    path = output / str(newest)
    kept = ModelCard.load(path) if newest else None
    weights = run.chosen()
    if kept:
        weights = dataclasses.replace(weights, precision=kept.precision)
    now = run.card(weights)
    search = run.config.search.kept_by_run()
    is_alike = kept and all(kept.search.get(x) == search[x] for x in search)
    if not kept or not is_alike or kept.weights != now.weights:
        made = ModelCard.load(run.export(output, newest + 1))
        if kept and made and kept.how == made.how:
            # Another process may have removed it.
            shutil.rmtree(path, ignore_errors=True)
    elif (
        now.scores not in ((), kept.scores)  # The run was evaluated since.
        and now.shortlist == kept.shortlist
    ):
        dataclasses.replace(kept, scores=now.scores).save(path)


def _served_run(args: argparse.Namespace) -> "Run | None":
    """Open the run to serve; None if the arguments name an export."""
    if (args.exported is None) == (args.run_dir is None):
        args.parser.error("expected either EXPORTED or --run-dir")
    if args.exported and (args.exported / CONFIG_FILE).exists():
        args.run_dir, args.exported = args.exported, None
    if args.run_dir is not None:
        return flags.prepare(args)[0]
    if args.ensemble:
        args.parser.error("expected --run-dir beside --ensemble")
    if not find_versions(args.exported):
        raise UserError(
            "Expected the folder of all versions of an export, such as 1 with "
            f"a saved_model.pb, received {args.exported}; give the folder "
            "above a version, or write one with keras-transformer export."
        )
    return None


def explainer(run_dir: pathlib.Path) -> Callable[[str, str], str]:
    """Make the function that explains a text as an HTML document.

    It loads the run's model at its first call, and again for an export of other
    weights, or refuses if the run has gone on.
    """
    from keras_transformer.run import Run
    from keras_transformer.viewing import viewer

    @functools.lru_cache(1)
    def load(weights: str) -> "Translator":
        run = Run(run_dir)
        if run.chosen().identity != weights:
            raise UserError(
                f"Expected the weights {weights}, which translate here, but "
                "the run has others by now; start the server again to explain "
                "with them."
            )
        return run.translator()

    def explain(text: str, weights: str) -> str:
        explanation = load(weights).explain(
            text, max_source_length=MAX_SOURCE_LENGTH
        )
        return viewer.document(text, explanation.to_html())

    return explain
