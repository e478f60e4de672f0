"""Labelled brackets by the rules of EVALB (Sekine and Collins, 1997).

As with its parameters `COLLINS.prm`, which papers report:

- A constituent is its label and the words that it spans; tags do not count.
- Punctuation is left out of the sentence, by the tags of the right tree; so
  are constituents that held nothing else.
- `TOP` is not a constituent, and `PRT` counts as `ADVP`.
- The part of a label from the first "-" or "=" on does not count.
- A constituent that occurs twice, such as an NP of one NP, counts twice.

EVALB leaves out a sentence that it cannot read. Here a malformed output counts
as a tree without constituents, and the number of these is reported.
"""

import collections
import dataclasses

import trees
from nltk.tree import Tree

PUNCTUATION = {",", ":", "``", "''", "."}
_AS_GOOD_AS = {"PRT": "ADVP"}


@dataclasses.dataclass(frozen=True)
class Counts:
    """The counts of some sentences.

    Attributes:
        matched: Constituents of the output that are right.
        gold: Constituents of the right trees.
        predicted: Constituents of the output.
        sentences: Number of sentences.
        exact: Sentences whose constituents are all right, with none too many.
        malformed: Sentences whose output is not a tree over their words.
    """

    matched: int = 0
    gold: int = 0
    predicted: int = 0
    sentences: int = 0
    exact: int = 0
    malformed: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return Counts(*(a + b for a, b in zip(mine, others, strict=True)))

    @property
    def recall(self) -> float:
        """Right constituents of those that there should be, in percent."""
        return 100 * self.matched / self.gold if self.gold else 0.0

    @property
    def precision(self) -> float:
        """Right constituents of the output's, in percent."""
        return 100 * self.matched / self.predicted if self.predicted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision."""
        both = self.gold + self.predicted
        return 200 * self.matched / both if both else 0.0


def compare(gold: Tree, line: str) -> Counts:
    """Count the constituents of one sentence.

    Args:
        gold: The right tree, as from `trees.clean`.
        line: What the model wrote.
    """
    wanted = constituents(gold)
    try:
        found = constituents(trees.delinearise(line, gold.pos()))
        malformed = 0
    except (ValueError, RecursionError):  # The latter of a thousand brackets.
        found, malformed = collections.Counter(), 1
    return Counts(
        matched=(wanted & found).total(),
        gold=wanted.total(),
        predicted=found.total(),
        sentences=1,
        exact=int(wanted == found and not malformed),
        malformed=malformed,
    )


def constituents(tree: Tree) -> collections.Counter:
    """Count each (label, first word, word after the last) in a tree."""
    found: collections.Counter = collections.Counter()
    _collect(tree, 0, found)
    return found


def _collect(tree: Tree, start: int, found: collections.Counter) -> int:
    """Add the constituents of a subtree; returns where its words end."""
    if trees.is_word(tree):
        return start + (tree.label() not in PUNCTUATION)
    end = start
    for child in tree:
        end = _collect(child, end, found)
    label = trees.without_functions(tree.label())
    if end > start and label != trees.TOP and label not in PUNCTUATION:
        found[_AS_GOOD_AS.get(label, label), start, end] += 1
    return end
