# %% [markdown]
# # The paper, part by part
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/keras-transformer/keras-transformer/blob/v0.1.0/notebooks/1_the_paper.ipynb)
#
# Not run in Colab itself yet.
#
# ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762) is fifteen
# pages. This notebook goes through its parts, each first by hand in NumPy, then
# with the layer that `keras_transformer` has for it. You need to know Python
# and NumPy.
#
# 1. Attention is a weighted mean (section 3.2.1)
# 2. Several heads for the price of one (3.2.2)
# 3. Positions as waves (3.5)
# 4. Masks (3.2.3)
# 5. What happens when the causal mask is missing
# 6. Post-norm and warm-up (3.1, 5.3)
# 7. Label smoothing (5.4)
# 8. Counting the parameters of table 3
#
# Every claim is an `assert`: if the notebook runs to its end, all of them hold.
# It trains four small models on the way, and takes about a minute on two CPU
# cores.
#
# There are four exercises. Try each in a cell of your own before you unfold its
# solution. The folded cell below checks it.

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

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_transformer as kt

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})

# %% [markdown]
# ## 1. Attention is a weighted mean (section 3.2.1)
#
# Equation 1 of the paper:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}(Q K^T / \sqrt{d_k})\, V$$
#
# A *query* asks and the *keys* answer. The result is a weighted mean of the
# *values*: the better a key answers the query, the more its value weighs. Take
# one query and two keys of width $d_k = 4$. The query's dot product with the
# first key is $2 \ln 3$, with the second 0. Divided by $\sqrt 4$, these become
# $\ln 3$ and 0, so the softmax weighs the two values 3 to 1.

# %%
query = np.array([[2 * np.log(3), 0, 0, 0]], "float32")  # one query
key = np.array([[1, 0, 0, 0], [0, 0, 0, 0]], "float32")  # two keys
value = np.array([[8], [0]], "float32")  # and their values

scores = query @ key.T / np.sqrt(4)
weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
context = weights @ value

print("weights", weights.round(4), "mean", context.round(4))
assert np.allclose(weights, [[3 / 4, 1 / 4]])
assert np.allclose(context, [[3 / 4 * 8 + 1 / 4 * 0]])

# %% [markdown]
# The function of the package does this for every sentence of a batch and for
# every head at once: both are leading axes.

# %%
context_of_layer, weights_of_layer = kt.layers.scaled_dot_product_attention(
    query[None, None], key[None, None], value[None, None]
)

print("shape", tuple(weights_of_layer.shape), "(batch, heads, queries, keys)")
assert np.allclose(weights_of_layer[0, 0], weights)
assert np.allclose(context_of_layer[0, 0], context)

# %% [markdown]
# Why divide by $\sqrt{d_k}$? The dot product of two random vectors is a sum of
# $d_k$ random numbers, so its spread grows as $\sqrt{d_k}$. With large scores
# the softmax gives nearly all weight to one key, and then it passes on hardly
# any gradient.

# %%
for d_k in (4, 64, 1024):
    first, second = rng.normal(size=(2, 5_000, d_k))
    spread = (first * second).sum(axis=-1).std()
    print(f"d_k {d_k:4}: products spread by {spread:5.2f}")
    assert 0.95 < spread / np.sqrt(d_k) < 1.05

# %%
scores = np.sort(rng.normal(size=(500, 10, 64)).sum(axis=-1), axis=-1)
fig, axes = plt.subplots(1, 2, figsize=(7, 2.4), sharey=True)
slopes = []
for ax, scale in zip(axes, (1, np.sqrt(64)), strict=True):
    softmax = np.array(keras.ops.softmax(scores / scale))
    ax.bar(range(10), softmax.mean(axis=0))
    slopes.append((softmax * (1 - softmax)).sum(axis=-1).mean())
axes[0].set(title="not divided", xlabel="key, by score", ylabel="mean weight")
axes[1].set(title="divided by √64", xlabel="key, by score")
plt.show()
assert slopes[0] < slopes[1] / 2

# %% [markdown]
# **Exercise 1.** Write equation 1 in five lines of NumPy: a function
# `attend(Q, K, V)` that returns the means and the weights, with any number of
# leading axes. Draw random queries, keys and values for 2 sentences, 3 heads, 4
# queries, 5 keys and $d_k = 6$, and compare your function with
# `kt.layers.scaled_dot_product_attention`. Then multiply the queries by 10,000.
# Does your function still work?
#
# <details><summary>Solution</summary>
#
# ```python
# def attend(Q, K, V):
#     scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
#     odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
#     weights = odds / odds.sum(axis=-1, keepdims=True)
#     return weights @ V, weights
# ```
#
# Subtracting the largest score changes no weight: it divides all odds by the
# same number. Without it, the exponential of a large score is infinite, and
# infinity divided by infinity is not a number.
#
# </details>


# %% jupyter={"source_hidden": true} tags=["hide-input"]
def attend(Q, K, V):
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = odds / odds.sum(axis=-1, keepdims=True)
    return weights @ V, weights


draw = np.random.default_rng(2)
Q, K, V = (draw.normal(size=(2, 3, n, 6)).astype("float32") for n in (4, 5, 5))
for queries in (Q, 10_000 * Q):
    means, weights_by_key = attend(queries, K, V)
    means_of_layer, weights_of_layer = kt.layers.scaled_dot_product_attention(
        queries, K, V
    )
    assert np.allclose(means, means_of_layer, atol=1e-4)
    assert np.allclose(weights_by_key, weights_of_layer, atol=1e-4)
    assert np.allclose(weights_by_key.sum(axis=-1), 1, atol=1e-5)
with np.errstate(over="ignore", invalid="ignore"):
    odds = np.exp(10_000 * Q @ np.swapaxes(K, -1, -2) / np.sqrt(6))
    assert np.isnan(odds / odds.sum(axis=-1, keepdims=True)).any()
print("all holds")

# %% [markdown]
# ## 2. Several heads for the price of one (section 3.2.2)
#
# One mean per position can look for one thing at a time. So the paper projects
# queries, keys and values $h$ times, attends in each of these *heads*, joins
# the results and projects once more. `MultiHeadAttention` keeps the projections
# of all heads side by side in one matrix: head $i$ is a slice of its columns.

# %%
layer = kt.layers.MultiHeadAttention(num_heads=2, key_dim=3)
x = rng.normal(size=(1, 5, 6)).astype("float32")  # 5 positions of width 6
output, weights = layer(x, x, return_attention_scores=True)

W_Q, W_K = layer.query_kernel.numpy(), layer.key_kernel.numpy()
W_V, W_O = layer.value_kernel.numpy(), layer.output_kernel.numpy()
print("W_Q", W_Q.shape, "W_O", W_O.shape, "weights", tuple(weights.shape))

# %%
heads = []
for i in range(2):
    columns = slice(3 * i, 3 * i + 3)
    Q, K, V = (x[0] @ W[:, columns] for W in (W_Q, W_K, W_V))
    odds = np.exp(Q @ K.T / np.sqrt(3))
    attention = odds / odds.sum(axis=-1, keepdims=True)
    assert np.allclose(attention, weights[0, i], atol=1e-5)
    heads.append(attention @ V)
by_hand = np.concatenate(heads, axis=-1) @ W_O

assert np.allclose(by_hand, output[0], atol=1e-5)

# %% [markdown]
# With more heads, each is narrower: $d_k = d_v = d_{model} / h$. So eight heads
# of width 64 have as many parameters as one of width 512. Row A of table 3
# compares them: 24.9 BLEU with one head, 25.8 with eight, 25.4 with thirty-two.

# %%
for h in (1, 4, 8, 16, 32):
    layer_of_512 = kt.layers.MultiHeadAttention(h, key_dim=512 // h)
    layer_of_512.build((None, None, 512))
    print(f"{h:2} heads of {512 // h:3}: {layer_of_512.count_params():,}")
    assert layer_of_512.count_params() == 4 * 512 * 512

# %% [markdown]
# ## 3. Positions as waves (section 3.5)
#
# A weighted mean ignores order. Shuffle the words, and attention gives the same
# outputs, shuffled:

# %%
order = rng.permutation(5)
shuffled = layer(x[:, order], x[:, order])

print("order", order)
assert np.allclose(shuffled[0], np.array(output)[0, order], atol=1e-5)

# %% [markdown]
# So the paper adds to every position a vector that tells where it is. The
# vector holds sines and cosines of slower and slower waves.
#
# $$PE(pos, 2i) = \sin(pos / 10000^{2i/d_{model}}), \quad
# PE(pos, 2i+1) = \cos(pos / 10000^{2i/d_{model}})$$
#
# For $d_{model} = 4$ there are two waves, and position 1 is at the angles 1 and
# 1/100. (Some tutorials print $\sin(1/100)$ as 0.002. It is 0.01.)

# %%
first = np.array(kt.positional_encoding(2, 4))[1]

print(first)
assert np.allclose(first, [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)])

# %%
encoding = np.array(kt.positional_encoding(64, 64))
fig, ax = plt.subplots(figsize=(7, 3))
picture = ax.imshow(encoding.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
ax.set(xlabel="position", ylabel="column")
fig.colorbar(picture)
plt.show()

# %% [markdown]
# Word vectors and position vectors are added, so they must be of similar
# length. But the embedding table also scores the vocabulary at the other end of
# the model, so its rows start with a length of about 1. A position vector, a
# column of the picture, has the length $\sqrt{d_{model} / 2}$: the positions
# would drown the words. That is why section 3.4 multiplies the rows by
# $\sqrt{d_{model}}$ before the sum, a step that many reimplementations forget.

# %%
embedding = kt.layers.TiedEmbedding(vocab_size=600, d_model=512)
rows = np.array(embedding(np.array([[14, 15, 16]])))[0]
lengths = {
    "row of the table": np.linalg.norm(embedding.table[14]),
    "wave": np.linalg.norm(kt.positional_encoding(1, 512)),
    "row times √512": np.linalg.norm(rows[0]),
}
for name, length in lengths.items():
    print(f"{name:16} {length:4.1f} long")
assert np.isclose(lengths["wave"], np.sqrt(512 / 2))
assert 0.8 < lengths["row of the table"] < 1.2
assert np.allclose(rows[0], embedding.table[14] * np.sqrt(512), atol=1e-4)

# %% [markdown]
# Columns $2i$ and $2i + 1$ are the two coordinates of the hand of a clock.
# Going $k$ positions further turns each hand by an angle that depends on $k$
# alone, wherever it started. The paper hopes that this makes it easy to attend
# to "three words ago".

# %%
k = 3
rates = 10_000 ** (-np.arange(0, 64, 2) / 64)
sines, cosines = encoding[:, 0::2], encoding[:, 1::2]
turned = sines * np.cos(k * rates) + cosines * np.sin(k * rates)

assert np.allclose(turned[:-k], sines[k:], atol=1e-4)

# %% [markdown]
# **Exercise 2.** That cell turns the sines alone. Find the 2 × 2 matrix $R_k$
# that takes the sine *and* the cosine of a wave from any position to $k$
# positions further. Does it need to know the position? What is $R_{-k}$, which
# goes back? Try your matrix on every wave of `encoding`.
#
# <details><summary>Solution</summary>
#
# With $\omega$ for the wave's rate, the sum formulas of sine and cosine give
#
# $$R_k = \begin{pmatrix} \cos k\omega & \sin k\omega \\
# -\sin k\omega & \cos k\omega \end{pmatrix}$$
#
# ```python
# def turn(k, rate):
#     cosine, sine = np.cos(k * rate), np.sin(k * rate)
#     return np.array([[cosine, sine], [-sine, cosine]])
# ```
#
# No position is in it. $R_{-k}$ is the same matrix transposed: a rotation,
# undone.
#
# </details>


# %% jupyter={"source_hidden": true} tags=["hide-input"]
def turn(k, rate):
    cosine, sine = np.cos(k * rate), np.sin(k * rate)
    return np.array([[cosine, sine], [-sine, cosine]])


for wave, rate in enumerate(rates):
    hands = encoding[:, 2 * wave : 2 * wave + 2]  # A row for each position.
    assert np.allclose(hands[:-k] @ turn(k, rate).T, hands[k:], atol=1e-4)
    assert np.allclose(hands[k:] @ turn(-k, rate).T, hands[:-k], atol=1e-4)
    assert np.allclose(turn(-k, rate), turn(k, rate).T)
print("all holds")

# %% [markdown]
# For the same reason, the product of two encodings depends on their distance
# alone:

# %%
products = encoding @ encoding.T
fig, ax = plt.subplots(figsize=(7, 2.4))
for position in (0, 20, 40):
    ax.plot(np.arange(64) - position, products[position], label=position)
    assert np.allclose(
        products[position, position:], products[0, : 64 - position], atol=1e-3
    )
ax.set(xlabel="distance", ylabel="product")
ax.legend(title="from position")
plt.show()

# %% [markdown]
# **Why ours interleave.** The formula puts sine and cosine of a wave side by
# side, and so does this package. The code that the authors published, and
# several libraries after it, put all sines first and all cosines behind: the
# same numbers with the columns in another order. For a model that is trained
# from scratch this makes no difference: reorder the rows of its first matrix in
# the same way, and it computes the same. But weights that were trained with one
# layout do not fit the other.

# %%
columns = np.concatenate([np.arange(0, 64, 2), np.arange(1, 64, 2)])
halves = encoding[:, columns]
kernel = rng.normal(size=(64, 8))

assert np.allclose(halves @ kernel[columns], encoding @ kernel)
assert not np.allclose(halves @ kernel, encoding @ kernel, atol=1.0)

# %% [markdown]
# ## 4. Masks (section 3.2.3)
#
# Two things must stay hidden. The sentences of a batch are filled up to one
# length with *padding*, id 0, and no position may attend to that. And the
# decoder, which learns to predict the next token, gets the whole target as its
# input. So position $i$ may see the positions up to $i$, but not those after
# it, which hold the answers. A mask is boolean, `True` means "may attend", and
# the target's mask combines both conditions. (Look this up in whatever library
# you use: in the masks of PyTorch's `nn.MultiheadAttention`, `True` means "may
# not".)

# %%
target_in = np.array([[2, 14, 15, 16, 0, 0]])  # 2 begins, 0 is padding
padding = np.array(kt.masks.padding_mask(target_in))
causal = np.array(kt.masks.causal_mask(6))
both = np.array(kt.masks.target_mask(target_in))

fig, axes = plt.subplots(1, 3, figsize=(7, 2.6), sharey=True)
named = {"padding_mask": padding, "causal_mask": causal, "target_mask": both}
for ax, (name, mask) in zip(axes, named.items(), strict=True):
    ax.imshow(np.broadcast_to(mask[0, 0], (6, 6)), cmap="cividis", vmin=0)
    ax.set(title=name, xlabel="key")
axes[0].set(ylabel="query")
plt.show()  # yellow: may attend
assert np.array_equal(both, padding & causal)
assert np.array_equal(causal[0, 0], np.tril(np.ones((6, 6), bool)))

# %% [markdown]
# You can test what the masks promise on any model, even one that has learnt
# nothing. Change the last target token: the last prediction changes, and no
# earlier one. Put more padding behind the source: nothing changes.

# %%
model = kt.Transformer(
    vocab_size=31, num_layers=2, d_model=16, num_heads=2, ffn_dim=32
)
source = np.array([[11, 12, 13, 3]])
before = np.array(model((source, np.array([[2, 14, 15, 16]]))))
after = np.array(model((source, np.array([[2, 14, 15, 29]]))))
padded = np.pad(source, [(0, 0), (0, 3)])
with_padding = np.array(model((padded, np.array([[2, 14, 15, 16]]))))

assert np.array_equal(before[:, :3], after[:, :3])
assert not np.allclose(before[:, 3], after[:, 3])
assert np.allclose(before, with_padding, atol=1e-5)

# %% [markdown]
# **Exercise 3.** Predict before you run anything. The target `[2, 14, 15, 16]`
# becomes `[2, 29, 15, 16]`: at which of the four positions do the logits
# change? And where do they change if the target stays, and the last token of
# the *source* becomes 20?
#
# <details><summary>Solution</summary>
#
# A new token at position 1 is seen from 1, 2 and 3, so those change and 0 does
# not. A new source token changes all four. The source has no causal mask: each
# of its positions sees all the others, and each position of the target sees all
# of the source.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
other_target = model((source, np.array([[2, 29, 15, 16]])))
other_source = model(
    (np.array([[11, 12, 13, 20]]), np.array([[2, 14, 15, 16]]))
)
for logits, expected in ((other_target, [1, 2, 3]), (other_source, range(4))):
    changed = np.abs(np.array(logits) - before).max(axis=-1)[0] > 1e-4
    assert np.flatnonzero(changed).tolist() == list(expected)
print("all holds")

# %% [markdown]
# ## 5. What happens when the causal mask is missing
#
# A decoder without its mask raises no error. Let us leave the mask out on
# purpose, and train two models, with it and without it, on the same text: the
# spelled dates of the built-in corpus.

# %%
corpus = kt.open_corpus("demo", source_lang="en", target_lang="de")
train, test = (
    [pair for pair in corpus.pairs(split) if "day, the" in pair[0]]
    for split in ("train", "test")
)
sentences = [sentence for pair in train for sentence in pair]
tokenizer = kt.Tokenizer.train(sentences, 600, "tokenizer.model")

print(len(train), "pairs to learn from,", len(test), "to test with, such as")
print(*test[0], sep="\n")
assert not {source for source, _ in train} & {source for source, _ in test}

# %% [markdown]
# The decoder's input is the target shifted right by one: first the begin token
# 2, then at each position the token *before* the one to predict. That is
# *teacher forcing*: whatever the model would have written, its input is right.


# %%
def arrays(pairs):
    """What `fit` takes: (source, target_in), target_out."""
    source, target_out = (
        tokenizer.tokenize(side).to_tensor().numpy()
        for side in zip(*pairs, strict=True)
    )
    target_in = np.pad(target_out[:, :-1], [(0, 0), (1, 0)], constant_values=2)
    return (source, target_in), target_out


(source, target_in), target_out = arrays(train)
(test_source, test_in), test_out = arrays(test)
print("target_in ", target_in[0])
print("target_out", target_out[0])
assert np.array_equal(target_in[:, 1:], target_out[:, :-1])

# %% [markdown]
# Our model without the mask differs from the package's in one line: its decoder
# hides padding and nothing else. Put the right mask into that line, and with
# the same weights it computes exactly what the package's model does.


# %%
class Peeking(kt.Transformer):
    """A Transformer whose decoder sees the whole target."""

    mask_of = staticmethod(kt.masks.padding_mask)  # Not target_mask.

    def features(self, inputs, training=False):
        source, target_in = inputs
        memory, source_mask = self.encode(source, training)
        return self.decoder(
            self.target_positions(self.embedding(target_in)),
            memory,
            self_mask=self.mask_of(target_in),
            memory_mask=source_mask,
            training=training,
        )


class Honest(Peeking):
    """The same with the mask of section 4."""

    mask_of = staticmethod(kt.masks.target_mask)


peeking, honest, of_the_package = (
    kind(vocab_size=600, num_layers=2, d_model=16, num_heads=2, ffn_dim=32)
    for kind in (Peeking, Honest, kt.Transformer)
)
pair = source[:3], target_in[:3]
for model in (peeking, honest):
    model.set_weights(of_the_package.get_weights())
assert np.array_equal(honest(pair), of_the_package(pair))
assert not np.allclose(peeking(pair), of_the_package(pair), atol=0.1)

# %%
models, accuracies = {}, {}
for name, kind in {"with mask": kt.Transformer, "without": Peeking}.items():
    keras.utils.set_random_seed(1)
    model = kind(
        vocab_size=tokenizer.vocab_size,
        num_layers=2,
        d_model=64,
        num_heads=4,
        ffn_dim=128,
        dropout=0.0,
    )
    model.compile(
        kt.Adam(kt.TransformerSchedule(64, warmup_steps=100, scale=0.25)),
        loss=kt.SmoothedCrossEntropy(0.0),
        metrics=[kt.TokenAccuracy()],
    )
    history = model.fit(
        (source, target_in),
        target_out,
        batch_size=64,
        epochs=3,
        validation_data=((test_source, test_in), test_out),
        verbose=0,
    )
    models[name] = model
    accuracies[name] = history.history["val_token_accuracy"]

# %% [markdown]
# By its accuracy on unseen pairs, the model without the mask is as good as the
# other.

# %%
fig, ax = plt.subplots(figsize=(7, 2.4))
for (name, accuracy), style in zip(accuracies.items(), "-:", strict=True):
    ax.plot(range(1, 4), accuracy, style, marker="o", label=name)
    print(f"{name}: {accuracy[-1]:.1%} of the tokens right")
    assert accuracy[-1] > 0.95
ax.set(xlabel="epoch", ylabel="accuracy", ylim=(0, 1.05), xticks=range(1, 4))
ax.legend(title="causal mask")
plt.show()

# %% [markdown]
# Now let both translate. A translation is written token by token, so what comes
# next is not there yet.

# %%
# The log would say that a search with `Peeking` is slow: it has no cached step.
logging.getLogger("keras_transformer").setLevel("ERROR")
right = {}
for name, model in models.items():
    translator = kt.Translator(model, tokenizer)
    found = translator.translate([pair[0] for pair in test], beam_size=1)
    exact = [
        text == wanted for text, (_, wanted) in zip(found, test, strict=True)
    ]
    right[name] = np.mean(exact)
    print(f"{name}: {right[name]:.0%} of the translations right; the longest:")
    print(
        *(f"    {text:.76}" for text in sorted(found, key=len)[-3:]), sep="\n"
    )

assert right["with mask"] > 0.7
assert right["without"] < 0.05

# %% [markdown]
# Nonsense, where it writes anything at all. The model without the mask has
# learnt to copy: the token to predict at position $t$ stands in the input at
# position $t + 1$. Its attention shows it. In some head each row looks one to
# the right, where the other model must not look.

# %%
fig, axes = plt.subplots(1, 2, figsize=(7, 3.4))
to_next = {}
length = np.count_nonzero(test_in[0])
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mask = kt.masks.padding_mask(test_in[:1])
    if name == "with mask":
        mask = kt.masks.target_mask(test_in[:1])
    memory, source_mask = model.encode(test_source[:1])
    embedded = model.target_positions(model.embedding(test_in[:1]))
    _, weights, _ = model.decoder(
        embedded, memory, mask, source_mask, return_attention_scores=True
    )
    heads = np.concatenate(weights)[:, :, :length, :length].reshape(
        -1, length, length
    )
    ahead = np.diagonal(heads, 1, axis1=1, axis2=2).mean(axis=-1)
    to_next[name] = ahead.max()
    ax.imshow(heads[ahead.argmax()], cmap="cividis", vmin=0, vmax=1)
    ax.set(title=name, xlabel="target_in, seen", ylabel="position")
plt.show()

for name, weight in to_next.items():
    print(f"{name}: weight on the next token up to {weight:.2f}")
assert to_next["with mask"] == 0
assert to_next["without"] > 0.2

# %% [markdown]
# It hardly needs the source. Give each test sentence the source of another one:
# the accuracy of the model with the mask falls far, that of the other by
# little.

# %%
for name, model in models.items():
    wrong_source = np.roll(test_source, 1, axis=0)
    _, accuracy = model.evaluate((wrong_source, test_in), test_out, verbose=0)
    print(f"{name}: {accuracy:.1%} of the tokens right with a wrong source")
    assert (accuracy > 0.75) == (name == "without")

# %% [markdown]
# So an accuracy under teacher forcing, however high, does not tell whether a
# model can translate. Only a translation does.
#
# ## 6. Post-norm and warm-up (sections 3.1 and 5.3)
#
# Around every part of a layer the paper puts a residual connection, and the
# normalisation *behind* their sum: $\mathrm{LayerNorm}(x +
# \mathrm{Sublayer}(x))$, called post-norm. Many later models normalise before
# the sublayer instead, $x + \mathrm{Sublayer}(\mathrm{LayerNorm}(x))$, called
# pre-norm (here `norm_first=True`). That is another model: it needs one more
# norm at the end of each stack, and weights trained in one order are useless in
# the other. Here is an encoder layer of the paper by hand, from its own parts:

# %%
layer = kt.layers.EncoderLayer(
    num_heads=2, key_dim=8, value_dim=8, ffn_dim=32, dropout=0.0
)
x = rng.normal(3, 2, size=(1, 5, 16)).astype("float32")
output = np.array(layer(x))

attended = layer.attention_norm(x + layer.attention(x, x))
by_hand = layer.feed_forward_norm(attended + layer.feed_forward(attended))

assert np.allclose(by_hand, output, atol=1e-5)
assert np.allclose(output.mean(axis=-1), 0, atol=1e-5)
assert np.allclose(output.std(axis=-1), 1, atol=1e-3)

# %% [markdown]
# The norm at the end gives every output of a new model mean 0 and standard
# deviation 1 (its gain and bias, which are learnt, may change both). This has a
# price. In the backward pass, each norm shrinks the gradient a little, so in
# the deep stack of a new model the last layers of the decoder get a much larger
# gradient than the first ([Xiong et al.,
# 2020](https://arxiv.org/abs/2002.04745)).

# %%
keras.utils.set_random_seed(1)
shape = dict(
    vocab_size=tokenizer.vocab_size,
    d_model=64,
    num_heads=4,
    ffn_dim=128,
    dropout=0.0,
)
model = kt.Transformer(num_layers=6, **shape)
with tf.GradientTape() as tape:
    logits = model((source[:64], target_in[:64]))
    loss = kt.SmoothedCrossEntropy(0.0)(target_out[:64], logits)
kernels = [layer.feed_forward.widen.kernel for layer in model.decoder.layers]
sizes = [np.linalg.norm(g) for g in tape.gradient(loss, kernels)]

fig, ax = plt.subplots(figsize=(7, 2.2))
ax.bar(range(1, 7), sizes)
ax.set(xlabel="decoder layer", ylabel="norm of the gradient")
plt.show()
assert sizes[-1] > 3 * sizes[0]

# %% [markdown]
# With such gradients, they argue, full steps at the beginning make a training
# unstable. So the paper begins with tiny ones. Equation 3:
#
# $$rate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\;
# step \cdot warmup\_steps^{-1.5})$$
#
# The rate grows in a straight line for `warmup_steps` updates, then falls as
# the inverse root. (Keras counts updates from 0, the paper from 1.)

# %%
steps = np.arange(1, 20_001)
fig, ax = plt.subplots(figsize=(7, 2.6))
for d_model, warmup in ((512, 4_000), (512, 8_000), (256, 4_000)):
    schedule = kt.TransformerSchedule(d_model, warmup_steps=warmup)
    rates = np.array(schedule(steps - 1))
    ax.plot(steps, rates, label=f"d_model {d_model}, warm-up {warmup:,}")
    by_hand = d_model**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
    assert np.allclose(rates, by_hand, rtol=1e-4)
    assert abs(steps[rates.argmax()] - warmup) <= 1
    assert np.isclose(rates.max(), (d_model * warmup) ** -0.5, rtol=1e-3)
ax.set(xlabel="step", ylabel="learning rate")
ax.legend()
plt.show()

# %% [markdown]
# **Exercise 4.** Take $d_{model} = 512$ and 4,000 steps of warm-up, and do
# without the picture. At which step is the rate highest, and how high is it?
# At which two steps is it half as high? How does the highest rate change if you
# double the warm-up?
#
# <details><summary>Solution</summary>
#
# At step 4,000, where the two terms of the minimum are equal: before it the
# second one is smaller, after it the first. The rate there is
# $(512 \cdot 4000)^{-0.5} \approx 0.0007$. It is half as high at step 2,000,
# halfway up the line, and at step 16,000: four times the steps, half the
# inverse root. Twice the warm-up divides the highest rate by $\sqrt 2$, so a
# longer warm-up also means a lower rate.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
shorter, longer = (
    np.array(kt.TransformerSchedule(512, warmup_steps=warmup)(steps - 1))
    for warmup in (4_000, 8_000)
)
highest = shorter.max()
assert abs(steps[shorter.argmax()] - 4_000) <= 1
assert np.isclose(highest, (512 * 4_000) ** -0.5, rtol=1e-3)
assert round(highest, 4) == 0.0007
for step in (2_000, 16_000):
    assert np.isclose(shorter[step - 1], highest / 2, rtol=1e-3)
assert np.isclose(longer.max(), highest / np.sqrt(2), rtol=1e-3)
print("all holds")

# %% [markdown]
# Does it matter? Train four layers on the same text for 140 steps: once with a
# warm-up of 100 steps to a rate of 0.004, once with that rate from the first
# step on. The dotted line is the loss of a model that knows how frequent each
# token is, and nothing more.

# %%
batches = (
    tf.data.Dataset.from_tensor_slices(((source, target_in), target_out))
    .batch(32, drop_remainder=True)
    .repeat()
)
peak = 0.004
warm = kt.TransformerSchedule(64, warmup_steps=100, scale=peak * 80)
assert np.isclose(warm(99), peak)  # since 80 = (64 * 100) ** 0.5

fig, ax = plt.subplots(figsize=(7, 2.6))
losses = {}
for name, rate in {"warm-up": warm, "no warm-up": peak}.items():
    keras.utils.set_random_seed(1)
    model = kt.Transformer(num_layers=4, **shape)
    model.compile(kt.Adam(rate), loss=kt.SmoothedCrossEntropy(0.0))
    history = model.fit(
        batches, epochs=14, steps_per_epoch=10, shuffle=False, verbose=0
    )
    losses[name] = history.history["loss"]
    ax.plot(range(10, 141, 10), losses[name], label=name)
tokens = np.bincount(target_out[target_out > 0])
shares = tokens[tokens > 0] / tokens.sum()
ax.axhline(-(shares * np.log(shares)).sum(), color="gray", linestyle=":")
ax.set(xlabel="step", ylabel="loss, nats a token")
ax.legend()
plt.show()
assert losses["warm-up"][-1] < losses["no warm-up"][-1] - 0.5

# %% [markdown]
# Without warm-up the model is far behind after the same number of steps.
#
# ## 7. Label smoothing (section 5.4)
#
# The loss does not ask for all probability on the right token. It spreads a
# share $\varepsilon = 0.1$ evenly over all tokens. So for a vocabulary of five
# it wants 0.92 for the right one and 0.02 for each other.

# %%
logits = np.array([[[2.0, -1.0, 0.5, 0.0, 1.0]]], "float32")
target = np.array([[4]])
wanted = np.full(5, 0.1 / 5)
wanted[4] += 0.9
log_probabilities = logits[0, 0] - np.log(np.exp(logits[0, 0]).sum())
by_hand = -(wanted * log_probabilities).sum()

print(f"wanted {wanted}, loss {by_hand:.4f}")
assert np.isclose(kt.SmoothedCrossEntropy(0.1)(target, logits), by_hand)

# %% [markdown]
# So the best possible loss is not 0, and a model that is surer than these
# targets is punished. The paper says that this hurts perplexity and helps BLEU.

# %%
p = np.linspace(0.02, 0.9999, 2_000)
chances = np.stack([(1 - p) / 4] * 4 + [p], axis=-1).astype("float32")
fig, ax = plt.subplots(figsize=(7, 2.6))
for smoothing in (0.0, 0.1, 0.2):
    loss = kt.SmoothedCrossEntropy(smoothing)
    curve = np.array(loss.call(np.full((1, 2_000), 4), np.log(chances)[None]))
    ax.plot(p, curve[0], label=f"ε = {smoothing}")
    best = 1 - smoothing + smoothing / 5
    assert abs(p[curve[0].argmin()] - best) < 0.001
ax.set(xlabel="probability of the right token", ylabel="loss", ylim=(0, 3))
ax.legend()
plt.show()

# %% [markdown]
# Padding does not count: it adds nothing to the sum of the losses, nor to the
# number of tokens that the sum is divided by.

# %%
loss = kt.SmoothedCrossEntropy(0.1)
padded_target = np.array([[4, 0, 0]])
padded_logits = np.repeat(logits, 3, axis=1)

assert np.isclose(loss(padded_target, padded_logits), loss(target, logits))

# %% [markdown]
# ## 8. Counting the parameters of table 3
#
# Count the base model by hand. One matrix of 37,000 by 512 embeds source and
# target and scores the vocabulary (section 3.4). An attention has four matrices
# without bias, a feed-forward network two with bias, a norm a gain and a bias.
# An encoder layer has one attention, one feed-forward network and two norms. A
# decoder layer has two attentions, one feed-forward network and three norms.

# %%
embedding = 37_000 * 512
attention = 4 * 512 * 512
feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
norm = 2 * 512
encoder_layer = attention + feed_forward + 2 * norm
decoder_layer = 2 * attention + feed_forward + 3 * norm
total = embedding + 6 * (encoder_layer + decoder_layer)

base = kt.Transformer.from_preset("base")
print(f"{total:,} by hand, {base.count_params():,} in the model")
assert total == base.count_params() == 63_045_632

# %% [markdown]
# Every row of table 3 is a preset. Here they are beside the paper's figures, in
# millions, where it gives one:

# %%
from keras_transformer.presets import parameters

of_the_paper = {
    "base": 65,
    "B-dk16": 58,
    "B-dk32": 60,
    "C-N2": 36,
    "C-N4": 50,
    "C-N8": 80,
    "C-d256": 28,
    "C-d1024": 168,
    "C-ff1024": 53,
    "C-ff4096": 90,
    "big": 213,
}
assert parameters(kt.PRESETS["base"].model) == total

print("preset     layers d_model  d_ff heads   ours  paper")
for name, paper in of_the_paper.items():
    row = kt.PRESETS[name].model
    ours = parameters(row) / 1e6
    print(
        f"{name:10} {row.num_layers:6} {row.d_model:7} {row.ffn_dim:5} "
        f"{row.num_heads:5} {ours:6.1f} {paper:6}"
    )
    assert 0.93 < ours / paper < 1.01

# %% [markdown]
# The figures are close but not equal. They cannot be equal: the paper does not
# say how large its vocabulary is, only "about 37,000".
#
# That is the whole model. The next notebook shows how text becomes batches,
# batches a trained model, and a model translations: [From text to
# translation](2_from_text_to_translation.ipynb).
