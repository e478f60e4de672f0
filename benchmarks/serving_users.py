"""What the clients of `serving.py` do; locust runs it.

Each asks for one sentence after another, as soon as it has the answer before.
SENTENCES names a file, MODEL what the server calls the model.
"""

import itertools
import os
import pathlib
import threading

from locust import FastHttpUser, constant, task

LINES = pathlib.Path(os.environ["SENTENCES"]).read_text("utf-8").splitlines()
URL = f"/v1/models/{os.environ['MODEL']}:predict"

# All users share it, so that together they ask for every sentence.
turns = itertools.cycle(LINES)
lock = threading.Lock()


class Client(FastHttpUser):
    """Asks by TensorFlow Serving's REST interface."""

    wait_time = constant(0)

    @task
    def translate(self) -> None:
        """Ask for the next sentence."""
        with lock:
            sentence = next(turns)
        self.client.post(URL, json={"instances": [sentence]}, name="predict")
