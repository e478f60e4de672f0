"""What the tests of text that runs translate for others share."""

import contextlib

import pytest

from keras_transformer.translation import unfinished
from keras_transformer.translation.display import SentenceDisplay


def read(folder, name):
    return (folder / name).read_text("utf-8").splitlines()


def count_in_chunks(monkeypatch):
    """A fixture: 17 texts a chunk; gets how many were translated in each."""
    counts, add = [], unfinished.Unfinished.add

    def counting(self, about, make):
        was_there = add(self, about, make)
        if not was_there:
            counts.append(len(about[-1]))
        return was_there

    monkeypatch.setattr(unfinished, "CHUNK", 17)
    monkeypatch.setattr(unfinished.Unfinished, "add", counting)
    return counts


@contextlib.contextmanager
def killed_after_a_chunk(monkeypatch):
    def stop(self, *_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SentenceDisplay, "end_chunk", stop)
        yield
