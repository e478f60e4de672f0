"""Counts how often a run does what marked terms want.

    python benchmarks/terms.py runs/en-de-terms ../shared/multi30k

It asks for another translation of a word, one that the training text has for
it, in 300 sentences of `val`, and puts an address, a placeholder or code in the
place of a word of four letters or more in 300. A third number is the time that
marking takes of translating plain text.
"""

import argparse
import collections
import itertools
import re
import time

import numpy as np

import keras_transformer as kt
from keras_transformer.data.languages import words_of
from keras_transformer.data.records import Side, TokenisedCorpus
from keras_transformer.translation import lexicon
from keras_transformer.translation.terms import Terms

SENTENCES = 300
LETTERS = 3  # A word that something takes the place of has more.
# Not made by what makes those of a training.
KEPT = re.split(
    r"\s{2,}",
    """https://en.wikipedia.org/wiki/Attention  https://example.org/a/b?id=42&x=y
    http://www.zoo-berlin.de/tickets.html  www.nature.com  https://youtu.be/dQw4
    https://github.com/user/repo/issues/1574  https://shop.test/cart#top
    anna.schmidt@example.com  info@museum.org  support+de@mail.example.net
    {name}  {user_name}  {0}  {count}  {{ title }}  {{price}}  ${HOME}  $USER
    %s  %d  %1$s  %(count)d  %.2f  {firstName}  {item.id}  ${order.number}
    <x id="1"/>  <br/>  <ph name="USER"/>  `pip install keras`  `main.py`
    `x = 1`  `np.zeros(3)`  `--steps`  `git push`  `README.md`""",
)


def words(text: str, language: str) -> list[str]:
    """Return the words of a text, without the marks around them."""
    found = (text[slice(*place)] for place in words_of(text, language))
    return [word for x in found if (word := x.strip(".,!?;:\"'()。、「」"))]


def word_pairs(
    pairs: list[tuple[str, str]], languages: tuple[str, str]
) -> dict[str, list[str]]:
    """List what each word of the source becomes in a text, likeliest first."""
    ids: dict[str, int] = collections.defaultdict(itertools.count().__next__)
    sides = []
    for number, language in enumerate(languages):
        rows = [
            # The last is taken for the end of a sentence.
            [*(ids[f"{number}{x}"] for x in words(pair[number], language)), 0]
            for pair in pairs
        ]
        lengths = np.array([*map(len, rows)])
        flat = np.array([*itertools.chain(*rows)])
        sides.append(Side(flat, lengths, np.cumsum(lengths) - lengths))
    names = [*ids]
    size = len(names)
    keys, values = lexicon.associations(TokenisedCorpus(*sides), size)
    found: dict[str, list[str]] = collections.defaultdict(list)
    for key, value in sorted(
        zip(keys, values, strict=True), key=lambda x: -x[1]
    ):
        if value > 0.02:
            source, target = divmod(int(key), size)
            found[names[source][1:]].append(names[target][1:])
    return found


def ask_for_others(translator, train, val, random) -> None:
    """Count how often a word of the glossary comes out."""
    languages = translator.source_lang, translator.target_lang
    becomes = word_pairs(train, languages)
    asked = []
    for source, target in val:
        choices = [
            (word, other)
            for word in words(source, languages[0])
            if len(word) > 2 and any(x in target for x in becomes[word])
            for other in becomes[word][:4]
            if other.lower() not in target.lower() and len(other) > 2
        ]
        if choices:
            asked.append((source, choices[random.integers(len(choices))]))
    asked = asked[:SENTENCES]
    marked = [
        Terms({word: other}, languages[0]).mark(source)
        for source, (word, other) in asked
    ]
    plain = translator.translate([source for source, _ in asked])
    done = translator.translate(marked)
    right = unasked = 0
    for (source, (word, other)), with_it, without in zip(
        asked, done, plain, strict=True
    ):
        right += other in with_it
        unasked += other in without
        if other not in with_it:
            print(f"  {word} = {other}: {source} -> {with_it}")
    total = len(asked)
    print(f"asked for another word: {right} of {total}, unasked {unasked}")


def keep(translator, val, random) -> None:
    """Count how often what shall stay comes out once, as it was."""
    texts, strings = [], itertools.cycle(KEPT)
    for source, _ in val[:SENTENCES]:
        places = words_of(source, translator.source_lang)[:-1]
        places = [x for x in places if x[1] - x[0] > LETTERS] or places[:1]
        start, end = places[random.integers(len(places))]
        string = next(strings)
        texts.append((f"{source[:start]}{string}{source[end:]}", string))
    done = translator.translate([text for text, _ in texts])
    right = 0
    for (text, string), translation in zip(texts, done, strict=True):
        is_right = translation.count(string) == 1
        right += is_right
        if not is_right:
            print(f"  {text} -> {translation}")
    print(f"kept exactly and once: {right} of {len(texts)}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("corpus")
    args = parser.parse_args()
    translator = kt.Run(args.run).translator()
    languages = translator.source_lang, translator.target_lang
    corpus = kt.open_corpus(args.corpus, *languages)
    train, val = (list(corpus.pairs(split)) for split in ("train", "val"))
    random = np.random.default_rng(1)
    ask_for_others(translator, train, val, random)
    keep(translator, val, random)
    texts = [source for source, _ in val]
    began = time.perf_counter()
    translator.translate(texts)
    whole = time.perf_counter() - began
    began = time.perf_counter()
    [*map(Terms({}, languages[0]).mark, texts)]
    share = (time.perf_counter() - began) / whole
    print(f"marking plain text: {100 * share:.2f} % of translating it")


if __name__ == "__main__":
    main()
