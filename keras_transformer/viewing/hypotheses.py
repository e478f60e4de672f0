"""The tree that a search has left, and the attention of one path through it.

Axes: L layers, H heads, S source pieces, T target pieces of a hypothesis.
"""

import enum
from typing import NamedTuple

import numpy as np


class Fate(str, enum.Enum):
    """The fate of a node.

    Attributes:
        FOLLOWED: It lived on, and the search weighed its next pieces.
        PRUNED: `beam_size` others that had not ended were better.
        RETURNED: It ended and is one of the hypotheses returned.
        DISPLACED: It ended, and better ones took its place in the result.
        GIVEN_UP: Still live when the search ended.
    """

    FOLLOWED = "followed"
    PRUNED = "pruned"
    RETURNED = "returned"
    DISPLACED = "displaced"
    GIVEN_UP = "given up"


class Node(NamedTuple):
    """One piece written by the search, and what became of it.

    Attributes:
        parent: Number of the node before it; -1 for the start, which has
            row 0.
        step: The step, counted from 0.
        piece: The piece it wrote, "▁" for a space, "</s>" for the end token.
        log_prob: Log-probability of the whole hypothesis up to here, in nats.
        score: The same, divided by the length normaliser of `step + 1` tokens.
        fate: What became of it.
        ends_with: How it ended: "end token", "limit", or "" if it did not.
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
    """A possible next piece, and the model's log-probability."""

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


def checked_number(name: str, number: int, count: int) -> int:
    """Return a number from 0 of one of `count`, perhaps given from the last."""
    if not count:
        raise ValueError(
            f"`{name}` must be left out, since there is none to choose. "
            f"Received: {number}"
        )
    if not -count <= number < count:
        raise ValueError(
            f"`{name}` must be from {-count} to {count - 1}, since there are "
            f"{count}. Received: {number}"
        )
    return number % count
