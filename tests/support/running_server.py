"""The embedded server in a thread of the tests."""

import asyncio
import contextlib
import pathlib
import threading
from types import SimpleNamespace

from keras_transformer.serving import server
from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.limits import Batching, Limits
from keras_transformer.serving.service import Service
from keras_transformer.serving.versions import Versions


@contextlib.contextmanager
def running(
    model, batching=None, limits=None, explain=None, origins=(), hosts=("*",)
):
    """Serve a folder of versions, or a stand-in for a model, as `small`."""
    is_folder = isinstance(model, pathlib.Path)
    versions = Versions(model) if is_folder else SimpleNamespace(current=model)
    service = Service(
        *("small", versions, Batcher(batching or Batching())),
        *(limits or Limits(), explain, origins, hosts),
    )
    listening = server.bind("127.0.0.1", 0)
    listening.listen()
    running_server = server.make(service)
    thread = threading.Thread(
        target=lambda: asyncio.run(running_server.serve([listening]))
    )
    thread.start()
    try:
        port = listening.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        yield SimpleNamespace(service=service, port=port, url=url)
    finally:
        running_server.should_exit = True
        thread.join()
