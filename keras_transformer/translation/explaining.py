"""Explains a translation by its attention and the search that found it.

A teacher-forced pass rereads the hypotheses of the search for their attention.
The row before a token is what the search saw when it wrote that token, since no
position looks ahead; in 16 bits the two differ by their rounding.

Axes: S source length, T target length, L layers, H heads, R rows, K likeliest
next tokens, D model width.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import Search
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.candidates import SearchHistory
from keras_transformer.decoding.id_model import as_one_sentence
from keras_transformer.model import Transformer
from keras_transformer.translation.text_batches import (
    IDS,
    as_texts,
    search_inputs,
    warn_of_cuts,
)
from keras_transformer.viewing.explanation import (
    Alternative,
    Explanation,
    Fate,
    Node,
)

# Next tokens returned for every row, K.
_LIKELIEST = 8
# Target tokens to read at a time; all their attention is in memory at once.
_READ_AT_ONCE = 1_024
Ids = tuple[int, ...]


class _Tree(NamedTuple):
    nodes: list[Node]
    leaves: dict[Ids, int]  # The last node of each hypothesis.
    read: list[Ids]  # The ids written before each row, () at the start.


def explain(
    translator: Any, text: str, search: Search, begun: list[str] | None
) -> Explanation:
    """Explain a translation, as `Translator.explain` says."""
    model = translator.id_model.model
    translator.id_model.check_attention()
    tokenizer, given = translator.tokenizer, as_texts("text", [text])
    read, truncated = search_inputs(tokenizer, search, given, begun)
    inputs = [ids.to_tensor(tokenizer.ids.pad) for ids in read.values()]
    # What a translation finds, bit for bit.
    graph = translator.graph(
        (explain, search, len(inputs)),
        lambda *ids: translator.id_model.beam_search_ids(
            search, *map(as_one_sentence, ids), with_history=True
        ),
        *[IDS] * len(inputs),
    )
    result, history = graph(*inputs)
    found = zip(result.ids[0].numpy(), result.scores[0].numpy(), strict=True)
    # By its ids. If none was found there is an empty one, as in `translate`.
    ranked = {
        tuple(ids[ids != tokenizer.ids.pad].tolist()): (rank, float(score))
        for rank, (ids, score) in enumerate(found)
        if score > -np.inf or not rank
    }
    tree = _tree(history, tokenizer, search, ranked)
    warn_of_cuts(truncated.numpy(), search.max_source_length)
    texts, count = tokenizer.detokenize(result.ids)[0].numpy(), len(ranked)
    return Explanation(
        source=text,
        source_lang=translator.source_lang,
        target_lang=translator.target_lang,
        source_pieces=tokenizer.pieces(inputs[0][0].numpy()),
        translations=[x.decode("utf-8", "replace") for x in texts[:count]],
        leaves=[tree.leaves.get(ids, -1) for ids in ranked],
        nodes=tree.nodes,
        **_reread(model, translator, inputs[0], tree.read),
        beam_size=search.beam_size,
        length_penalty=search.length_penalty,
        truncated=bool(truncated[0]),
    )


def _reread(
    model: Transformer, translator: Any, source: tf.Tensor, written: list[Ids]
) -> dict[str, Any]:
    """Find the attention and the alternatives of each row by rereading."""
    tokenizer = translator.tokenizer
    with translator.id_model.weights_in_use():
        look = functools.partial(_look, model)
        graph = translator.graph(_look, look, IDS, IDS)
    length, longest = source.shape[1], 1 + max(map(len, written))
    layers = model.model_config.layers_of("decoder")
    sizes = (layers, model.model_config.num_heads, len(written))
    decoder = np.zeros([*sizes, longest], np.float32)
    cross = np.zeros([*sizes, length], np.float32)
    alternatives: list[Any] = [()] * len(written)
    for batch, (rows, b, t) in _passes(
        written, _READ_AT_ONCE // longest, tokenizer.ids.bos
    ):
        targets = tf.ragged.constant(batch, tf.int32)
        target_in = targets.to_tensor(tokenizer.ids.pad)
        (log_probs, ids), *attention = graph(source, target_in)
        for row, best, numbers in zip(
            rows, ids.numpy()[b, t], log_probs.numpy()[b, t], strict=True
        ):
            pieces = tokenizer.pieces(best)
            alternatives[row] = list(map(Alternative, pieces, numbers.tolist()))
        encoder, of_self, of_cross = (each.numpy() for each in attention)
        # The axes of two lists come first: (rows, L, H, .).
        of_self, of_cross = (
            np.moveaxis(x[:, b, :, t], 0, 2) for x in (of_self, of_cross)
        )
        decoder[:, :, rows, : of_self.shape[-1]] = of_self
        cross[:, :, rows] = of_cross
    return dict(
        encoder=encoder[:, 0],
        decoder=decoder,
        cross=cross,
        alternatives=alternatives,
    )


def _look(
    model: Transformer, source: tf.Tensor, target_in: tf.Tensor
) -> tuple[Any, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Find the likeliest next tokens `(B, T, K)` after targets of one source.

    Return them after their log-probabilities, and the attention of all layers,
    float32 `(L, B, H, ., .)`.
    """
    memory, mask, encoder = model.encode(source, return_attention_scores=True)
    batch = tf.shape(target_in)[0]
    logits, decoder, cross = model.decode(
        target_in,
        tf.repeat(memory, batch, axis=0),
        tf.repeat(mask, batch, axis=0),
        return_attention_scores=True,
    )
    count = min(_LIKELIEST, model.vocab_size)
    likeliest = tf.math.top_k(tf.nn.log_softmax(logits), count)
    encoder, decoder, cross = (
        tf.cast(tf.stack(layers), tf.float32)
        for layers in (encoder, decoder, cross)
    )
    return likeliest, encoder, decoder, cross


def _tree(
    history: SearchHistory,
    tokenizer: Tokenizer,
    search: Search,
    ranked: dict[Ids, tuple[int, float]],
) -> _Tree:
    """Make a tree of the pieces that one sentence's search weighed."""
    parts = (part[0].numpy() for part in history)
    log_probs, parents, tokens, ended, survivors = parts
    steps = int(np.isfinite(log_probs).any(axis=1).sum())
    tree = _Tree([], {}, [()])
    # The node, the ids and the row of each live beam.
    live: list[tuple[int, Ids, int]] = [(-1, (), 0)] * search.beam_size
    for t in range(steps):
        normaliser = ((6 + t) / 6) ** search.length_penalty
        numbers = {}
        for k in np.flatnonzero(np.isfinite(log_probs[t])):
            parent, before, row = live[parents[t, k]]
            token = int(tokens[t, k])
            ids = (*before, token)
            rank, score = -1, float(log_probs[t, k]) / normaliser
            fate, ends_with = Fate.PRUNED, ""
            if ended[t, k]:
                is_end = token == tokenizer.ids.eos
                ends_with = "end token" if is_end else "limit"
                fate = Fate.RETURNED if ids in ranked else Fate.DISPLACED
                rank, score = ranked.get(ids, (rank, score))
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
                    score=score,
                    fate=fate,
                    ends_with=ends_with,
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


def _passes(
    read: list[Ids], at_once: int, bos_id: int
) -> Iterator[tuple[list[Ids], np.ndarray]]:
    """Choose few targets to read, with a place in them for every row."""
    unread = {ids: row for row, ids in enumerate(read)}
    # A pass over a beginning that none continued covers all that led there.
    went_on = {ids[:-1] for ids in read if ids}
    last = sorted((ids for ids in read if ids not in went_on), key=len)
    at_once = max(1, at_once)
    for first in range(0, len(last), at_once):
        batch = last[first : first + at_once]
        places = {
            ids[:t]: (b, t)
            for b, ids in enumerate(batch)
            for t in range(len(ids) + 1)
        }
        # The rows, and for each its row and its position in the batch.
        new = [(unread.pop(x), *at) for x, at in places.items() if x in unread]
        yield [(bos_id, *ids) for ids in batch], np.array(new).T
