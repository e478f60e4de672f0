"""A toy corpus: numbers, digit by digit, in English and German words."""

import random

ENGLISH = "zero one two three four five six seven eight nine".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun".split()


def write_digits(folder, **sizes):
    """Write `SPLIT.en` and `SPLIT.de` with so many lines for each split."""
    source = random.Random(7)
    for split, size in sizes.items():
        rows = [
            [source.randrange(10) for _ in range(source.randint(2, 7))]
            for _ in range(size)
        ]
        for language, words in (("en", ENGLISH), ("de", GERMAN)):
            lines = [" ".join(words[i] for i in row) + "\n" for row in rows]
            path = folder / f"{split}.{language}"
            path.write_text("".join(lines), encoding="utf-8")
    return folder
