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
# 7. Exercises
#
# Every claim is an `assert`: a notebook that runs to its end has kept its word.
# All of it takes about a minute on two CPU cores.

# %% [markdown]
# The first cell installs the package in Colab. Elsewhere it only looks.

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
    "keras-transformer-mt[demo,plot,serving,tfds] @ "
    f"git+{REPOSITORY}@v{RELEASE}"
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
import warnings

import numpy as np
from keras import ops

import keras_transformer as kt

# In section 6 the first position has only itself to look at.
warnings.filterwarnings("ignore", message="You are using a softmax")

# %% [markdown]
# ## 1. Weights to work with
#
# Half a minute of training is enough for a model that has learnt something. Its
# weights become a dictionary: a name, and an array.

# %%
logging.getLogger("keras_transformer").setLevel(logging.ERROR)
run = kt.train("runs/screen", corpus="demo", steps=300, seed=1)
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
# That is all of it. What is missing is dropout (5.4), which does nothing after
# the training.
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
# Most models that "do not learn" have one of these. Each still runs, and none
# of them raises an error.


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
# Warm-up is the fourth. A post-norm model whose rate does not rise slowly
# (equation 3) may never leave the plateau where it writes the same words for
# every source: [the first notebook](1_the_paper.ipynb) shows it.
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
# again. Keep them, and a step computes one position instead of all.


# %%
def step(w, memory, source, token, kept):
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
        query = project(w, f"{at}/query", x)
        # Everything that is kept is earlier: there is nothing to mask.
        found = ops.swapaxes(attention(query, *new, np.True_), 1, 2)
        found = ops.matmul(ops.reshape(found, (1, 1, -1)), w[f"{at}/output"])
        x = add_and_norm(w, at, x, found)
        at = f"decoder/layer_{i}/cross_attention"
        x = add_and_norm(w, at, x, multi_head(w, at, x, memory, allowed))
        at = f"decoder/layer_{i}/feed_forward"
        x = add_and_norm(w, at, x, feed_forward(w, at, x))
    return ops.matmul(x, w["embedding/table"].T)


def quick(text, most=60):
    """As `greedy`, a position at a time."""
    source = tokenizer.tokenize([text]).to_tensor().numpy()
    memory, ids, kept = encode(w, source), [BEGIN], []
    while ids[-1] != END and len(ids) <= most:
        logits = step(w, memory, source, ids[-1], kept)
        ids.append(int(ops.argmax(logits[0, -1])))
    return tokenizer.detokenize([ids[1:]]).numpy()[0].decode(), len(ids) - 1


for text, (translation, positions) in slow.items():
    again, fewer = quick(text)
    assert again == translation and positions == fewer * (fewer + 1) // 2
    print(f"{positions} positions, with what is kept {fewer}: {translation}")

# %% [markdown]
# T positions in place of T (T + 1) / 2: for a sentence of 30 pieces that is 30
# in place of 465. The search of the package does more of this. It projects the
# memory's keys and values once a sentence, writes into its caches in place, and
# never moves them when beams change places
# (`keras_transformer/decoding/cached_steps.py`).
#
# ## 7. Exercises
#
# **1.** Restricted self-attention (section 4) lets position i see position j
# only where |i − j| < r. Change `earlier` for the decoder so that r = 4.
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
# Keys and values, for N layers, d_model each: 2 · N · T · d_model. The next
# cell checks it, and the first exercise too.
#
# </details>

# %% jupyter={"source_hidden": true}
kept = []
memory = encode(w, source[:1])
for token in target_in[0]:
    step(w, memory, source[:1], int(token), kept)
numbers = sum(int(np.prod(part.shape)) for pair in kept for part in pair)
assert numbers == 2 * N * target_in.shape[1] * d

T, r = 7, 4
earlier = np.tri(T, dtype=bool) & ~np.tri(T, k=-r, dtype=bool)
i, j = np.indices((T, T))
assert (earlier == ((j <= i) & (abs(i - j) < r))).all()
print("both hold")

# %% [markdown]
# Back to [the first notebook](1_the_paper.ipynb), or on to the code: with this
# page in mind, `keras_transformer/model.py` and `layers/` hold no surprise.
