"""Explanations that no model made: random, but as a search leaves them."""

import dataclasses
import itertools

import numpy as np

from keras_transformer.viewing.explanation import (
    Alternative,
    Explanation,
    Fate,
    Node,
)

ENGLISH = (
    "▁The ▁lamp ▁cost s ▁two ▁hundred ▁and ▁twelve ▁euro s ▁and ▁seven "
    "▁cent s ▁in ▁the ▁small ▁shop ▁be side ▁the ▁old ▁station ."
).split()
GERMAN = (
    "▁Die ▁Lampe ▁kost et ▁zwei hundert zwölf ▁Euro ▁und ▁sieben ▁Cent "
    "▁im ▁klein en ▁Lad en ▁neb en ▁dem ▁alt en ▁Bahn hof ."
).split()
OTHERS = "▁Das ▁der ▁ein ▁Licht ▁kaufen , ▁mit ▁sie t ▁von st ▁auf".split()
END, BEAM_SIZE = "</s>", 4


def text_of(pieces):
    """Pieces as the text that they spell."""
    shown = [piece for piece in pieces if piece != END]
    return "".join(shown).replace("▁", " ").strip()


def make_explanation(
    *,
    layers=2,
    encoder_layers=None,
    heads=3,
    source_length=7,
    target_length=5,
    source=ENGLISH,
    target=GERMAN,
    languages=("en", "de"),
    truncated=False,
    seed=0,
):
    """A search of `target_length` steps over a few dozen pieces.

    The pieces of `target` are likely in their order, and the end token in the
    last step, so that it reads like a translation.
    """
    draw = np.random.default_rng(seed)
    cycle = itertools.cycle(source)
    source_pieces = [next(cycle) for _ in range(source_length - 1)] + [END]
    nodes, alternatives, steps = _search(draw, target, target_length)
    leaves = _ranked(nodes)
    made = Explanation(
        source=text_of(source_pieces),
        source_lang=languages[0],
        target_lang=languages[1],
        source_pieces=source_pieces,
        translations=[],
        leaves=leaves,
        nodes=nodes,
        encoder=_attention(
            *(draw, encoder_layers or layers, heads),
            *(range(source_length), source_length),
        ),
        decoder=_attention(
            draw, layers, heads, steps, target_length, causal=True
        ),
        cross=_attention(draw, layers, heads, steps, source_length),
        alternatives=alternatives,
        beam_size=BEAM_SIZE,
        length_penalty=0.6,
        truncated=truncated,
    )
    paths = [[nodes[i].piece for i in made.path(leaf)] for leaf in leaves]
    return dataclasses.replace(made, translations=[*map(text_of, paths)])


def _search(draw, target, length):
    """Nodes as a beam search finds them, and a row for each one followed."""
    vocabulary = [*dict.fromkeys([*target, *OTHERS]), END]
    nodes, alternatives, steps, live = [], [], [], [-1]
    for step in range(length):
        hoped = END if step == length - 1 else target[step % len(target)]
        candidates = []
        for parent in live:
            logits = draw.normal(0.0, 1.4, len(vocabulary))
            logits[vocabulary.index(hoped)] += 5.0
            # A few end a step before the others.
            logits[-1] += 5.0 if step == length - 2 else -2.5
            log_probs = (logits - np.log(np.sum(np.exp(logits)))).tolist()
            so_far = nodes[parent].log_prob if parent >= 0 else 0.0
            candidates += [
                (so_far + log_prob, parent, len(steps), piece)
                for piece, log_prob in zip(vocabulary, log_probs, strict=True)
            ]
            steps.append(step)
            best = np.argsort(np.negative(log_probs))[:5]
            alternatives.append(
                [Alternative(vocabulary[i], log_probs[i]) for i in best]
            )
        candidates.sort(key=lambda candidate: -candidate[0])
        live = []
        for log_prob, parent, row, piece in candidates[: 2 * BEAM_SIZE]:
            fate = Fate.PRUNED
            if piece != END and len(live) < BEAM_SIZE:
                live.append(len(nodes))
                # In the end, whoever is still followed is given up.
                fate = Fate.FOLLOWED if step < length - 1 else Fate.GIVEN_UP
            ends = "end token" if piece == END else ""
            score = log_prob / ((5 + step + 1) / 6) ** 0.6
            nodes.append(
                Node(parent, step, piece, log_prob, score, fate, ends, -1, row)
            )
    return nodes, alternatives, steps


def _ranked(nodes):
    """Give the nodes that ended their fates; return the three best."""
    ended = [i for i, node in enumerate(nodes) if node.ends_with]
    ended.sort(key=lambda i: -nodes[i].score)
    for rank, i in enumerate(ended):
        fate = Fate.RETURNED if rank < 3 else Fate.DISPLACED
        rank = rank if rank < 3 else -1
        nodes[i] = nodes[i]._replace(fate=fate, rank=rank)
    # If nothing could be written, one translation is empty.
    return ended[:3] or [-1]


def _attention(draw, layers, heads, places, width, causal=False):
    """float32 `(layers, heads, len(places), width)`, each row summing to 1."""
    scores = draw.normal(0.0, 2.0, (layers, heads, len(places), width))
    if causal:
        beyond = np.arange(width) > np.array(places)[:, None]
        scores = np.where(beyond, -np.inf, scores)
    weights = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights.astype("float32")
