"""Shows what a translation attended to, and what the search tried.

A hypothesis is a leaf of a tree: each node wrote one piece after its parent.
The attention behind a piece depends on the pieces before it, not on the piece
itself, so all children of a node share one row of attention, the parent's.

Axes: L layers, H heads, S source pieces, T target pieces of a hypothesis,
M nodes, R rows (nodes that were followed, the start first), K alternatives.
"""

import dataclasses
import enum
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.machine import extras, files
from keras_transformer.settings import SettingError
from keras_transformer.viewing import viewer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Fate(str, enum.Enum):
    """The fate of a node."""

    FOLLOWED = "followed"  # It lived on: the search weighed its next pieces.
    PRUNED = "pruned"  # `beam_size` others that had not ended were better.
    RETURNED = "returned"  # It ended and is one of the hypotheses returned.
    DISPLACED = "displaced"  # It ended, and better ones took its place.
    GIVEN_UP = "given up"  # Still live when the search ended.


class Node(NamedTuple):
    """One piece written by the search, and what became of it."""

    parent: int  # The node before it; -1 for the start, which has row 0.
    step: int  # From 0.
    piece: str  # With "▁" for a space; "</s>" is the end token.
    log_prob: float  # Of the whole hypothesis up to here, in nats.
    score: float  # The same, divided by the normaliser of `step + 1` tokens.
    fate: Fate
    ends_with: str  # "end token", "limit", or "" if it did not end.
    rank: int  # Place among the hypotheses returned, from 0; -1 for none.
    row: int  # That of the attention with which it was *written*, its parent's.


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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """A translation to look at; a notebook shows it.

    Attributes:
        source: The source text.
        source_lang: The code of its language.
        target_lang: The code of the language of the translations.
        source_pieces: S pieces, the end token last.
        translations: The texts of the hypotheses returned, best first.
        leaves: The last node of each of them; -1 for an empty translation.
        nodes: The M nodes that the search weighed, in the order of the steps,
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
        truncated: Whether the source was cut, and `source_pieces` with it.
    """

    source: str
    source_lang: str
    target_lang: str
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
    truncated: bool

    def __repr__(self) -> str:
        return (
            f"<Explanation of {self.source!r}: {len(self.nodes)} nodes, best "
            f"{self.translations[0]!r}>"
        )

    def path(self, node: int) -> list[int]:
        """List the nodes from the first piece to `node`."""
        steps = []
        while node >= 0:
            steps.append(node)
            node = self.nodes[node].parent
        return steps[::-1]

    def attention(self, hypothesis: int = 0) -> HypothesisAttention:
        """Return all attention of a hypothesis, by its rank from 0."""
        rank = checked_number("hypothesis", hypothesis, len(self.leaves))
        path = [self.nodes[number] for number in self.path(self.leaves[rank])]
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

    def save_html(self, path: str | os.PathLike) -> None:
        """Write or replace a page that needs no other file and no network."""
        files.write_text(path, viewer.document(self.source, self.to_html()))

    def plot(
        self,
        kind: str = "cross",
        layer: int | None = None,
        head: int | None = None,
        hypothesis: int = 0,
    ) -> "Figure":
        """Draw attention as a heat map, for where no script runs.

        Args:
            kind: "encoder", "decoder" or "cross".
            layer: From 0, or from the last, -1; by default the mean of all.
            head: Likewise.
            hypothesis: Its rank, from 0.

        Returns:
            A figure: a row for each piece that attends, a column for each that
            it attends to.
        """
        found = self.attention(hypothesis)
        source, target = found.source_pieces, found.target_pieces
        sides = {
            "encoder": (source, source),
            "decoder": (target, found.target_in),
            "cross": (target, source),
        }
        if kind not in sides:
            raise SettingError("kind", f"one of {', '.join(sides)}", kind)
        (queries, keys), weights = sides[kind], getattr(found, kind)
        chosen = {"layer": layer, "head": head}
        for axis, (name, number) in enumerate(chosen.items()):
            if number is None:
                weights = weights.mean(axis=axis, keepdims=True)
            else:
                place = checked_number(name, number, weights.shape[axis])
                weights = weights.take([place], axis=axis)
        figure = extras.figure(2 + len(keys) / 4, 1 + len(queries) / 4)
        axes = figure.subplots()
        cells = axes.imshow(weights[0, 0], cmap="Blues", vmin=0, aspect="auto")
        axes.set_xticks(range(len(keys)), keys, rotation=90)
        axes.set_yticks(range(len(queries)), queries)
        figure.colorbar(cells, label="weight")
        return figure

    def to_html(self) -> str:
        """Write the viewer as HTML for any place in a page."""
        weights = viewer.pack(self.encoder, self.cross, self.decoder)
        return viewer.fragment(self._facts(), weights)

    _repr_html_ = to_html  # What a notebook asks for.

    def _facts(self) -> dict[str, Any]:
        """Collect the data that `data.js` reads, besides the weights."""
        layers, heads, rows, longest = self.decoder.shape
        return {
            "source": self.source,
            "sourceSide": viewer.side(self.source_lang),
            "targetSide": viewer.side(self.target_lang),
            "sourcePieces": self.source_pieces,
            "translations": self.translations,
            "leaves": self.leaves,
            "nodes": self.nodes,
            "alternatives": self.alternatives,
            "layers": {
                "encoder": len(self.encoder),
                "decoder": layers,
                "cross": layers,
            },
            "heads": heads,
            "rows": rows,
            "longest": longest,
            "beamSize": self.beam_size,
            "lengthPenalty": self.length_penalty,
            "truncated": self.truncated,
            # Why a search wrote nothing, or why none of it is left.
            "emptyEnd": "no hypothesis left" if self.nodes else "limit",
        }


def checked_number(name: str, number: int, count: int) -> int:
    """Return a number from 0 of one of `count`, perhaps given from the last."""
    if not -count <= number < count:
        raise SettingError(name, f"from {-count} to {count - 1}", number)
    return number % count
