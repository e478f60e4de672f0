"""Explains a translation by its attention and the search that found it.

A teacher-forced pass rereads the hypotheses of the search for their attention.
The row before a token is what the search saw when it wrote that token, since no
position looks ahead; in 16 bits the two differ by their rounding.

Axes: S source length, T target length, L layers, H heads, R rows, K likeliest
next tokens, D model width.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import Search, SpecialIds
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.decoding.id_model import alone
from keras_transformer.decoding.search_history import SearchHistory
from keras_transformer.model import Transformer
from keras_transformer.translation.text_batches import as_bytes, cut, dense
from keras_transformer.translation.text_model import (
    IDS,
    PREFIX,
    TextModel,
    traced,
)
from keras_transformer.viewing.explanation import Explanation
from keras_transformer.viewing.hypotheses import Alternative, Fate, Node

# Next tokens returned for every row, K.
_LIKELIEST = 8
# Target tokens to read at a time; all their attention is in memory at once.
_READ_AT_ONCE = 1_024
Ids = tuple[int, ...]


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
        _ = self._text_model.ensemble.only  # Raises if there are several.
        self._text_model.check_attention()
        tokenizer = self._text_model.tokenizer
        ids, truncated = cut(
            tokenizer.tokenize(as_bytes("text", [text])),
            options.max_source_length,
            tokenizer.ids.blank,
        )
        inputs = [dense(ids, tokenizer.ids.pad)]
        if prefix:
            encoded = as_bytes("prefix", [prefix])
            inputs.append(
                dense(self._text_model.prefix_ids(encoded, options.max_length))
            )
        result, history = self._graph(options, len(inputs))(*inputs)
        found = _returned(result, tokenizer.ids.pad)
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
    def _rereader(self) -> "_Rereader":
        with self._text_model.weights_in_use():
            return _Rereader(
                self._text_model.ensemble.only, self._text_model.ids
            )

    def _graph(self, options: Search, inputs: int) -> Callable:
        """Trace a graph, as for a translation: the same result bit for bit."""
        if (options, inputs) not in self._graphs:

            def search(
                source: tf.Tensor, *prefix: tf.Tensor
            ) -> tuple[BeamResult, SearchHistory]:
                return self._text_model.search_ids_with_history(
                    alone(source), options, *map(alone, prefix)
                )

            specs = (IDS, PREFIX)[:inputs]
            self._graphs[options, inputs] = traced(search, *specs)
        return self._graphs[options, inputs]


def _returned(result: BeamResult, pad_id: int) -> dict[Ids, _Returned]:
    """Index the hypotheses of the one sentence by their ids, best first.

    If none was found there is an empty one, as in `translate`.
    """
    return {
        tuple(ids[ids != pad_id].tolist()): _Returned(rank, float(score))
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
            fate, returned, ends_with = Fate.PRUNED, _Returned(-1, score), ""
            if ended[t, k]:
                ends_with = (
                    "end token" if token == tokenizer.ids.eos else "limit"
                )
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
                    ends_with=ends_with,
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


class _Reread(NamedTuple):
    """The attention and the next tokens of each row."""

    encoder: np.ndarray  # float32 (L, H, S, S)
    decoder: np.ndarray  # float32 (L, H, R, T), 0 beyond the tokens written
    cross: np.ndarray  # float32 (L, H, R, S)
    next_ids: np.ndarray  # int32 (R, K), the likeliest first
    next_log_probs: np.ndarray  # float32 (R, K)


class _Rereader:
    """Rereads a source and beginnings of its translations."""

    def __init__(self, model: Transformer, ids: SpecialIds) -> None:
        self._model = model
        self._ids = ids
        self._encode = traced(model.encode_with_weights, IDS)
        width = model.model_config.d_model
        self._decode = traced(
            self._decode_all,
            IDS,
            tf.TensorSpec([1, None, width], model.compute_dtype),
            tf.TensorSpec([1, 1, 1, None], tf.bool),
        )

    def read(self, source: tf.Tensor, written: list[Ids]) -> _Reread:
        """Reread the tokens written before each of the R rows.

        Args:
            source: int32 `(1, S)`.
            written: The ids of each row, () for the start.
        """
        memory, source_mask, of_layers = self._encode(source)
        encoder = _stacked(of_layers)
        longest = 1 + max(len(ids) for ids in written)
        layers = self._model.model_config.layers_of("decoder")
        sizes = (layers, encoder.shape[2], len(written))
        likeliest = (len(written), min(_LIKELIEST, self._model.vocab_size))
        found = _Reread(
            encoder=encoder[:, 0],
            decoder=np.zeros([*sizes, longest], np.float32),
            cross=np.zeros([*sizes, source.shape[1]], np.float32),
            next_ids=np.zeros(likeliest, np.int32),
            next_log_probs=np.zeros(likeliest, np.float32),
        )
        for batch, (rows, b, t) in _passes(
            written, _READ_AT_ONCE // longest, self._ids.bos
        ):
            target_in = tf.ragged.constant(batch, tf.int32).to_tensor(
                self._ids.pad
            )
            log_probs, ids, decoder, cross = self._decode(
                target_in, memory, source_mask
            )
            found.next_log_probs[rows] = log_probs.numpy()[b, t]
            found.next_ids[rows] = ids.numpy()[b, t]
            # The axes of two lists come first: (rows, L, H, .).
            of_rows = _stacked(decoder)[:, b, :, t]
            length = target_in.shape[1]
            found.decoder[:, :, rows, :length] = of_rows.transpose(1, 2, 0, 3)
            of_rows = _stacked(cross)[:, b, :, t]
            found.cross[:, :, rows] = of_rows.transpose(1, 2, 0, 3)
        return found

    def _decode_all(
        self, target_in: tf.Tensor, memory: tf.Tensor, source_mask: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        """Find the likeliest next tokens `(B, T, K)`, and the attention."""
        batch = tf.shape(target_in)[0]
        logits, decoder, cross = self._model.decode_with_weights(
            target_in,
            tf.repeat(memory, batch, axis=0),
            tf.repeat(source_mask, batch, axis=0),
        )
        log_probs, ids = tf.math.top_k(
            tf.nn.log_softmax(logits), min(_LIKELIEST, self._model.vocab_size)
        )
        return log_probs, ids, decoder, cross


def _passes(
    read: list[Ids], at_once: int, bos_id: int
) -> Iterator[tuple[list[Ids], np.ndarray]]:
    """Choose few targets to read, with a place in them for every row.

    Yields:
        A batch of decoder inputs, and an array `(3, rows)`: the rows, and for
        each its row and position in the batch.
    """
    row_of = {ids: row for row, ids in enumerate(read)}
    # A pass over a beginning that none continued covers all that led there.
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
            [(bos_id, *ids) for ids in batch],
            np.array([(row, *at) for row, at in places.items()]).T,
        )


def _stacked(layers: list) -> np.ndarray:
    """Stack layers to `(L, B, H, T, .)`, float32."""
    return np.stack([np.asarray(tf.cast(w, tf.float32)) for w in layers])
