"""`keras-transformer serve`."""

import argparse
import logging
import os
import pathlib
import re
import signal
import sys
import threading
from collections.abc import Callable

from keras_transformer.commands import command_line
from keras_transformer.config import UserError
from keras_transformer.machine import extras
from keras_transformer.machine.batching_file import BATCHING_FILE, Batching
from keras_transformer.runs.layout import CONFIG_FILE, EXPORTED
from keras_transformer.runs.run_config import RunConfig


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what the verb alone has."""
    add = parser.add_argument
    add(
        "exported",
        nargs="?",
        type=pathlib.Path,
        metavar="EXPORTED",
        help="folder of all versions, as OUTPUT of export, or a run directory",
    )
    add(
        "--run-dir",
        type=pathlib.Path,
        help="serve this run instead; exported to RUN_DIR/exported first, "
        "unless it is there already",
    )
    add("--host", default="127.0.0.1", help="default: %(default)s")
    add("--port", type=int, default=8501, help="default: %(default)s")
    add(
        "--name",
        help="what clients call the model; default: the name of the folder",
    )
    add(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a web page of another host that may ask, such as "
        "https://example.org; may be given several times",
    )
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name of this server beside --host and localhost; at 0.0.0.0 "
        "any name will do unless some are given; may be given several times",
    )
    add(
        "--batching-parameters",
        type=pathlib.Path,
        metavar="FILE",
        help="default: EXPORTED/batching_parameters.txt, if it is there",
    )
    add(
        "--max-texts",
        type=int,
        default=2_048,
        help="texts or sentences in a request; default: %(default)s",
    )
    add(
        "--max-body-bytes",
        type=int,
        default=1 << 20,
        help="bytes in a request; default: %(default)s",
    )
    add(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="time for a request; default: %(default)s",
    )
    parser.set_defaults(average=None)


def serve(args: argparse.Namespace) -> None:
    """Answer over HTTP: a page, and what clients of two other servers expect.

    Example:
        keras-transformer serve exported/demo

    It speaks TensorFlow Serving's REST interface and LibreTranslate's, has a
    page at / and metrics at /monitoring/prometheus/metrics. A newer version in
    the folder takes over by itself. Ctrl-C or SIGTERM ends it once what it
    took is answered, after 20 seconds at the latest.
    """
    if (args.exported is None) == (args.run_dir is None):
        args.parser.error("expected either EXPORTED or --run-dir")
    if args.exported and (args.exported / CONFIG_FILE).exists():
        args.run_dir, args.exported = args.exported, None
    if args.run_dir is not None:
        RunConfig.load(args.run_dir)  # Raises unless it is one.
    elif (args.exported / "saved_model.pb").exists():
        raise UserError(
            "Expected the folder of all versions of an export, received "
            f"{args.exported}, which is one version; give "
            f"{args.exported.absolute().parent}."
        )
    elif not args.exported.is_dir():
        raise UserError(
            "Expected the folder of an export, found no folder "
            f"{args.exported}; write one with keras-transformer export."
        )
    for origin in args.cors:
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise UserError(
                "Expected an origin such as https://example.org as --cors, "
                f"received {origin}."
            )
    for package in (
        *("babel", "lxml", "prometheus_client", "python_multipart"),
        *("sentencex", "starlette", "uvicorn"),
    ):
        extras.needs(package, "serve")
    # While the model is loaded a container's first process would not end by it
    # without a handler. Uvicorn raises it again when it has finished.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Takes seconds, which a misspelt argument need not wait for.
    command_line.quiet_tensorflow()
    # The session loader, which TensorFlow Serving uses, calls itself outdated.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    from keras_transformer.serving import server
    from keras_transformer.serving.limits import Limits

    limits = Limits(args.max_texts, args.max_body_bytes, args.timeout)
    listening = server.bind(args.host, args.port)
    folder = args.exported
    explain = None
    if args.run_dir is not None:
        from keras_transformer.run import Run

        folder = args.run_dir / EXPORTED
        Run(args.run_dir).keep_exported(folder)
        explain = explainer(args.run_dir)
    path = args.batching_parameters or folder / BATCHING_FILE
    given = args.batching_parameters is not None
    batching = Batching.load(path) if given or path.exists() else Batching()
    named = folder if args.exported else args.run_dir
    server.serve(
        listening,
        folder,
        name=args.name or os.path.basename(os.path.abspath(named)),
        batching=batching,
        limits=limits,
        origins=args.cors,
        hosts=server.names_of(args.host, args.allow_host),
        explain=explain,
    )


def explainer(run_dir: pathlib.Path) -> Callable[[str, int], str]:
    """Make the function that explains a text as an HTML document.

    It loads the run's model when it is first called, and again for another
    version of the export.
    """
    from keras_transformer.config import MAX_SOURCE_LENGTH
    from keras_transformer.translation.translator import Translator
    from keras_transformer.viewing import page

    lock = threading.Lock()
    loaded: dict[int, Translator] = {}

    def explain(text: str, version: int) -> str:
        with lock:
            if version not in loaded:
                loaded.clear()
                loaded[version] = Translator.from_run(run_dir)
            translator = loaded[version]
        explanation = translator.explain(
            text, max_source_length=MAX_SOURCE_LENGTH
        )
        return page.document(text, [explanation.to_html()])

    return explain
