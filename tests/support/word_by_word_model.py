"""A stand-in for an export: a model that needs no search.

It knows a few words and writes them in reverse, so you can see which word comes
from which: "ein kleiner Hund." is "dog. small a".
"""

import dataclasses
import re

import numpy as np

from keras_transformer.translation.model_card import ModelCard

GERMAN = "das die ein eine kleiner Hund über Wiese Lampe kostet zwei Euro"
ENGLISH = "the the a a small dog across meadow lamp costs two euros"
WORDS = dict(zip(GERMAN.split(), ENGLISH.split(), strict=True))
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
CARD = ModelCard(
    "de",
    "en",
    "tiny",
    "demo",
    12_990,
    "step-000000007 00000000",
    scores=(
        dict(corpus="demo", split="test", name="BLEU", value=34.18)
        | dict(signature=SIGNATURE),
    ),
    search=dict(n_best=3, max_source_length=256),
    subject="dogs and lamps",
    examples=("Ein Hund.", "Die Lampe."),
)


def translation(source):
    """A sentence in English, from its last word to its first."""
    words = [
        WORDS.get(word.rstrip("."), word.rstrip(".")) + "." * word.endswith(".")
        for word in source.split()
    ]
    return " ".join(reversed(words))


class WordByWord:
    """The parts of `ServedModel` that the page needs."""

    version = 17
    card = CARD
    signatures = dict.fromkeys(["serving_default", "n_best", "attention"])
    padded = frozenset(["attention"])

    def inputs(self, signature):
        return ["source", "target"] if signature == "attention" else ["text"]

    def run(self, signature, rows):
        sources = [row[0].decode() for row in rows]
        if signature == "attention":
            return attention(sources, [row[1].decode() for row in rows])
        found = [translation(source) for source in sources]
        if signature == "n_best":
            variants = [[text, f"{text}!", f"{text}?"] for text in found]
            scores = [[-0.25, -0.5, -1.0]] * len(rows)
            return {
                "translations": _texts(variants),
                "scores": np.array(scores, np.float32),
                "truncated": np.zeros(len(rows), bool),
            }
        return {
            "translation": _texts(found),
            "score": np.full(len(rows), -0.25, np.float32),
            "truncated": np.zeros(len(rows), bool),
        }


def attention(sources, targets):
    """Each word looks at the one that it comes from; (B, T, S) with T = S."""
    longest = max(len(source.split()) for source in sources) + 1
    return {
        "source_pieces": _pieces(sources, longest),
        "target_pieces": _pieces(targets, longest),
        "attention": np.stack(
            [_reversed(len(each.split()), longest) for each in targets]
        ),
    }


def _texts(values):
    return np.vectorize(str.encode, otypes=[object])(np.array(values, object))


def _pieces(texts, longest):
    rows = [[f"▁{word}" for word in text.split()] + ["</s>"] for text in texts]
    return _texts([row + [""] * (longest - len(row)) for row in rows])


def _reversed(words, longest):
    weights = np.zeros((longest, longest), np.float32)
    weights[range(words), range(words)[::-1]] = 1.0
    return weights


class Obedient(WordByWord):
    """The same, but it writes what marks want."""

    card = dataclasses.replace(CARD, terms=True)

    def run(self, signature, rows):
        pattern = rb"<term>(.*?)<as>(.*?)</term>"
        obeyed = [
            tuple(re.sub(pattern, lambda x: x[2] or x[1], text) for text in row)
            for row in rows
        ]
        return super().run(signature, obeyed)
