"""A model that does not translate and may be held."""

import threading

import numpy as np

from keras_transformer.translation.model_card import ModelCard


class StillModel:
    """Answers each text with itself, backwards, and `bad` with an error.

    Attributes:
        gate: Batches wait until it is set.
        batches: The texts of every batch that was begun.
        error: Raised in place of an answer, if there is one.
    """

    version = 7
    signatures = {"serving_default": None}
    padded = frozenset(["matrix"])
    card = ModelCard("de", "en", "tiny", "demo", 7, "step-000000007 00000000")

    def __init__(self, is_open=True):
        self.gate, self.batches, self.error = threading.Event(), [], None
        if is_open:
            self.gate.set()

    @property
    def texts(self):
        return [text for batch in self.batches for text in batch]

    def inputs(self, signature):
        return ["text"]

    def run(self, signature, rows):
        texts = [text for (text,) in rows]
        self.batches.append(texts)
        assert self.gate.wait(20)
        if self.error or b"bad" in texts:
            raise self.error or ValueError("what a model says")
        if signature == "matrix":
            longest = max(map(len, texts))
            codes = [[*text, *[0] * (longest - len(text))] for text in texts]
            return {"codes": np.array(codes)}
        return {
            "translation": np.array([text[::-1] for text in texts], object),
            "score": np.array([float(len(text)) for text in texts]),
            "truncated": np.array([False] * len(rows)),
        }
