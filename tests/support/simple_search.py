"""Searches by definition, with lists: slow, and nothing shared with ours.

And the tables of probabilities that they and ours search.
"""

import numpy as np
import tensorflow as tf

PAD, UNK, BOS, EOS = 0, 1, 2, 3


def log_softmax(logits):
    logits = logits.astype("float64")
    with np.errstate(divide="ignore"):
        return logits - np.log(np.sum(np.exp(logits)))


def normalised(log_prob, length, alpha):
    return log_prob / ((5 + length) / 6) ** alpha


def repeats(ids, n):
    """Tell whether the last n tokens stand elsewhere in `ids` too."""
    rows = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return n > 0 and len(rows) > 0 and rows[-1] in rows[:-1]


def followers(
    log_probs,
    prefix,
    min_length=0,
    banned_ids=(),
    no_repeat_ngram=0,
    forced=(),
    keeps=lambda ids: True,
):
    """The tokens that may follow `prefix`, with their log-probabilities."""
    length = len(prefix) + 1
    if length <= len(forced):
        return [(forced[length - 1], log_probs[forced[length - 1]])]
    return [
        (token, more)
        for token, more in enumerate(log_probs)
        if token not in (PAD, BOS, *banned_ids)
        and more > -np.inf
        and not (token == EOS and length < min_length)
        and not repeats((*prefix, token), no_repeat_ngram)
        and keeps((*prefix, token))
    ]


def every_hypothesis(model, sentence, limit, alpha, **rules):
    """All hypotheses with their scores, best first."""
    found, prefixes = [], [((), 0.0)]
    for length in range(1, limit + 1):
        longer = []
        for prefix, log_prob in prefixes:
            log_probs = model.log_probs(sentence, prefix)
            for token, more in followers(log_probs, prefix, **rules):
                item = (*prefix, token), log_prob + more
                if token == EOS or length == limit:
                    score = normalised(item[1], length, alpha)
                    found.append((item[0], score))
                else:
                    longer.append(item)
        prefixes = longer
    return sorted(found, key=lambda item: -item[1])


def plain_beam_search(
    model,
    sentence,
    limit,
    beam_size,
    alpha,
    n_best=1,
    max_finished=np.inf,
    **rules,
):
    """The search again, with lists and without a bound on what may win."""
    live, finished, num_finished = [((), 0.0)], [], 0
    for length in range(1, limit + 1):
        if num_finished >= max_finished:
            break
        candidates = []
        for prefix, log_prob in live:
            log_probs = model.log_probs(sentence, prefix)
            for token, more in followers(log_probs, prefix, **rules):
                candidates.append(((*prefix, token), log_prob + more))
        candidates.sort(key=lambda item: -item[1])
        live = []
        for rank, (ids, log_prob) in enumerate(candidates[: 2 * beam_size]):
            if ids[-1] == EOS or length == limit:
                finished.append((ids, normalised(log_prob, length, alpha)))
                num_finished += rank < beam_size
            elif len(live) < beam_size:
                live.append((ids, log_prob))
    return sorted(finished, key=lambda item: -item[1])[:n_best]


def greedy_search(model, sentence, limit, alpha, min_length=0):
    """The likeliest token after the likeliest token, and its score."""
    ids, total = (), 0.0
    while len(ids) < limit and EOS not in ids:
        allowed = followers(model.log_probs(sentence, ids), ids, min_length)
        token, log_prob = max(allowed, key=lambda item: item[1])
        ids, total = (*ids, token), total + log_prob
    return ids, normalised(total, len(ids), alpha)


def as_hypotheses(result, sentence):
    """A sentence's hypotheses as `plain_beam_search` returns them."""
    ids, scores, lengths = (np.asarray(part) for part in result)
    return [
        (tuple(row[:length].tolist()), score)
        for row, score, length in zip(
            ids[sentence], scores[sentence], lengths[sentence], strict=True
        )
        if score > -np.inf
    ]


def assert_same(found, expected, tolerance=1e-5):
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    np.testing.assert_allclose(
        [score for _, score in found],
        [score for _, score in expected],
        rtol=tolerance,
        atol=tolerance,
    )


class MarkovModel:
    """The next token depends only on the latest one and on the position.

    The table is `(B, T, V, V)`; positions from T on share the last entry.
    """

    def __init__(self, table):
        self.table = np.asarray(table, "float32")
        self.batch, self.positions = self.table.shape[:2]

    def state(self, beams):
        return ()

    def step(self, ids, position, state):
        table = self.table[:, min(int(position), self.positions - 1)]
        return tf.gather(table, ids, batch_dims=1), state

    def log_probs(self, sentence, prefix):
        position = min(len(prefix), self.positions - 1)
        latest = prefix[-1] if prefix else BOS
        return log_softmax(self.table[sentence, position, latest])


def random_markov(seed, batch, vocab, positions=31):
    # A table for every position: with one for all, the same pairs of tokens in
    # another order would tie.
    draw = np.random.default_rng(seed)
    return MarkovModel(draw.normal(0, 2, (batch, positions, vocab, vocab)))


def with_unequal_ends(model):
    """Make ends likely in some sentences and rare in others."""
    model.table[..., EOS] += np.linspace(-2, 4, model.batch)[:, None, None]
    return model
