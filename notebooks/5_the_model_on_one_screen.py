# %% [markdown]
# # The whole model on one screen
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/keras-transformer/keras-transformer/blob/v0.1.0/notebooks/5_the_model_on_one_screen.ipynb)
#
# Not run in Colab itself yet.
#
# The model of [the paper](https://arxiv.org/abs/1706.03762) is small enough to
# read in one go. Here it is written once more, in some 80 lines of `keras.ops`
# with no layer and no class. It takes the weights of a model of this package
# and gives the same logits. Every function names its section.
#
# 1. Weights to work with
# 2. The model
# 3. The same logits
# 4. Three lines that people get wrong
# 5. A translation, the slow way
# 6. Keys and values, kept between steps
# 7. What that saves, counted and measured
# 8. Exercises
#
# Every claim is an `assert`: if the notebook runs to its end, all of them hold.
# All of it takes about a minute on two CPU cores.

# %% [markdown]
# The first cell installs the package in Colab. Elsewhere it only looks for it.

# %%
import importlib
import os
import subprocess
import sys
from importlib.metadata import version

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow, be quiet.
RELEASE = "0.1.0"
REPOSITORY = "https://github.com/keras-transformer/keras-transformer"
PACKAGE = (
    f"keras-transformer-mt[plot,serving,tfds] @ git+{REPOSITORY}@v{RELEASE}"
)

try:
    found = importlib.import_module("keras_transformer").__version__
except ImportError:
    found = None
if found != RELEASE and "google.colab" not in sys.modules:
    raise RuntimeError(
        f"Expected keras_transformer {RELEASE}, found {found}; install it "
        f"with: pip install '{PACKAGE}'"
    )
if found != RELEASE:
    # The TensorFlow that is there stays, and with it what stands on it.
    keep = f"tensorflow=={version('tensorflow')}"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", PACKAGE, keep],
        check=True,
    )
    importlib.invalidate_caches()

installed = {name: version(name) for name in ("numpy", "keras", "tensorflow")}
installed["keras_transformer"] = RELEASE
for name, wanted in installed.items():
    loaded = getattr(sys.modules.get(name), "__version__", wanted)
    if loaded != wanted:
        raise RuntimeError(
            f"{name} {wanted} is installed, but {loaded} is loaded; restart "
            "the session (menu Runtime), then run all cells from the first."
        )

import keras
import tensorflow as tf

gpus = [
    tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
    for gpu in tf.config.list_physical_devices("GPU")
]
print(f"keras_transformer {RELEASE}")
print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}")
print("GPU:", ", ".join(gpus) or "none; the CPU will do")

# %%
import logging
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import keras_transformer as kt

# In section 6 the first position has only itself to look at.
warnings.filterwarnings("ignore", message="You are using a softmax")
plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})

# %% [markdown]
# ## 1. Weights to work with
#
# Half a minute of training is enough for a model that has learnt something. Its
# weights become a dictionary from names to arrays.

# %%
logging.getLogger("keras_transformer").setLevel(logging.ERROR)
run = kt.train(
    "runs/screen", corpus="demo", steps=300, batch_tokens=1_024, seed=1
)
translator = run.translator()
model, tokenizer = translator.model, translator.tokenizer
w = {v.path.partition("/")[2]: v.numpy() for v in model.weights}
for name in list(w)[:5]:
    print(f"{name:40} {w[name].shape}")
print(f"… {len(w)} arrays, {sum(x.size for x in w.values()):,} numbers")

# %% [markdown]
# ## 2. The model
#
# B is the number of sentences, S and T are the lengths of source and target, h
# is the number of heads. An id of 0 is padding. `allowed` is `True` where a
# position may look.

# %%
N, h = model.model_config.num_layers, model.model_config.num_heads


def embed(w, ids, start=0):  # 3.4, 3.5
    """Rows of the table × √d_model, plus sinusoids: (B, T) to (B, T, d)."""
    d = w["embedding/table"].shape[1]
    angles = np.arange(start, start + ids.shape[1])[:, None] / (
        10_000 ** (np.arange(0, d, 2) / d)
    )
    waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, d)
    rows = ops.take(w["embedding/table"], ids, axis=0)
    return rows * d**0.5 + waves.astype("float32")


def attention(query, key, value, allowed):  # 3.2.1, equation 1
    """Weigh values by how well their keys answer the queries."""
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    scores = ops.where(allowed, scores / query.shape[-1] ** 0.5, -np.inf)
    return ops.matmul(ops.softmax(scores), value)


def project(w, name, x):  # 3.2.2
    """To h heads: (B, T, d) to (B, h, T, d / h)."""
    x = ops.matmul(x, w[name])
    return ops.swapaxes(ops.reshape(x, (*x.shape[:2], h, -1)), 1, 2)


def multi_head(w, name, x, memory, allowed):  # 3.2.2
    """Attention h times, beside each other, and a last projection."""
    parts = {"query": x, "key": memory, "value": memory}
    qkv = [project(w, f"{name}/{part}", of) for part, of in parts.items()]
    found = ops.swapaxes(attention(*qkv, allowed), 1, 2)
    found = ops.reshape(found, (*x.shape[:2], -1))
    return ops.matmul(found, w[f"{name}/output"])


def feed_forward(w, name, x):  # 3.3, equation 2
    """Widen, cut at 0, narrow; alike at every position."""
    x = ops.matmul(x, w[f"{name}/widen/kernel"]) + w[f"{name}/widen/bias"]
    x = ops.matmul(ops.relu(x), w[f"{name}/narrow/kernel"])
    return x + w[f"{name}/narrow/bias"]


def add_and_norm(w, name, x, found):  # 3.1
    """LayerNorm(x + Sublayer(x)): the norm comes last (post-norm)."""
    x = x + found
    x = (x - ops.mean(x, -1, keepdims=True)) / ops.sqrt(
        ops.var(x, -1, keepdims=True) + 1e-6
    )
    return x * w[f"{name}_norm/gamma"] + w[f"{name}_norm/beta"]


def encode(w, source):  # 3.1
    """The memory of a source: (B, S) to (B, S, d)."""
    allowed = (source != 0)[:, None, None]  # No one looks at padding.
    x = embed(w, source)
    for i in range(N):
        at = f"encoder/layer_{i}/attention"
        x = add_and_norm(w, at, x, multi_head(w, at, x, x, allowed))
        at = f"encoder/layer_{i}/feed_forward"
        x = add_and_norm(w, at, x, feed_forward(w, at, x))
    return x


def decode(w, memory, source, target_in):  # 3.1
    """The logits of what comes next: (B, T) to (B, T, V)."""
    earlier = np.tri(target_in.shape[1], dtype=bool)  # No one looks ahead.
    allowed = (source != 0)[:, None, None]
    x = embed(w, target_in)
    for i in range(N):
        at = f"decoder/layer_{i}/self_attention"
        x = add_and_norm(w, at, x, multi_head(w, at, x, x, earlier))
        at = f"decoder/layer_{i}/cross_attention"
        x = add_and_norm(w, at, x, multi_head(w, at, x, memory, allowed))
        at = f"decoder/layer_{i}/feed_forward"
        x = add_and_norm(w, at, x, feed_forward(w, at, x))
    return ops.matmul(x, w["embedding/table"].T)  # 3.4: the table once more.


# %% [markdown]
# That is all. Only dropout (5.4) is missing, which does nothing after the
# training.
#
# ## 3. The same logits
#
# Two sentences of different lengths, so that one is padded. The decoder reads
# the target shifted right by one: the begin token, then all but the last piece.

# %%
texts = ["three hundred and two", "one lamp"]
translations = ["dreihundertzwei", "eine Lampe"]
source = tokenizer.tokenize(texts).to_tensor().numpy()
target = tokenizer.tokenize(translations).to_tensor().numpy()
BEGIN, END = 2, 3
target_in = np.pad(target, [(0, 0), (1, 0)], constant_values=BEGIN)[:, :-1]

ours = model((source, target_in), training=False).numpy()
here = decode(w, encode(w, source), source, target_in).numpy()
real = target_in != 0  # What stands at padding, nobody reads.
difference = np.abs(ours - here)[real].max()
print(f"logits {here.shape}, equal within 1e-4: {difference < 1e-4}")
assert difference < 1e-4

# %% [markdown]
# ## 4. Three lines that people get wrong
#
# Many models that "do not learn" make one of these mistakes. Each still runs,
# and raises no error.


# %%
def damaged(**changed):
    """How far the logits are off with other functions in their places."""
    before = {name: globals()[name] for name in changed}
    globals().update(changed)
    try:
        there = decode(w, encode(w, source), source, target_in).numpy()
    finally:
        globals().update(before)
    return np.abs(there - ours)[real].max()


true_embed, true_attention = embed, attention
d = w["embedding/table"].shape[1]
without_root = damaged(
    # √d_model left out: the sinusoids then drown the words.
    embed=lambda w, ids, start=0: (
        true_embed(w, ids, start)
        + ops.take(w["embedding/table"], ids, axis=0) * (1 - d**0.5)
    )
)
without_mask = damaged(
    # Padding is seen, so the company of a sentence changes its translation.
    attention=lambda q, k, v, allowed: true_attention(
        q, k, v, allowed if allowed.ndim == 2 else np.True_
    )
)
norm_first = damaged(
    # Another model: its weights have to be trained that way.
    add_and_norm=lambda w, name, x, found: x + found
)
for name, off in (
    ("√d_model left out", without_root),
    ("padding not masked", without_mask),
    ("norms left out", norm_first),
):
    print(f"{name:20} off by more than 0.01: {off > 0.01}")
    assert off > 0.01

# %% [markdown]
# A missing warm-up is the fourth mistake. A post-norm model whose rate does not
# rise slowly (equation 3) may never leave a plateau where it writes the same
# words for every source. [The first notebook](1_the_paper.ipynb) compares the
# losses with and without a warm-up.
#
# ## 5. A translation, the slow way
#
# Greedy search: take the likeliest piece, append it, and compute everything
# again for the next one.


# %%
def greedy(text, most=60):
    """Translate a text; returns it with the number of positions computed."""
    source = tokenizer.tokenize([text]).to_tensor().numpy()
    memory, ids, positions = encode(w, source), [BEGIN], 0
    while ids[-1] != END and len(ids) <= most:
        logits = decode(w, memory, source, np.array([ids]))
        positions += len(ids)
        ids.append(int(ops.argmax(logits[0, -1])))
    return tokenizer.detokenize([ids[1:]]).numpy()[0].decode(), positions


slow = {text: greedy(text) for text in texts}
for text, (translation, _) in slow.items():
    print(f"{text} → {translation}")
    assert [translation] == translator.translate([text], beam_size=1)

# %% [markdown]
# ## 6. Keys and values, kept between steps
#
# A position looks only at earlier ones, so its own keys and values never change
# again. Keep them, and a step computes one position instead of all. The
# memory's keys and values never change either, so they are projected once.


# %%
def of_memory(w, memory):
    """The keys and values of the memory, a pair for each layer."""
    at = "decoder/layer_{}/cross_attention/{}"
    return [
        [project(w, at.format(i, part), memory) for part in ("key", "value")]
        for i in range(N)
    ]


def ask(w, name, x, pair, allowed):
    """`multi_head`, of keys and values that are projected already."""
    found = attention(project(w, f"{name}/query", x), *pair, allowed)
    found = ops.reshape(ops.swapaxes(found, 1, 2), (*x.shape[:2], -1))
    return ops.matmul(found, w[f"{name}/output"])


def step(w, fixed, source, token, kept):
    """The logits after one more token; `kept` grows by its keys and values."""
    allowed = (source != 0)[:, None, None]
    start = kept[0][0].shape[2] if kept else 0
    x = embed(w, np.array([[token]]), start)
    for i in range(N):
        at = f"decoder/layer_{i}/self_attention"
        new = [project(w, f"{at}/{part}", x) for part in ("key", "value")]
        if start:
            new = [
                ops.concatenate(each, 2)
                for each in zip(kept[i], new, strict=True)
            ]
            kept[i] = new
        else:
            kept.append(new)
        # Everything that is kept is earlier: there is nothing to mask.
        x = add_and_norm(w, at, x, ask(w, at, x, new, np.True_))
        at = f"decoder/layer_{i}/cross_attention"
        x = add_and_norm(w, at, x, ask(w, at, x, fixed[i], allowed))
        at = f"decoder/layer_{i}/feed_forward"
        x = add_and_norm(w, at, x, feed_forward(w, at, x))
    return ops.matmul(x, w["embedding/table"].T)


def quick(text, most=60):
    """As `greedy`, a position at a time."""
    source = tokenizer.tokenize([text]).to_tensor().numpy()
    fixed, ids, kept = of_memory(w, encode(w, source)), [BEGIN], []
    while ids[-1] != END and len(ids) <= most:
        logits = step(w, fixed, source, ids[-1], kept)
        ids.append(int(ops.argmax(logits[0, -1])))
    return tokenizer.detokenize([ids[1:]]).numpy()[0].decode(), len(ids) - 1


for text, (translation, positions) in slow.items():
    again, fewer = quick(text)
    assert again == translation and positions == fewer * (fewer + 1) // 2
    print(f"{positions} positions, with what is kept {fewer}: {translation}")

# %% [markdown]
# That is T positions instead of T (T + 1) / 2: for a sentence of 30 pieces, 30
# instead of 465. The search of the package does this too. It also writes into
# its caches in place, and never moves them when beams change places
# (`keras_transformer/decoding/cached_steps.py`).
#
# ## 7. What that saves, counted and measured
#
# Nearly all work of a model is matrix products, so count their multiplications.
# For a prefix of n pieces, a source of S, width d, feed-forward width f and a
# vocabulary of V, one step of the slow way needs
#
# | in each layer | all n positions again | with what is kept |
# | --- | --- | --- |
# | self-attention: four projections | 4 n d² | 4 d² |
# | self-attention: scores, and the mean | 2 n² d | 2 n d |
# | cross-attention: query and output | 2 n d² | 2 d² |
# | cross-attention: the memory's keys and values | 2 S d² | once for all |
# | cross-attention: scores, and the mean | 2 n S d | 2 S d |
# | feed-forward network | 2 n d f | 2 d f |
#
# and at the end n d V for the logits, or d V. The functions below add this up
# over T steps.


# %%
def by_formula(T, S, d, f, V):
    """Multiplications for T pieces: computed again, and with what is kept."""
    n = np.arange(1, T + 1)
    layer = 4 * n * d**2 + 2 * n**2 * d  # Self-attention.
    layer += 2 * n * d**2 + 2 * S * d**2 + 2 * n * S * d  # Cross-attention.
    layer += 2 * n * d * f
    again = (N * layer + n * d * V).sum()
    layer = 4 * d**2 + 2 * n * d + 2 * d**2 + 2 * S * d + 2 * d * f
    kept = (N * layer + d * V).sum() + N * 2 * S * d**2
    return int(again), int(kept)


def compute_again(w, memory, source, ids):
    """The logits after each of the ids, the slow way."""
    return [
        decode(w, memory, source, ids[None, : n + 1])[0, -1]
        for n in range(len(ids))
    ]


def keep(w, memory, source, ids):
    """The same, a position at a time."""
    fixed, kept = of_memory(w, memory), []
    return [step(w, fixed, source, id_, kept)[0, -1] for id_ in ids]


# %% [markdown]
# A formula is easily wrong, so we count as well. NumPy has nearly all the
# functions of `keras.ops` that we need, so let it stand in, with a `matmul`
# that counts. We time NumPy too: for arrays as small as these, calling
# TensorFlow takes longer than the multiplications.


# %%
class CountingNumpy:
    """NumPy in the place of `keras.ops`; it counts multiplications."""

    multiplications = 0

    def __getattr__(self, name):
        return getattr(np, name)

    def matmul(self, a, b):
        self.multiplications += a.size * b.shape[-1]
        return np.matmul(a, b)

    def relu(self, x):
        return np.maximum(x, 0)

    def softmax(self, x):
        odds = np.exp(x - x.max(-1, keepdims=True))
        return odds / odds.sum(-1, keepdims=True)


def measured(way, *args):
    """What a function returns, its multiplications and its seconds."""
    global ops
    keras_ops, ops = ops, CountingNumpy()
    try:
        began = time.perf_counter()
        found = way(*args)
        return found, ops.multiplications, time.perf_counter() - began
    finally:
        ops = keras_ops


# %% [markdown]
# The time does not depend on what the numbers are. So take a model as wide as
# the paper's base model, with two layers and fresh weights, and let it read
# random pieces.

# %%
V, d_wide, f_wide, S = 1_000, 512, 2_048, 20
wide = kt.Transformer(
    V, num_layers=N, d_model=d_wide, num_heads=h, ffn_dim=f_wide
)
w_wide = {v.path.partition("/")[2]: v.numpy() for v in wide.weights}
draw = np.random.default_rng(1)
long_source = draw.integers(4, V, (1, S))
memory = np.array(encode(w_wide, long_source))

lengths, counts, seconds = [8, 16, 32, 64], [], []
for T in lengths:
    ids = draw.integers(4, V, T)
    results, numbers, times = zip(
        *(
            measured(way, w_wide, memory, long_source, ids)
            for way in (compute_again, keep)
        ),
        strict=True,
    )
    counts.append(numbers)
    seconds.append(times)
    again, kept = numbers
    print(f"{T:3} pieces: {again:14,} or {kept:13,}, {again / kept:4.1f} : 1")
    assert numbers == by_formula(T, S, d_wide, f_wide, V)
    assert again > T / 2 * kept
    np.testing.assert_allclose(*results, atol=1e-3)

# %%
figure, panels = plt.subplots(1, 2, figsize=(8, 3))
for panel, rows, title in zip(
    panels,
    (np.array(counts) / 1e9, seconds),
    ("multiplications, in billions", "seconds"),
    strict=True,
):
    for values, name in zip(
        zip(*rows, strict=True), ("all again", "kept"), strict=True
    ):
        panel.plot(lengths, values, marker="o", label=name)
    panel.set(title=title, xlabel="pieces written", ylim=(0, None))
    panel.set_xticks(lengths)
    panel.grid(alpha=0.3)
panels[0].legend()
plt.show()

# %% [markdown]
# Computed again, the work grows about as T²; with what is kept, as T. So twice
# the length nearly doubles the saving. The seconds on the right are this
# machine's and differ from run to run. Keeping saves less time than
# multiplications, because a step for one position still has to fetch every
# weight from memory, and uses it only once. That is why servers translate many
# sentences in one batch: a weight that is fetched once then serves all of them.
# What is kept takes memory too (exercise 3).
#
# ## 8. Exercises
#
# **1.** Restricted self-attention (section 4), as this package reads it, lets
# position i see position j only where |i − j| < r. Change `earlier` for the
# decoder so that r = 4.
#
# <details><summary>Solution</summary>
#
# `earlier = np.tri(T, dtype=bool) & ~np.tri(T, k=-4, dtype=bool)`: of the
# positions up to i, leave out those up to i − 4.
#
# </details>
#
# **2.** Why does `decode` need no mask for padding in the target?
#
# <details><summary>Solution</summary>
#
# Padding stands at the end. A real position sees earlier ones only, and those
# are real. What padded positions compute, the loss leaves out.
#
# </details>
#
# **3.** How many numbers does `kept` hold for a sentence of T pieces?
#
# <details><summary>Solution</summary>
#
# Keys and values, for N layers, d_model each: 2 · N · T · d_model.
#
# </details>
#
# **4.** With what is kept, one term of a step still grows with n (section 7).
# Let S be small and f = 4 d. After how many pieces does that term cost as much
# as all else in a layer? How many is that for the base model, d = 512?
#
# <details><summary>Solution</summary>
#
# The term is 2 n d, all else 4 d² + 2 d² + 8 d² = 14 d². They are equal at
# n = 7 d, which is 3,584 pieces. Up to there a sentence's length hardly matters
# to a step.
#
# </details>
#
# The folded cell below checks 1, 3 and 4.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
kept = []
fixed = of_memory(w, encode(w, source[:1]))
for token in target_in[0]:
    step(w, fixed, source[:1], int(token), kept)
numbers = sum(int(np.prod(part.shape)) for pair in kept for part in pair)
assert numbers == 2 * N * target_in.shape[1] * d

T, r = 7, 4
earlier = np.tri(T, dtype=bool) & ~np.tri(T, k=-r, dtype=bool)
i, j = np.indices((T, T))
assert (earlier == ((j <= i) & (abs(i - j) < r))).all()

# One more step, and the same one if nothing grew: no source, no vocabulary.
n = 7 * 512
shape = dict(S=0, d=512, f=4 * 512, V=0)
to_n, to_before = (by_formula(T, **shape)[1] for T in (n, n - 1))
first_step = by_formula(1, **shape)[1]
assert n == 3_584
assert to_n - to_before - N * 2 * n * 512 == N * 14 * 512**2
assert np.isclose(to_n - to_before, 2 * first_step, rtol=1e-3)
print("all holds")

# %% [markdown]
# Back to [the first notebook](1_the_paper.ipynb), or on to the code: with this
# page in mind, `keras_transformer/model.py` and `layers/` hold no surprise.
