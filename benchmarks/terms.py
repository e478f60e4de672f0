"""Counts how often a run does what marked terms want.

    PYTHONPATH=. python benchmarks/terms.py runs/en-de-terms ../shared/multi30k

It asks for another translation of a word, one that the training text has for
it, in 300 sentences of `val`, and puts an address, a placeholder or code in the
place of a word of four letters or more in 300. A third number is the time that
marking takes of translating plain text.
"""

import collections
import itertools
import re
import time

import numpy as np
from measuring import parser_of

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


def word_pairs(pairs: list[tuple[str, str]], *languages: str) -> dict:
    """List what each word of the source becomes in a text, likeliest first."""
    ids: dict = collections.defaultdict(itertools.count().__next__)
    sides = []
    for side, language in enumerate(languages):
        rows = [
            # The last is taken for the end of a sentence.
            [*(ids[side, x] for x in words(pair[side], language)), 0]
            for pair in pairs
        ]
        lengths = np.array([*map(len, rows)])
        flat = np.array([*itertools.chain(*rows)])
        sides.append(Side(flat, lengths))
    names = [*ids]
    keys, values = lexicon.associations(TokenisedCorpus(*sides), len(names))
    found = collections.defaultdict(list)
    for at in np.argsort(-values, kind="stable")[: np.sum(values > 0.02)]:
        source, target = divmod(int(keys[at]), len(names))
        found[names[source][1]].append(names[target][1])
    return found


def words(text: str, language: str) -> list[str]:
    """Return the words of a text, without the marks around them."""
    found = (text[slice(*place)] for place in words_of(text, language))
    return [word for x in found if (word := x.strip(".,!?;:\"'()。、「」"))]


def ask_for_others(pairs, becomes, language, random):
    """Ask for another word in each sentence that has one; yield both."""
    for source, target in pairs:
        choices = [
            (word, other)
            for word in words(source, language)
            if len(word) > 2 and any(x in target for x in becomes[word])
            for other in becomes[word][:4]
            if other.lower() not in target.lower() and len(other) > 2
        ]
        if choices:
            word, other = choices[random.integers(len(choices))]
            yield Terms({word: other}, language).mark(source), other


def put_in(pairs, language, random):
    """Put what shall stay in the place of a word; yield both."""
    for (source, _), string in zip(pairs, itertools.cycle(KEPT)):
        places = words_of(source, language)[:-1]
        places = [x for x in places if x[1] - x[0] > LETTERS] or places[:1]
        start, end = places[random.integers(len(places))]
        yield f"{source[:start]}{string}{source[end:]}", string


def count(translator, texts, what, most) -> None:
    """Print how many translations have a string, `most` times at most."""
    texts = [*itertools.islice(texts, SENTENCES)]
    done = translator.translate([text for text, _ in texts])
    right = 0
    for (text, string), translation in zip(texts, done, strict=True):
        if 1 <= translation.count(string) <= most:
            right += 1
        else:
            print(f"  {text} -> {translation}")
    print(f"{what}: {right} of {len(texts)}")


def main() -> None:
    """Print the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("run")
    parser.add_argument("corpus")
    args = parser.parse_args()
    translator = kt.Run(args.run).translator()
    source_lang, target_lang = translator.source_lang, translator.target_lang
    corpus = kt.open_corpus(args.corpus, source_lang, target_lang)
    train, val = (list(corpus.pairs(split)) for split in ("train", "val"))
    becomes = word_pairs(train, source_lang, target_lang)
    random = np.random.default_rng(1)
    asked = [*ask_for_others(val, becomes, source_lang, random)]
    count(translator, asked, "another word", 99)
    unmarked = ((re.sub("<term>|<as>.*</term>", "", x), y) for x, y in asked)
    count(translator, unmarked, "the same, not asked for", 99)
    count(translator, put_in(val, source_lang, random), "kept once", 1)
    texts = [source for source, _ in val]
    began = time.perf_counter()
    translator.translate(texts)
    whole, began = time.perf_counter() - began, time.perf_counter()
    [*map(Terms({}, source_lang).mark, texts)]
    share = (time.perf_counter() - began) / whole
    print(f"marking plain text: {100 * share:.2f} % of translating it")


if __name__ == "__main__":
    main()
