# %% [markdown]
# # Beam search and attention, looked at
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/keras-transformer/keras-transformer/blob/v0.1.0/notebooks/3_beam_search_and_attention.ipynb)
#
# Not run in Colab itself yet.
#
# A model gives probabilities of the next piece, and a search makes a sentence
# of them. We search first by hand, in a model of five words, then with a
# Transformer that this notebook trains. In both you see what the search weighed
# and dropped, and what every head attended to. In [the
# paper](https://arxiv.org/abs/1706.03762), section 3.2 is about attention and
# 6.1 about the search.
#
# 1. A model that one can see through
# 2. Greedy loses
# 3. A beam wins
# 4. The length penalty moves the winner
# 5. A Transformer to look into
# 6. Greedy and beam on real sentences
# 7. The search, looked at
# 8. Attention is a matrix
# 9. Which word belongs to which
# 10. Figures 3 to 5 of the paper
# 11. What a picture does not say
#
# An `assert` checks every claim: if the notebook runs to its end, all hold.
# All of it takes about a minute on two CPU cores.
#
# There are three exercises. Try each in a cell of your own before you unfold
# its solution. The folded cell below checks it.

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
import itertools
import logging
import re

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from IPython.display import display

import keras_transformer as kt

# %% [markdown]
# ## 1. A model that one can see through
#
# The vocabulary has nine entries: five words, and the four that every
# vocabulary of this package begins with, for padding, unknown, begin (`<s>`)
# and end (`</s>`). For each entry that can stand before another, the table has
# the probabilities of what comes next. That is all a search ever sees of a
# model: a function that gives the next probabilities.

# %%
WORDS = ["<pad>", "<unk>", "<s>", "</s>", "the", "a", "cat", "dog", "bird"]
NEXT = {
    "<s>": {"the": 0.55, "a": 0.45},
    "the": {"cat": 0.4, "dog": 0.35, "bird": 0.25},
    "a": {"bird": 0.9, "cat": 0.05, "dog": 0.05},
    "cat": {"</s>": 1.0},
    "dog": {"</s>": 1.0},
    "bird": {"</s>": 1.0},
}


def table_of(words, next_words):
    """Log-probabilities of the next word, a row for each word."""
    table = np.zeros([len(words), len(words)])
    for word, followers in next_words.items():
        for follower, probability in followers.items():
            table[words.index(word), words.index(follower)] = probability
    with np.errstate(divide="ignore"):
        return np.log(table).astype("float32")


def searched(words, next_words, **options):
    """What the package's beam search finds: words and scores, best first."""
    table = table_of(words, next_words)

    def step(ids, position, state):
        return tf.gather(table, ids), state  # (B, W, V)

    found = kt.beam_search(step, (), max_lengths=tf.constant([9]), **options)
    ids, scores = found.ids[0].numpy(), found.scores[0].numpy()
    return [
        ([words[i] for i in row if i > 3], float(score))
        for row, score in zip(ids, scores, strict=True)
    ]


# %% [markdown]
# ## 2. Greedy loses
#
# Greedy decoding takes the likeliest word, then the likeliest after that, and
# never looks back. Here it takes "the", because 0.55 is more than 0.45.

# %%
((greedy, greedy_score),) = searched(WORDS, NEXT, beam_size=1, length_penalty=0)
print(" ".join(greedy), f"{np.exp(greedy_score):.3f}")
assert greedy == ["the", "cat"]

# %% [markdown]
# There are only six sentences, so we can weigh them all. Greedy has missed the
# best one: "a bird" has almost twice the probability.

# %%
sentences = {
    (article, noun): NEXT["<s>"][article] * NEXT[article][noun]
    for article, noun in itertools.product(("the", "a"), ("cat", "dog", "bird"))
}
for sentence, probability in sorted(sentences.items(), key=lambda s: -s[1]):
    print(f"{probability:.3f}", " ".join(sentence))
assert np.isclose(sum(sentences.values()), 1)
assert max(sentences, key=sentences.get) == ("a", "bird")

# %% [markdown]
# ## 3. A beam wins
#
# A beam of two keeps the two best beginnings at every step. "a" survives the
# first step beside "the", and its continuation overtakes all others.

# %%
best, second = searched(WORDS, NEXT, beam_size=2, n_best=2, length_penalty=0)
for words, score in (best, second):
    print(f"{np.exp(score):.3f}", " ".join(words))
assert best[0] == ["a", "bird"]
assert np.isclose(np.exp(best[1]), 0.45 * 0.9)
assert second[0] == greedy

# %% [markdown]
# A wider beam guarantees nothing: it, too, may drop the beginning of the best
# sentence. Only a beam that holds all beginnings is certain to find it.
#
# **Exercise 1.** Make a table like `NEXT` with which a beam of two misses the
# likeliest sentence, and a beam of three finds it. You may add a word to
# `WORDS`. Predict both scores, then call `searched`.
#
# <details><summary>Solution</summary>
#
# The best sentence has to begin with the third best word:
#
# ```python
# MORE_WORDS = [*WORDS, "one"]
# NEXT_OF_THREE = {
#     "<s>": {"the": 0.4, "a": 0.35, "one": 0.25},
#     "the": {"cat": 0.5, "dog": 0.5},
#     "a": {"cat": 0.5, "dog": 0.5},
#     "one": {"bird": 1.0},
#     **{noun: {"</s>": 1.0} for noun in ("cat", "dog", "bird")},
# }
# ```
#
# A beam of two keeps "the" and "a", and ends at 0.4 · 0.5 = 0.2. A beam of
# three keeps "one" as well, and finds "one bird" with 0.25.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
MORE_WORDS = [*WORDS, "one"]
NEXT_OF_THREE = {
    "<s>": {"the": 0.4, "a": 0.35, "one": 0.25},
    "the": {"cat": 0.5, "dog": 0.5},
    "a": {"cat": 0.5, "dog": 0.5},
    "one": {"bird": 1.0},
    **{noun: {"</s>": 1.0} for noun in ("cat", "dog", "bird")},
}
for beam_size, expected in ((2, 0.4 * 0.5), (3, 0.25)):
    ((words, score),) = searched(
        MORE_WORDS,
        NEXT_OF_THREE,
        beam_size=beam_size,
        n_best=1,
        length_penalty=0,
    )
    assert np.isclose(np.exp(score), expected)
assert words == ["one", "bird"]
print("all holds")

# %% [markdown]
# ## 4. The length penalty moves the winner
#
# Every further word multiplies by a probability below one, so a search for the
# likeliest sentence prefers short ones. The paper divides the log-probability
# by ((5 + length) / 6)^α with α = 0.6 (Wu et al. 2016, equation 14). Here a
# short and a long answer compete.

# %%
ANSWERS = ["<pad>", "<unk>", "<s>", "</s>", "yes", ",", "of", "course"]
NEXT_ANSWER = {
    "<s>": {"yes": 1.0},
    "yes": {"</s>": 0.4, ",": 0.6},
    ",": {"of": 0.8, "course": 0.2},
    "of": {"course": 0.9, "of": 0.1},
    "course": {"</s>": 0.9, ",": 0.1},
}
winners = {
    alpha: searched(ANSWERS, NEXT_ANSWER, beam_size=3, length_penalty=alpha)[0]
    for alpha in (0.0, 0.6)
}
for alpha, (words, score) in winners.items():
    print(f"alpha {alpha}: {' '.join(words)}  (score {score:.3f})")
assert winners[0.0][0] == ["yes"]
assert winners[0.6][0] == ["yes", ",", "of", "course"]

# %% [markdown]
# Drawn over α, with both lengths counting the end token, the lines cross below
# α = 0.1. From there on the long answer wins.

# %%
alphas = np.linspace(0, 1, 101)
short = np.log(0.4) / ((5 + 2) / 6) ** alphas
long = np.log(0.6 * 0.8 * 0.9 * 0.9) / ((5 + 5) / 6) ** alphas
crossing = alphas[np.argmax(long > short)]

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(alphas, short, label="yes")
axes.plot(alphas, long, label="yes, of course")
axes.axvline(0.6, color="grey", linestyle=":", label="the paper's α")
axes.set_xlabel("α")
axes.set_ylabel("score, nats")
axes.legend()
plt.show()
assert 0 < crossing < 0.1
assert np.isclose(winners[0.6][1], long[60], rtol=1e-5)

# %% [markdown]
# **Exercise 2.** Where exactly do they cross? Set both scores equal and solve
# for α. Then make *yes* surer of itself: after it, give the end 0.5 instead of
# 0.4, and the comma 0.5. Who wins with the paper's α?
#
# <details><summary>Solution</summary>
#
# With S and L for the two log-probabilities, S / (7/6)^α = L / (10/6)^α means
# (10/7)^α = L / S, so α = ln(L / S) / ln(10 / 7).
#
# - As it is: S = ln 0.4 and L = ln(0.6 · 0.8 · 0.9 · 0.9), and α = 0.086.
# - With 0.5: S = ln 0.5 and L = ln(0.5 · 0.8 · 0.9 · 0.9), and α = 1.36. The
#   paper's 0.6 is far below that, so *yes* wins.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
for end, expected in ((0.4, 0.086), (0.5, 1.36)):
    log_short = np.log(end)
    log_long = np.log((1 - end) * 0.8 * 0.9 * 0.9)
    crossing = np.log(log_long / log_short) / np.log(10 / 7)
    assert np.isclose(crossing, expected, atol=0.005)
    surer = {**NEXT_ANSWER, "yes": {"</s>": end, ",": 1 - end}}
    below, above, of_the_paper = (
        searched(ANSWERS, surer, beam_size=3, length_penalty=alpha)[0][0]
        for alpha in (crossing - 0.01, crossing + 0.01, 0.6)
    )
    assert (len(below), len(above)) == (1, 4)
assert of_the_paper == ["yes"]
print("all holds")

# %% [markdown]
# ## 5. A Transformer to look into
#
# The demo corpus holds numbers, dates, times and amounts in English and German.
# After a few hundred updates, a small model translates a good part of them
# without a mistake.

# %%
logging.getLogger("keras_transformer").setLevel(logging.WARNING)
keras.utils.set_random_seed(1)
run = kt.train(
    "runs/looked-at",
    corpus="demo",
    preset="demo",  # And what differs from it:
    steps=500,
    vocab_size=600,
    warmup_steps=300,
    learning_rate_scale=0.35,
    validation_steps=250,
)
translator = run.translator()
test = list(kt.open_corpus("demo").pairs("test"))
sources, references = zip(*test, strict=True)
translations = translator.translate(sources[:100])
right = np.mean(np.array(translations) == np.array(references[:100]))
print(f"{right:.0%} of 100 unseen phrases exactly right")
assert right > 0.3

# %% [markdown]
# ## 6. Greedy and beam on real sentences
#
# We translate all 500 unseen phrases, once greedily and once with a beam of
# four. A score is the log-probability divided as above; both searches ask the
# same model.

# %%
greedy = translator.translate(sources, n_best=1, beam_size=1)
beam = translator.translate(sources, n_best=4, beam_size=4)
greedy_scores = np.array([found[0].score for found in greedy])
beam_scores = np.array([found[0].score for found in beam])
better = np.mean(beam_scores > greedy_scores + 1e-5)
worse = np.mean(beam_scores < greedy_scores - 1e-5)
print(f"the beam's score is higher for {better:.1%}, lower for {worse:.1%}")
assert better > 2 * worse

# %% [markdown]
# Where the beam's lead is largest, greedy has often got stuck: it repeats one
# piece over and over, and cannot go back.


# %%
def most_often(text):
    """How often the piece that a text has most often occurs in it."""
    return np.bincount(translator.tokenizer.tokenize([text])[0]).max()


gained_most = np.argsort(greedy_scores - beam_scores)[:20]
for i in gained_most[:3]:
    print(f"source  {sources[i]}")
    print(f"greedy  {greedy[i][0].score:6.2f}  {greedy[i][0].text[:70]}")
    print(f"beam    {beam[i][0].score:6.2f}  {beam[i][0].text[:70]}\n")

repeats = {
    name: int(sum(most_often(texts[i]) >= 6 for i in gained_most))
    for name, texts in {
        "greedy": [found[0].text for found in greedy],
        "beam": [found[0].text for found in beam],
        "reference": references,
    }.items()
}
print("of these 20, so many have a piece six times or more:", repeats)
assert repeats["greedy"] >= 5 > repeats["reference"]
assert repeats["greedy"] > repeats["beam"]

# %% [markdown]
# ## 7. The search, looked at
#
# `explain` translates as `translate` does and remembers everything: every
# hypothesis that was weighed, why it ended, and the attention with which each
# piece was written. A notebook draws it. Click on any node of the tree, also on
# one that was pruned, to see what it looked at; the arrow keys go from step to
# step.

# %%
text = "The lamp costs two hundred and twelve euros and seven cents."
explained = translator.explain(text)
assert explained.translations[0] == translator.translate([text])[0]
explained

# %% [markdown]
# Where no script runs, as on GitHub, `plot` draws a heat map instead: the mean
# attention of each target piece, row by row, to the pieces of the source.

# %%
explained.plot()

# %% [markdown]
# A node of the tree is a piece, with the score of the hypothesis up to it and
# what became of it. You can read every returned hypothesis backwards from its
# leaf.

# %%
fates = [node.fate.value for node in explained.nodes]
for fate in sorted(set(fates)):
    print(f"{fates.count(fate):4}  {fate}")
assert fates.count("returned") == len(explained.translations) == 4

for text_found, leaf in zip(
    explained.translations, explained.leaves, strict=True
):
    node = explained.nodes[leaf]
    tokens = node.step + 1
    print(f"{node.score:.3f}  {text_found}")
    assert np.isclose(node.score, node.log_prob / ((5 + tokens) / 6) ** 0.6)

# %% [markdown]
# ## 8. Attention is a matrix
#
# For each layer and head, matrices show what each target piece looked at in the
# source ("cross") and in the text before it ("decoder"), and what each source
# piece looked at in the source ("encoder"). Row t is the step that wrote piece
# t, so the decoder never looks ahead: its matrices are triangles.

# %%
attention = explained.attention()
for name in ("encoder", "decoder", "cross"):
    weights = getattr(attention, name)  # (layers, heads, rows, columns)
    print(f"{name:8}", weights.shape)
    assert np.allclose(weights.sum(axis=-1), 1, atol=1e-5)
assert np.all(np.triu(attention.decoder, 1) == 0)

# %%
figure, panels = plt.subplots(2, 4, figsize=(9, 5), layout="constrained")
for (layer, head), axes in np.ndenumerate(panels):
    axes.imshow(attention.cross[layer, head], cmap="cividis", vmin=0, vmax=1)
    axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
figure.supxlabel("source")
figure.supylabel("target")
plt.show()

# %% [markdown]
# The heads do not all do the same. The entropy of a row says how widely a head
# looks: 0 bits at a single piece, log2(S) bits at all S pieces equally.

# %%
weights = attention.cross
entropies = -np.sum(weights * np.log2(weights + 1e-12), axis=-1).mean(axis=-1)
print(np.round(entropies, 1), "bits of", round(np.log2(weights.shape[-1]), 1))
assert np.ptp(entropies) > 0.1
assert np.all(entropies < np.log2(weights.shape[-1]))

# %% [markdown]
# **Exercise 3.** A head gives four pieces the weights ½, ¼, ⅛ and ⅛. Work out
# the entropy of this row. How high could it be with four pieces? Then turn the
# entropies above into numbers that are easier to read: if a head looked at
# several pieces equally, how many would give its entropy?
#
# <details><summary>Solution</summary>
#
# ½ · 1 + ¼ · 2 + ⅛ · 3 + ⅛ · 3 = 1.75 bits, of log2(4) = 2 at most. An entropy
# of b bits is that of 2^b equally weighted pieces, here of 2^1.75 = 3.4. So the
# numbers are `2**entropies`.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
four = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 8])
bits = -np.sum(four * np.log2(four))
assert bits == 1.75 < np.log2(4)
assert round(2**bits, 1) == 3.4
assert np.all(2**entropies < weights.shape[-1])
print("all holds")

# %% [markdown]
# ## 9. Which word belongs to which
#
# Average the attention over all layers and heads, then add it up over the
# pieces of a source word and a target word. For each target word, this gives
# the source word that it looked at most: a word alignment, for free.

# %%
(pairs,) = translator.align([text], explained.translations[:1])
source_words = text.split()
target_words = explained.translations[0].split()
for source_word, target_word in pairs:
    print(f"{target_words[target_word]:28} {source_words[source_word]}")

# %% [markdown]
# It need not be right. Heads look wherever it helps the prediction, which may
# not be the word that a dictionary gives. Over all test phrases the
# words below are found much more often than by chance, but not always.

# %%
DICTIONARY = {
    "book": "Buch",
    "cents.": "Cent.",
    "class": "Kurs",
    "clock": "Uhr",
    "dollars": "Dollar",
    "euros": "Euro",
    "lamp": "Lampe",
    "table": "Tisch",
    "train": "Zug",
}
hits, chances = [], []
for (source, target), pairs in zip(
    test, translator.align(sources, references), strict=True
):
    source_words, target_words = source.split(), target.split()
    looked_at = {t: source_words[s] for s, t in pairs}
    for english, german in DICTIONARY.items():
        if english in source_words and german in target_words:
            hits.append(looked_at[target_words.index(german)] == english)
            chances.append(1 / len(source_words))
found, chance = np.mean(hits), np.mean(chances)
print(f"{found:.0%} of {len(hits)} words found, by chance {chance:.0%}")
assert len(hits) > 300
assert 2 * chance < found < 1

# %% [markdown]
# ## 10. Figures 3 to 5 of the paper
#
# The paper draws self-attention of the encoder as lines between words, a colour
# for each head; the viewer above does so too, and saves each figure. Figure 3
# shows one word and all heads of a layer. In a heat map it is the row of that
# word, here in the mean of the heads:

# %%
explained.plot("encoder", layer=-1)

# %% [markdown]
# Figure 4 shows one head in full:

# %%
explained.plot("encoder", layer=-1, head=0)

# %% [markdown]
# Figure 5 shows two heads of one layer that have learnt to look at different
# things. We take the two that are furthest apart, and compare with a model of
# the same shape that has learnt nothing.


# %%
def apart(weights, one, other):
    """The share of attention that two heads give to different pieces."""
    return np.abs(weights[one] - weights[other]).sum(axis=-1).mean() / 2


untrained = kt.Transformer.from_config(translator.model.get_config())
ids = translator.tokenizer.tokenize([text]).to_tensor()
unlearnt = untrained.attention_weights(ids, ids)["encoder"][-1][0].numpy()
shares = {
    name: {
        pair: apart(weights, *pair)
        for pair in itertools.combinations(range(4), 2)
    }
    for name, weights in {
        "trained": attention.encoder[-1],
        "untrained": unlearnt,
    }.items()
}
for name, share in shares.items():
    print(f"{name}: the two furthest apart share {1 - max(share.values()):.0%}")
furthest = max(shares["trained"], key=shares["trained"].get)
for head in furthest:
    display(explained.plot("encoder", layer=-1, head=head))

assert max(shares["trained"].values()) > 1.2 * max(shares["untrained"].values())

# %% [markdown]
# ## 11. What a picture does not say
#
# Attention weights show where information could come from, not why a word was
# chosen: other weights may give the same translation (Jain and Wallace 2019,
# [Attention is not Explanation](https://arxiv.org/abs/1902.10186); an answer is
# Wiegreffe and Pinter 2019,
# [Attention is not not Explanation](https://arxiv.org/abs/1908.04626)).
#
# `explained.save_html("page.html")` keeps the viewer as a page that needs no
# network. So does the command `keras-transformer view --run-dir runs/looked-at
# "TEXT" --output other.html`.

# %%
explained.save_html("page.html")
page = open("page.html", encoding="utf-8").read()
print(f"{len(page.encode()) / 1000:.0f} kB")

# Other files that it loads would stand here.
files = re.findall(r"""\b(?:src|href)=["'](.*?)["']""", page)
assert all(name.startswith(("data:", "#")) for name in files)
# A name that SVG has, and links to papers, for those who click on them.
for address in sorted(set(re.findall(r"""https?://[^\s"'<]+""", page))):
    print(address)
    assert address.startswith(("http://www.w3.org/", "https://arxiv.org/abs/"))

# %% [markdown]
# The next notebook is about a corpus of your own: [Your own corpus, on Colab's
# GPU, to TensorFlow Serving](4_your_corpus_to_serving.ipynb).
