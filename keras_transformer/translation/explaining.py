"""Explains a translation by its attention and the search that found it."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import EOS_ID, PAD_ID, Search
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.id_model import alone
from keras_transformer.decoding.search_history import SearchHistory
from keras_transformer.translation.scoring import Ids, Rereader
from keras_transformer.translation.text_batches import as_bytes, cut, dense
from keras_transformer.translation.text_model import TextModel, traced
from keras_transformer.viewing.explanation import Explanation
from keras_transformer.viewing.hypotheses import Alternative, Fate, Node

_IDS = tf.TensorSpec([None, None], tf.int32)


class _Returned(NamedTuple):
    rank: int
    score: float


class _Tree(NamedTuple):
    nodes: list[Node]
    leaves: dict[Ids, int]  # The last node of each hypothesis.
    read: list[Ids]  # The ids written before each row, () at the start.


class Explainer:
    """Translates a text, and explains the translation.

    Args:
        text_model: The model with its tokenizer.
    """

    def __init__(self, text_model: TextModel) -> None:
        self._text_model = text_model
        # A graph for each set of options and number of inputs.
        self._graphs: dict[tuple[Search, int], Callable] = {}

    def explain(
        self, text: str, options: Search, prefix: str | None = None
    ) -> Explanation:
        """Translate a text, and return the search and the attention behind it.

        Args:
            text: A source text.
            options: The search, without sampling.
            prefix: The beginning of the translation.

        Raises:
            ValueError: If `text` or `prefix` is not a `str`, or `options` say
                to sample.
            UserError: If several models search together.
        """
        for name, given in (("text", text), ("prefix", prefix or "")):
            if not isinstance(given, str):
                raise ValueError(
                    f"`{name}` must be one text; explain several one by one. "
                    f"Received: {name}={given!r}"
                )
        if options.sampling:
            raise ValueError(
                "`sampling` has no beam to explain; leave it out. Received: "
                f"sampling={options.sampling}"
            )
        _ = self._text_model.model  # Raises if there are several.
        tokenizer = self._text_model.tokenizer
        ids, truncated = cut(
            tokenizer.tokenize(as_bytes("text", [text])),
            options.max_source_length,
        )
        inputs = [dense(ids)]
        if prefix:
            longest = options.max_length
            inputs.append(
                dense(
                    self._text_model.prefix_ids(
                        as_bytes("prefix", [prefix]), longest
                    )
                )
            )
        result, history = self._graph(options, len(inputs))(*inputs)
        found = _returned(result)
        tree = _tree(history, tokenizer, options, found)
        again = self._rereader.read(inputs[0], tree.read)
        texts = tokenizer.detokenize(result.ids)[0].numpy()
        return Explanation(
            source=text,
            source_pieces=tokenizer.pieces(inputs[0][0].numpy()),
            translations=[
                translation.decode("utf-8", "replace")
                for translation in texts[: len(found)]
            ],
            leaves=[tree.leaves.get(ids, -1) for ids in found],
            nodes=tree.nodes,
            encoder=again.encoder,
            decoder=again.decoder,
            cross=again.cross,
            alternatives=[
                [
                    Alternative(piece, float(log_prob))
                    for piece, log_prob in zip(
                        tokenizer.pieces(ids), log_probs, strict=True
                    )
                ]
                for ids, log_probs in zip(
                    again.next_ids, again.next_log_probs, strict=True
                )
            ],
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            truncated=bool(truncated[0]),
        )

    @functools.cached_property
    def _rereader(self) -> Rereader:
        with self._text_model.weights_in_use():
            return Rereader(self._text_model.model)

    def _graph(self, options: Search, inputs: int) -> Callable:
        """Trace a graph, as for a translation: the same result bit for bit."""
        if (options, inputs) not in self._graphs:

            def search(
                source: tf.Tensor, prefix: tf.Tensor | None = None
            ) -> tuple[BeamResult, SearchHistory]:
                return self._text_model.search_ids_with_history(
                    alone(source),
                    options,
                    None if prefix is None else alone(prefix),
                )

            self._graphs[options, inputs] = traced(search, *[_IDS] * inputs)
        return self._graphs[options, inputs]


def _returned(result: BeamResult) -> dict[Ids, _Returned]:
    """Index the hypotheses of the one sentence by their ids, best first.

    If none was found there is an empty one, as in `translate`.
    """
    return {
        tuple(ids[ids != PAD_ID].tolist()): _Returned(rank, float(score))
        for rank, (ids, score) in enumerate(
            zip(result.ids[0].numpy(), result.scores[0].numpy(), strict=True)
        )
        if score > -np.inf or not rank
    }


def _tree(
    history: SearchHistory,
    tokenizer: Tokenizer,
    options: Search,
    found: dict[Ids, _Returned],
) -> _Tree:
    """Make a tree of the pieces that one sentence's search weighed."""
    log_probs, parents, tokens, ended, survivors = (
        part[0].numpy() for part in history
    )
    steps = int(np.isfinite(log_probs).any(axis=1).sum())
    tree = _Tree([], {}, [()])
    # The node, the ids and the row of each live beam.
    live: list[tuple[int, Ids, int]] = [(-1, (), 0)] * options.beam_size
    for t in range(steps):
        normaliser = ((6 + t) / 6) ** options.length_penalty
        numbers = {}
        for k in np.flatnonzero(np.isfinite(log_probs[t])):
            parent, before, row = live[parents[t, k]]
            token = int(tokens[t, k])
            ids = (*before, token)
            score = float(log_probs[t, k]) / normaliser
            fate, returned = Fate.PRUNED, _Returned(-1, score)
            if ended[t, k]:
                fate = Fate.RETURNED if ids in found else Fate.DISPLACED
                returned = found.get(ids, returned)
                tree.leaves[ids] = len(tree.nodes)
            elif k in survivors[t]:
                fate = Fate.FOLLOWED if t + 1 < steps else Fate.GIVEN_UP
            numbers[k] = len(tree.nodes), ids
            tree.nodes.append(
                Node(
                    parent=parent,
                    step=t,
                    piece=tokenizer.pieces([token])[0],
                    log_prob=float(log_probs[t, k]),
                    score=returned.score,
                    fate=fate,
                    ends_with=_end(token) if ended[t, k] else "",
                    rank=returned.rank,
                    row=row,
                )
            )
        live = []
        for k in survivors[t]:
            number, ids = numbers.get(k, (-1, ()))
            live.append((number, ids, len(tree.read)))
            if number >= 0 and t + 1 < steps:
                tree.read.append(ids)
    return tree


def _end(token: int) -> str:
    return "end token" if token == EOS_ID else "limit"
