"""A treebank without a licence: sentences and trees of a seeded grammar.

Every sentence has one tree, and words decide which: a man is hit *with a
hammer*, but *with a hat* he stands there; *up the hill* is a phrase, *up the
word* is not; the verb's number says whether *the dog of the boys that sleeps*
or *sleep* is the dog or the boys; *tomorrow* and *yesterday* belong to the
clause of their tense. `that`, `to`, `up` and the present tense of a verb have
two tags each. Clauses, phrases and infinitives nest.

Example:
    python examples/parsing/grammar.py runs/grammar-treebank
"""

import argparse
import logging
import pathlib
import random
import sys
from collections.abc import Iterator

import prepare
import trees
from nltk.tree import Tree

from keras_transformer.commands import command_line
from keras_transformer.config import UserError
from keras_transformer.machine import files

# A category is a label and, after ".", what the tree does not show. {n} is sg
# and pl, {m} the other. The first choice of a category never leads back to it.
RULES = """
S -> NP.{n} VP.{n} .
S -> S.cl , CC S.cl .
S -> PP.time , NP.{n} VP.{n} .
S -> SBAR.why , NP.{n} VP.{n} .
S -> NP.{n} VP.said .
S.cl -> NP.{n} VP.{n}
S.to -> VP.to
S.rel.{n} -> VP.s.{n}
S.fut -> NP.{n} VP.fut
S.tom -> NP.{n} VP.tom
SBAR.why -> IN.because S.cl
SBAR.that -> IN.that S.cl
SBAR.fut -> IN.that S.fut
SBAR.tom -> IN.that S.tom
SBAR.rel.{n} -> WHNP S.rel.{n}
WHNP -> WDT
NP.{n} -> NP.b.{n}
NP.{n} -> PRP.{n}
NP.{n} -> NP.with.{n}
NP.{n} -> NP.near.{n}
NP.{n} -> NP.of.{n}
NP.{n} -> NP.rel.{n}
NP.{n} -> NP.of.{n}.{m} SBAR.rel.{n}
NP.{n} -> NP.b.{n} PP.rel.{m}
NP.pl -> NP.b.{n} CC NP.b.{m}
NP.b.sg -> DT.sg NN
NP.b.sg -> NNP
NP.b.pl -> DT.pl NNS
NP.b.pl -> CD NNS
NP.b.sg -> DT.sg JJ NN
NP.b.pl -> DT.pl JJ , JJ NNS
NP.b.sg -> NP.pos NN
NP.b.pl -> NP.pos NNS
NP.pos -> NNP POS
NP.with.{n} -> NP.b.{n} PP.attr
NP.near.{n} -> NP.b.{n} PP.near
NP.of.{n} -> NP.b.{n} PP.of
NP.of.{n}.{m} -> NP.b.{n} PP.of.{m}
NP.rel.{n} -> NP.b.{n} SBAR.rel.{n}
NP.o -> NP.b.{n}
NP.o -> NP.with.{n}
NP.o -> NP.near.{n}
NP.o -> NP.of.{n}
NP.o -> NP.rel.{n}
NP.hit -> NP.b.{n}
NP.hit -> NP.with.{n}
NP.attr -> DT.sg NN.attr
NP.attr -> NP.attr.b PP.near
NP.attr.b -> DT.sg NN.attr
NP.tool -> DT.sg NN.tool
NP.tool -> DT.sg JJ NN.tool
NP.place -> DT.sg NN.place
NP.place -> NP.place.b PP.near
NP.place.b -> DT.sg NN.place
NP.text -> DT.sg NN.text
NP.hill -> DT.sg NN.hill
NP.month -> NNP.month
NP.past -> NN.past
NP.future -> NN.future
PP.time -> IN.in NP.month
PP.attr -> IN.with NP.attr
PP.tool -> IN.with NP.tool
PP.near -> IN.near NP.place
PP.of -> IN.of NP.b.{n}
PP.of -> IN.of NP.of.{n}
PP.of.{n} -> IN.of NP.b.{n}
PP.rel.{n} -> IN.of NP.rel.{n}
PP.to -> TO NP.b.{n}
PP.by -> IN.by NP.b.{n}
PP.up -> IN.up NP.hill
PRT -> RP
ADVP -> RB
ADJP -> JJ.is
ADJP -> RB.very JJ.is
VP.s.sg -> VBZ
VP.s.sg -> VBZ ADVP
VP.s.sg -> VBZ.t NP.b.{n}
VP.s.pl -> VBP
VP.s.pl -> VBP ADVP
VP.s.pl -> VBP.t NP.b.{n}
VP.{n} -> VP.one.{n}
VP.{n} -> VP.s.{n} CC VP.s.{n}
VP.one.sg -> VBZ
VP.one.sg -> VBZ.t NP.o
VP.one.sg -> VBZ.hit NP.hit PP.tool
VP.one.sg -> VBZ.give NP.b.{n} PP.to
VP.one.sg -> VBZ.look PRT NP.text
VP.one.sg -> VBZ.look PP.up
VP.one.sg -> VBZ.be ADJP
VP.one.sg -> VBZ.be VP.done
VP.one.sg -> VBZ.want S.to
VP.one.sg -> VBZ.say SBAR.that
VP.one.pl -> VBP
VP.one.pl -> VBP.t NP.o
VP.one.pl -> VBP.hit NP.hit PP.tool
VP.one.pl -> VBP.look PRT NP.text
VP.one.pl -> VBP.be ADJP
VP.one.pl -> VBP.be VP.done
VP.one.pl -> VBP.want S.to
VP.one.pl -> VBP.say SBAR.that
VP.one.{n} -> MD VP.inf
VP.done -> VBN
VP.done -> VBN PP.by
VP.to -> TO VP.inf
VP.inf -> VB
VP.inf -> VB.t NP.o
VP.inf -> VB.hit NP.hit PP.tool
VP.inf -> VB.look PP.up
VP.inf -> VB.want S.to
VP.fut -> MD VP.inf
VP.tom -> MD VP.inf.tom
VP.inf.tom -> VB NP.future
VP.inf.tom -> VB.t NP.b.{n} NP.future
VP.said -> VBD.say SBAR.tom
VP.said -> VBD.say SBAR.fut NP.past
"""

WORDS = """
. -> .
, -> ,
CC -> and or
DT.sg -> the this that every
DT.pl -> the these some
CD -> two three seven
NN -> dog cat boy girl farmer doctor bird horse king teacher
NNS -> dogs cats boys girls farmers doctors birds horses kings teachers
NNP -> Mary John Alice Peter
NNP.month -> May June April
POS -> 's
PRP.sg -> she he it
PRP.pl -> they we
WDT -> that which
JJ -> big small old red young
JJ.is -> happy tired hungry quiet
RB -> quietly often slowly
RB.very -> very quite
RP -> up
IN.up -> up
IN.that -> that
IN.because -> because while
IN.in -> in
IN.with -> with
IN.near -> near behind
IN.of -> of
IN.by -> by
TO -> to
MD -> will can must
NN.attr -> hat beard tail coat smile
NN.tool -> hammer stick spoon stone brush
NN.place -> house tree river door bridge
NN.text -> word name number
NN.hill -> hill street road
NN.past -> yesterday
NN.future -> tomorrow
VBZ -> sleeps eats sings runs
VBP -> sleep eat sing run
VB -> sleep eat sing run
VBZ.t -> sees likes knows
VBP.t -> see like know
VB.t -> see like know
VBN -> seen liked known
VBZ.hit -> hits touches
VBP.hit -> hit touch
VB.hit -> hit touch
VBZ.give -> gives shows
VBZ.look -> looks
VBP.look -> look
VB.look -> look
VBZ.be -> is
VBP.be -> are
VBZ.want -> wants tries
VBP.want -> want try
VB.want -> want try
VBZ.say -> says thinks
VBP.say -> say think
VBD.say -> said thought
"""

# Steps from the root after which a category takes its first choice, and how
# often it does so before.
DEPTH = 15
FIRST = 0.25

Grammar = dict[str, list[list[str]]]


def read_rules(text: str = RULES) -> Grammar:
    """Read every category's choices, with sg and pl for {n} and {m}."""
    rules: Grammar = {}
    for line in text.strip().splitlines():
        seen = set()
        for n, m in ("sg", "pl"), ("pl", "sg"):
            left, right = line.replace("{n}", n).replace("{m}", m).split(" -> ")
            if (left, right) not in seen:
                rules.setdefault(left, []).append(right.split())
            seen.add((left, right))
    return rules


def read_words(text: str = WORDS) -> dict[str, list[str]]:
    """Read the words of every tag."""
    pairs = (line.split(" -> ") for line in text.strip().splitlines())
    return {tag: words.split() for tag, words in pairs}


def draw(
    category: str,
    rules: Grammar,
    words: dict[str, list[str]],
    chance: random.Random,
    depth: int = 0,
) -> Tree:
    """Draw a tree of a category.

    A choice of one category with the same label adds no constituent.
    """
    label = category if category == "." else category.split(".")[0]
    if category in words:
        return Tree(label, [chance.choice(words[category])])
    choices = rules[category]
    is_first = depth > DEPTH or chance.random() < FIRST
    chosen = choices[0] if is_first else chance.choice(choices)
    children = [draw(c, rules, words, chance, depth + 1) for c in chosen]
    if len(children) == 1 and children[0].label() == label:
        return children[0]
    return Tree(label, children)


def sentences(seed: int) -> Iterator[Tree]:
    """Draw trees without end, no sentence twice."""
    rules, words = read_rules(), read_words()
    chance = random.Random(seed)
    seen = set()
    while True:
        tree = draw("S", rules, words, chance)
        sentence = " ".join(tree.leaves())
        if sentence not in seen:
            seen.add(sentence)
            yield tree


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", type=pathlib.Path, help="gets train.mrg, val.mrg, test.mrg")
    add("--train", type=int, default=40_000, help="default: %(default)s")
    add("--val", type=int, default=500, help="default: %(default)s")
    add("--test", type=int, default=1_000, help="default: %(default)s")
    add("--seed", type=int, default=1, help="default: %(default)s")
    args = parser.parse_args(argv)
    return command_line.run(lambda: write(args))


def write(args: argparse.Namespace) -> None:
    """Write the treebank; no sentence of it comes twice, in no split."""
    counts = {split: getattr(args, split) for split in prepare.SPLITS}
    for split, count in counts.items():
        if count < 1:
            raise UserError(f"Expected --{split} above 0, received {count}.")
    args.folder.mkdir(parents=True, exist_ok=True)
    drawn = sentences(args.seed)
    for split, count in counts.items():
        lines = [trees.on_one_line(next(drawn)) for _ in range(count)]
        files.write_text(
            args.folder / f"{split}.mrg", "".join(f"( {x})\n" for x in lines)
        )
        logging.getLogger("keras_transformer").info(
            "%s: %d trees.", split, count
        )


if __name__ == "__main__":
    sys.exit(main())
