"""The paper's equations in plain NumPy and float64: the oracle of the tests.

Written from the paper, not from the package. One sentence at a time, no batch
and no padding, a loop wherever the paper has an index: slow and easy to check.
Weights are nested dictionaries in the paper's names. Sections are those of
"Attention Is All You Need".
"""

import math

import numpy as np


def softmax(x):
    exponentials = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return exponentials / np.sum(exponentials, axis=-1, keepdims=True)


def attention(query, key, value, mask=None):
    """Equation 1, `(T, K)`, `(S, K)`, `(S, U)` to `(T, U)`, and the weights."""
    scores = query @ key.T / math.sqrt(query.shape[1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = softmax(scores)
    return weights @ value, weights


def multi_head_attention(x, memory, w, mask=None):
    """Section 3.2.2: a matrix W_i of its own for every head."""
    heads, weights = zip(
        *(
            attention(x @ w_q, memory @ w_k, memory @ w_v, mask)
            for w_q, w_k, w_v in zip(w["Q"], w["K"], w["V"], strict=True)
        ),
        strict=True,
    )
    return np.concatenate(heads, axis=1) @ w["O"], np.array(weights)


def feed_forward(x, w):
    """Equation 2."""
    return np.maximum(0, x @ w["W1"] + w["b1"]) @ w["W2"] + w["b2"]


def layer_norm(x, w, epsilon=1e-6):
    """Ba et al., 2016; the paper gives no epsilon, this is ours."""
    mean = x.mean(axis=1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * w["gain"] + w["bias"]


def positional_encoding(length, d_model):
    """Section 3.5."""
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            angle = pos / 10_000 ** (2 * i / d_model)
            table[pos, 2 * i] = math.sin(angle)
            table[pos, 2 * i + 1] = math.cos(angle)
    return table


def embed(ids, w, side):
    """Sections 3.4 and 3.5; learned positions where the weights have them."""
    d_model = w["embedding"].shape[1]
    if "positions" in w:
        positions = w["positions"][side][: len(ids)]
    else:
        positions = positional_encoding(len(ids), d_model)
    return w["embedding"][ids] * math.sqrt(d_model) + positions


def encoder_layer(x, w):
    """Section 3.1, and the attention weights `(H, S, S)`."""
    update, weights = multi_head_attention(x, x, w["self"])
    x = layer_norm(x + update, w["norm1"])
    return layer_norm(x + feed_forward(x, w["ffn"]), w["norm2"]), weights


def decoder_layer(x, memory, w):
    """Section 3.1, and both attention weights `(H, T, T)`, `(H, T, S)`."""
    length = len(x)
    earlier = np.array([[j <= i for j in range(length)] for i in range(length)])
    update, own = multi_head_attention(x, x, w["self"], earlier)
    x = layer_norm(x + update, w["norm1"])
    update, cross = multi_head_attention(x, memory, w["cross"])
    x = layer_norm(x + update, w["norm2"])
    return layer_norm(x + feed_forward(x, w["ffn"]), w["norm3"]), own, cross


def transformer(source, target_in, w):
    """Logits `(T, V)` and the attention weights of every layer, figure 1."""
    weights = {"encoder": [], "decoder": [], "cross": []}
    memory = embed(source, w, "source")
    for layer in w["encoder"]:
        memory, own = encoder_layer(memory, layer)
        weights["encoder"].append(own)
    x = embed(target_in, w, "target")
    for layer in w["decoder"]:
        x, own, cross = decoder_layer(x, memory, layer)
        weights["decoder"].append(own)
        weights["cross"].append(cross)
    return x @ w["embedding"].T, weights


def smoothed_distribution(target, vocab_size, smoothing):
    """Section 5.4, after Szegedy et al., 2015: `(T,)` to `(T, V)`."""
    distribution = np.full((len(target), vocab_size), smoothing / vocab_size)
    for position, token in enumerate(target):
        distribution[position, token] += 1 - smoothing
    return distribution


def cross_entropies(target, logits, smoothing=0.0):
    """Nats a token, `(T,)`, against the whole distribution."""
    q = smoothed_distribution(target, logits.shape[1], smoothing)
    return -np.sum(q * np.log(softmax(logits)), axis=1)


def learning_rate(step_num, d_model, warmup_steps):
    """Equation 3."""
    return d_model**-0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5)


def parameter_count(
    vocab_size, N, d_model, d_ff, h, d_k, d_v, learned_positions=0
):
    """Weights of the model of section 3 with one tied matrix.

    No bias in the attention's projections, biases in the feed-forward network,
    gain and bias in every norm. `learned_positions` are the rows of row E's
    tables, one for each side.
    """
    attention = d_model * h * d_k * 2 + d_model * h * d_v + h * d_v * d_model
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    norm = 2 * d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    embedding = vocab_size * d_model
    positions = 2 * learned_positions * d_model
    return embedding + positions + N * (encoder + decoder)
