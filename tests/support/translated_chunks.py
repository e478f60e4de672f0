"""What the tests of text that runs translate for others share."""

import contextlib
import types

import pytest

from keras_transformer import synthetic
from keras_transformer.translation.display import SentenceDisplay


def read(folder, name):
    return (folder / name).read_text("utf-8").splitlines()


def count_in_chunks(monkeypatch):
    """A fixture: 17 texts a chunk; gets how many were translated in each."""
    counts, load = [], synthetic._load

    def counting(*arguments):
        find = load(*arguments).n_best

        def n_best(texts, *arguments, **how):
            counts.append(len(texts))
            return find(texts, *arguments, **how)

        return types.SimpleNamespace(n_best=n_best)

    monkeypatch.setattr(synthetic, "CHUNK", 17)
    monkeypatch.setattr(synthetic, "_load", counting)
    return counts


@contextlib.contextmanager
def killed_after_a_chunk(monkeypatch):
    def stop(self, count):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SentenceDisplay, "end_chunk", stop)
        yield
