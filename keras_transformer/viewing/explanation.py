"""What a translation looked at, and what the search tried on its way.

A hypothesis is a leaf of a tree: each node wrote one piece after its parent.
The attention with which a piece was written depends on what came before it and
not on the piece itself, so all children of a node share one row of attention,
the parent's.

Axes: L layers, H heads, S source pieces, T target pieces of a hypothesis,
M nodes, R rows (nodes that were followed, the start first), K alternatives.
"""

import dataclasses
import enum
from typing import NamedTuple

import numpy as np


class Fate(str, enum.Enum):
    """What became of a node.

    Attributes:
        FOLLOWED: It lived on, and the search weighed what may come next.
        PRUNED: Of those that did not end, `beam_size` were better.
        RETURNED: It ended and is one of the hypotheses returned.
        DISPLACED: It ended, and better ones took its place in the result.
        GIVEN_UP: Still live when no descendant could change the result.
    """

    FOLLOWED = "followed"
    PRUNED = "pruned"
    RETURNED = "returned"
    DISPLACED = "displaced"
    GIVEN_UP = "given up"


class Node(NamedTuple):
    """One piece written by the search, and what became of it.

    Attributes:
        parent: Number of the node before it; -1 for the start, of which row 0
            is the row.
        step: Counted from 0.
        piece: What it wrote, "▁" for a space, "</s>" for the end token.
        log_prob: Of the whole hypothesis up to here, in nats.
        score: The same, divided by the length normaliser of `step + 1` tokens.
        fate: What became of it.
        ends_with: How it ended: "end token", "limit", or "" where it did not.
        rank: Place among the hypotheses returned, from 0; -1 for none.
        row: The row of attention with which it was *written*, its parent's.
    """

    parent: int
    step: int
    piece: str
    log_prob: float
    score: float
    fate: Fate
    ends_with: str
    rank: int
    row: int


class Alternative(NamedTuple):
    """A piece that might have come next, and the model's log-probability."""

    piece: str
    log_prob: float


class HypothesisAttention(NamedTuple):
    """All attention of one hypothesis; every row sums to 1.

    Attributes:
        source_pieces: S pieces, the end token last.
        target_pieces: T pieces. Row t is the step that wrote piece t.
        target_in: The T pieces that the decoder read: the start token, then
            all target pieces but the last: the columns of `decoder`.
        encoder: float32 `(L, H, S, S)`.
        decoder: float32 `(L, H, T, T)`, 0 above the diagonal.
        cross: float32 `(L, H, T, S)`.
    """

    source_pieces: list[str]
    target_pieces: list[str]
    target_in: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """A translation to look at; in a notebook it shows itself.

    Attributes:
        source: The source text.
        source_pieces: S pieces, the end token last.
        translations: The texts of the hypotheses returned, best first.
        leaves: The last node of each of them; -1 for an empty translation.
        nodes: All that the search weighed, M nodes in the order of the steps,
            the best of a step first.
        encoder: float32 `(L, H, S, S)`.
        decoder: float32 `(L, H, R, T)`, T of the longest hypothesis. Row r of
            a node of step t has t + 1 columns: the start token, then the
            pieces up to its parent; 0 beyond.
        cross: float32 `(L, H, R, S)`.
        alternatives: For each of the R rows the K likeliest next pieces, best
            first.
        beam_size: W of the search.
        length_penalty: alpha of the search.
    """

    source: str
    source_pieces: list[str]
    translations: list[str]
    leaves: list[int]
    nodes: list[Node]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray
    alternatives: list[list[Alternative]]
    beam_size: int
    length_penalty: float

    def path(self, node: int) -> list[int]:
        """The nodes from the first piece to `node`."""
        found = []
        while node >= 0:
            found.append(node)
            node = self.nodes[node].parent
        return found[::-1]

    def attention(self, hypothesis: int = 0) -> HypothesisAttention:
        """All attention of a hypothesis that was returned.

        Args:
            hypothesis: Its rank, from 0.
        """
        return self.attention_of(self.leaves[hypothesis])

    def attention_of(self, node: int) -> HypothesisAttention:
        """All attention of what was written up to `node`, also a pruned one."""
        path = [self.nodes[number] for number in self.path(node)]
        rows = [step.row for step in path]
        pieces = [step.piece for step in path]
        return HypothesisAttention(
            source_pieces=self.source_pieces,
            target_pieces=pieces,
            target_in=["<s>", *pieces][: len(pieces)],
            encoder=self.encoder,
            decoder=self.decoder[:, :, rows, : len(rows)],
            cross=self.cross[:, :, rows],
        )
