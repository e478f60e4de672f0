"""A translation with its attention and the search that found it.

The attention is that of teacher-forced passes over what the search wrote:
row t of a hypothesis is what the search saw when it wrote token t, since no
position looks ahead.

Axes: L layers, H heads, S source pieces, T target pieces, R rows (hypotheses
that the search went on from), W beams, C candidates of a step, V vocabulary.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.search_history import SearchHistory
from keras_transformer.model import Transformer
from keras_transformer.translation.text_batches import as_bytes, cut, dense
from keras_transformer.translation.text_model import TextModel
from keras_transformer.viewing.explanation import Explanation
from keras_transformer.viewing.hypotheses import Alternative, Fate, Node

# Next pieces named for every row.
_ALTERNATIVES = 8
# Target tokens read at a time, all of whose attention exists at once.
_READ_AT_ONCE = 1_024
_IDS = tf.TensorSpec([None, None], tf.int32)

_Ids = tuple[int, ...]


class _Tree(NamedTuple):
    nodes: list[Node]
    leaves: dict[_Ids, int]  # The node with which each hypothesis ended.
    read: list[_Ids]  # What had been written at each row, () at the start.


class _Weights(NamedTuple):
    encoder: np.ndarray  # (L, H, S, S)
    decoder: np.ndarray  # (L, H, R, T)
    cross: np.ndarray  # (L, H, R, S)
    next_ids: np.ndarray  # (R, K), the likeliest first
    next_log_probs: np.ndarray  # (R, K)


class Explainer:
    """Translates a text and tells how.

    Args:
        text_model: The model with its tokenizer.
    """

    def __init__(self, text_model: TextModel) -> None:
        self._text_model = text_model
        # One for each set of options and number of inputs.
        self._graphs: dict[tuple[SearchOptions, int], Callable] = {}

    def explain(
        self, text: str, options: SearchOptions, prefix: str | None = None
    ) -> tuple[Explanation, bool]:
        """Translate a text, and tell what was weighed and looked at.

        Args:
            text: A source text.
            options: How to search, without sampling.
            prefix: How the translation begins.

        Returns:
            The explanation, and whether the text was cut.

        Raises:
            ValueError: If `text` is no `str`, or `options` say to sample.
        """
        if not isinstance(text, str):
            raise ValueError(
                "`text` must be one text; explain several one by one. "
                f"Received: text={text!r}"
            )
        if options.sampling:
            raise ValueError(
                "`sampling` has no beam to explain; leave it out. Received: "
                f"sampling={options.sampling}"
            )
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
        found = _hypotheses(result)
        tree = _tree(history, tokenizer, options, found)
        weights = _weights(self._text_model.model, inputs[0], tree.read)
        translations = tokenizer.detokenize(result.ids)[0].numpy()
        return Explanation(
            source=text,
            source_pieces=tokenizer.pieces(inputs[0][0].numpy()),
            translations=[
                translation.decode("utf-8", "replace")
                for translation in translations[: len(found)]
            ],
            leaves=[tree.leaves.get(ids, -1) for ids in found],
            nodes=tree.nodes,
            encoder=weights.encoder,
            decoder=weights.decoder,
            cross=weights.cross,
            alternatives=_alternatives(weights, tokenizer),
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
        ), bool(truncated[0])

    def _graph(self, options: SearchOptions, inputs: int) -> Callable:
        """A graph, as for every translation: the same result bit for bit."""
        if (options, inputs) not in self._graphs:

            def search(
                source: tf.Tensor, prefix: tf.Tensor | None = None
            ) -> tuple[BeamResult, SearchHistory]:
                return self._text_model.search_ids_with_history(
                    source, options, prefix
                )

            self._graphs[options, inputs] = tf.function(
                search, input_signature=[_IDS] * inputs
            )
        return self._graphs[options, inputs]


def _hypotheses(result: BeamResult) -> list[_Ids]:
    """The ids of those found for the one sentence, best first."""
    return [
        tuple(ids[ids != PAD_ID].tolist())
        for ids, score in zip(
            result.ids[0].numpy(), result.scores[0].numpy(), strict=True
        )
        if score > -np.inf
    ]


def _tree(
    history: SearchHistory,
    tokenizer: Tokenizer,
    options: SearchOptions,
    found: list[_Ids],
) -> _Tree:
    """What one sentence's search weighed, as a tree of pieces."""
    log_probs, parents, tokens, ended, survivors = (
        part[0].numpy() for part in history
    )
    steps = int(np.isfinite(log_probs).any(axis=1).sum())
    ranks = {ids: rank for rank, ids in enumerate(found)}
    tree = _Tree([], {}, [()])
    # Of each live beam its node, its ids and its row.
    live: list[tuple[int, _Ids, int]] = [(-1, (), 0)] * options.beam_size
    for t in range(steps):
        normaliser = ((6 + t) / 6) ** options.length_penalty
        numbers = {}
        for k in np.flatnonzero(np.isfinite(log_probs[t])):
            parent, before, row = live[parents[t, k]]
            token = int(tokens[t, k])
            ids = (*before, token)
            rank = ranks.get(ids, -1) if ended[t, k] else -1
            fate = Fate.PRUNED
            if ended[t, k]:
                fate = Fate.DISPLACED if rank < 0 else Fate.RETURNED
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
                    score=float(log_probs[t, k]) / normaliser,
                    fate=fate,
                    ends_with=_end(token) if ended[t, k] else "",
                    rank=rank,
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


def _alternatives(
    weights: _Weights, tokenizer: Tokenizer
) -> list[list[Alternative]]:
    """The likeliest next pieces of each row."""
    return [
        [
            Alternative(piece, float(log_prob))
            for piece, log_prob in zip(
                tokenizer.pieces(ids), log_probs, strict=True
            )
        ]
        for ids, log_probs in zip(
            weights.next_ids, weights.next_log_probs, strict=True
        )
    ]


def _end(token: int) -> str:
    return "end token" if token == EOS_ID else "limit"


def _weights(
    model: Transformer, source: tf.Tensor, read: list[_Ids]
) -> _Weights:
    """Read again what had been written before each of the R rows.

    Args:
        model: The model.
        source: int32 `(1, S)`.
        read: The ids of each row.
    """
    memory, source_mask, of_layers = model.encode_with_weights(source)
    encoder = _stacked(of_layers)
    longest = 1 + max(len(ids) for ids in read)
    sizes = (*encoder.shape[:1], encoder.shape[2], len(read))
    found = _Weights(
        encoder=encoder[:, 0],
        decoder=np.zeros([*sizes, longest], np.float32),
        cross=np.zeros([*sizes, source.shape[1]], np.float32),
        next_ids=np.zeros([len(read), _ALTERNATIVES], np.int32),
        next_log_probs=np.zeros([len(read), _ALTERNATIVES], np.float32),
    )
    for batch, (rows, b, t) in _passes(read, _READ_AT_ONCE // longest):
        target_in = tf.ragged.constant(batch, tf.int32).to_tensor(PAD_ID)
        logits, decoder, cross = model.decode_with_weights(
            target_in,
            tf.repeat(memory, len(batch), axis=0),
            tf.repeat(source_mask, len(batch), axis=0),
        )
        length = target_in.shape[1]
        # The axes of two lists come first: (rows, L, H, .).
        of_rows = _stacked(decoder)[:, b, :, t]
        found.decoder[:, :, rows, :length] = of_rows.transpose(1, 2, 0, 3)
        of_rows = _stacked(cross)[:, b, :, t]
        found.cross[:, :, rows] = of_rows.transpose(1, 2, 0, 3)
        log_probs = tf.nn.log_softmax(
            tf.gather_nd(logits, np.stack([b, t], axis=1))
        )
        found.next_log_probs[rows], found.next_ids[rows] = tf.math.top_k(
            log_probs, _ALTERNATIVES
        )
    return found


def _passes(
    read: list[_Ids], at_once: int
) -> Iterator[tuple[list[_Ids], np.ndarray]]:
    """Few targets to read, in which every row has a place.

    Yields:
        A batch of decoder inputs, and an array `(3, rows)`: rows, and where
        they are in the batch, its row and its position.
    """
    row_of = {ids: row for row, ids in enumerate(read)}
    # A pass over what nobody went on from is one over all that led there.
    went_on = {ids[:-1] for ids in read if ids}
    last = sorted((ids for ids in read if ids not in went_on), key=len)
    filled: set[int] = set()
    for first in range(0, len(last), max(1, at_once)):
        batch = last[first : first + max(1, at_once)]
        places = {
            row_of[ids[:t]]: (b, t)
            for b, ids in enumerate(batch)
            for t in range(len(ids) + 1)
        }
        places = {row: at for row, at in places.items() if row not in filled}
        filled |= places.keys()
        yield (
            [(BOS_ID, *ids) for ids in batch],
            np.array([(row, *at) for row, at in places.items()]).T,
        )


def _stacked(layers: list) -> np.ndarray:
    """`(L, B, H, T, .)`, float32."""
    return np.stack([np.asarray(tf.cast(w, tf.float32)) for w in layers])
