"""What the tests of text that runs translate for others share."""

import contextlib

import pytest

from keras_transformer import synthetic
from keras_transformer.translation import translated_corpus
from keras_transformer.translation.display import SentenceDisplay


def read(folder, name):
    return (folder / name).read_text("utf-8").splitlines()


def count_in_chunks(monkeypatch):
    """A fixture: 17 texts a chunk; gets how many were translated in each."""
    counts, finder = [], synthetic._finder

    def counting(*arguments, **how):
        find = finder(*arguments, **how)

        def count(texts, progress):
            counts.append(len(texts))
            return find(texts, progress)

        return count

    monkeypatch.setattr(translated_corpus, "CHUNK", 17)
    monkeypatch.setattr(synthetic, "_finder", counting)
    return counts


@contextlib.contextmanager
def killed_after_a_chunk(monkeypatch):
    def stop(self, count):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SentenceDisplay, "end_chunk", stop)
        yield
