"""A model that has learnt what bytes mean copies what it never saw."""

import random
import unicodedata

import pytest

import keras_transformer as kt
from keras_transformer.data import demo

EMOJI = [x for x in map(chr, range(0x1F300, 0x1F650)) if x.isprintable()]


def amid(pair, mark):
    """Put a mark behind the second word of both sides, or before a phrase."""
    if not pair[0].startswith("The "):
        return tuple(f"{mark} {text}" for text in pair)
    sides = (text.split(" ", 2) for text in pair)
    return tuple(f"{a} {b} {mark} {rest}" for a, b, rest in sides)


@pytest.mark.slow
def test_an_unseen_emoji_amid_a_phrase_comes_through(tmp_path):
    draw = random.Random(7)
    emoji = draw.sample(EMOJI, len(EMOJI))
    seen, unseen = emoji[:500], emoji[500:]
    assert all(unicodedata.category(x) in ("So", "Sk") for x in emoji)
    train = [
        amid(pair, draw.choice(seen)) if draw.random() < 0.2 else pair
        for pair in demo.demo_pairs("train", "en")
    ]
    # Each emoji is there some 8 times, less than once in 100,000 characters.
    val = demo.demo_pairs("val", "en")
    for split, pairs in ("train", train), ("val", val):
        for language, texts in zip(
            "en de".split(), zip(*pairs, strict=True), strict=True
        ):
            lines = "".join(f"{text}\n" for text in texts)
            (tmp_path / f"{split}.{language}").write_text(lines, "utf-8")

    run = kt.train(
        tmp_path / "run",
        corpus=tmp_path,
        preset="demo",
        steps=1200,
        batch_tokens=1_024,
    )

    marks = [draw.choice(unseen) for _ in range(97)]
    pairs = demo.demo_pairs("test", "en")[:97]
    pairs = [amid(pair, x) for pair, x in zip(pairs, marks, strict=True)]
    found = run.translator().translate([source for source, _ in pairs])
    assert sum(x in text for x, text in zip(marks, found, strict=True)) > 78
    right = [target for _, target in pairs]
    assert sum(map(str.__eq__, found, right)) > 68
