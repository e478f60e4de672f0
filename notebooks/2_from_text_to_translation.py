# %% [markdown]
# # From text to translation
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/keras-transformer/keras-transformer/blob/v0.1.0/notebooks/2_from_text_to_translation.ipynb)
#
# Not run in Colab itself yet.
#
# This notebook follows sentences on their way from text to a translation and
# its score. Some things go wrong on the way, as they do in every such project,
# and we look at each of them. You need to know Python and a little Keras.
#
# 1. Text
# 2. Pieces
# 3. Batches
# 4. Teacher forcing
# 5. A model, and an epoch
# 6. Why accuracy misleads
# 7. A piece that repeats and repeats
# 8. A whole training: cut off, and resumed
# 9. The average of the last checkpoints
# 10. The score
#
# Every claim is an `assert`: if the notebook runs to its end, all of them hold.
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
import pathlib
import shutil
import signal
import sys

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.translation import evaluation

keras.utils.set_random_seed(1)
plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})
# It warns of many graphs; with several models in one notebook there are many.
logging.getLogger("tensorflow").setLevel(logging.ERROR)
# What this notebook left here when it ran before would go on, not begin.
for run_dir in ("runs/whole", "runs/broken"):
    shutil.rmtree(run_dir, ignore_errors=True)

# %% [markdown]
# ## 1. Text
#
# A corpus is pairs of sentences that mean the same. The built-in one needs no
# download: numbers, dates, times and prices in English and German. It has
# 20,000 pairs to learn from, and 500 to check the model on meanwhile (`val`). A
# third split, `test`, stays closed until the end.

# %%
corpus = kt.open_corpus("demo", source_lang="en", target_lang="de")
train = list(corpus.pairs("train"))
val = list(corpus.pairs("val"))

for source, target in val[:7]:
    print(f"{source}\n    {target}")

# %% [markdown]
# The model must not have seen what it is judged by.

# %%
assert (len(train), len(val)) == (20_000, 500)
assert not {source for source, _ in train} & {source for source, _ in val}
assert not {target for _, target in train} & {target for _, target in val}

# %% [markdown]
# ## 2. Pieces
#
# German writes *dreihundertfünfzehn* as one word, and a list of all such words
# would never end. So the vocabulary is made of *pieces*. At first they are
# single letters. Then, over and over, the two pieces that most often stand side
# by side become one (byte-pair encoding, section 5.1). Both languages share the
# 600 pieces.

# %%
tokenizer = kt.Tokenizer.train(
    corpus.sentences("train"), 600, "tokenizer.model"
)
example, reference = val[2]
for text in (example, reference):
    ids = tokenizer.tokenize([text])[0].numpy()
    print(ids)
    print(*tokenizer.pieces(ids), sep=" · ")

# %% [markdown]
# "▁" stands for a space, and every sentence ends with the piece `</s>`. The
# first four ids have a role of their own: padding, unknown, begin and end. The
# next 256 are the bytes. They spell whatever has no piece, so nothing is ever
# unknown.

# %%
print(*tokenizer.pieces(range(4)))
print(*tokenizer.pieces(range(260, 300)))
assert tokenizer.pieces(range(4, 260)) == [f"<0x{i:02X}>" for i in range(256)]

polish = "7 złotych"
ids = tokenizer.tokenize([polish])
print(*tokenizer.pieces(ids[0].numpy()), sep=" · ")

assert tokenizer.detokenize(ids)[0].numpy().decode() == polish
assert UNK_ID not in ids[0].numpy()

# %% [markdown]
# ## 3. Batches
#
# Sentences differ in length, and a tensor is a rectangle, so the rest of each
# row is padding. To waste little, a batch takes sentences of similar length,
# and as many as fit into a budget of tokens: many short ones or few long ones.

# %%
batches = kt.batches(train, tokenizer, batch_tokens=2_048)
looked_at = list(itertools.islice(batches, 5))

print(f"{len(batches)} batches an epoch; five of them:")
for (source_ids, _), target_out in looked_at:
    rows, source_length = source_ids.shape
    target_length = target_out.shape[1]
    print(f"{rows:3} rows × {source_length:2} source, {target_length:2} target")
    assert rows * source_length <= 2_048 and rows * target_length <= 2_048

# %% [markdown]
# Below, white is padding. On the left is one of these batches. On the right are
# as many sentences in the order of the file: what a batch would look like if it
# ignored length.

# %%
(source_ids, target_in), target_out = looked_at[0]
unsorted = [source for source, _ in train[: len(source_ids)]]
in_file_order = tokenizer.tokenize(unsorted).to_tensor()

figure, panels = plt.subplots(1, 2, figsize=(8, 3.2))
shares = []
for panel, ids, title in zip(
    panels,
    (source_ids.numpy(), in_file_order.numpy()),
    ("similar lengths", "any lengths"),
    strict=True,
):
    shares.append((ids == PAD_ID).mean())
    panel.imshow(ids != PAD_ID, cmap="Blues", vmax=1.5, aspect="auto")
    panel.set(title=f"{title}: {shares[-1]:.0%} padding", xlabel="position")
panels[0].set_ylabel("sentence")
plt.show()

assert shares[0] < 0.2 < shares[1]

# %% [markdown]
# **Exercise 1.** Four sentences have 3, 12, 4 and 11 pieces, and a batch takes
# two. How many positions of padding do the two batches have in this order? And
# if you sort the sentences by length first? Then write a function that counts
# this for any list of lengths, and try it on the English sentences of `train`
# in batches of 64.
#
# <details><summary>Solution</summary>
#
# In this order 9 + 7 = 16, sorted 1 + 1 = 2.
#
# ```python
# def padding(lengths, rows):
#     """The positions of padding in batches of so many rows."""
#     starts = range(0, len(lengths), rows)
#     together = [lengths[start : start + rows] for start in starts]
#     return sum(max(batch) * len(batch) - sum(batch) for batch in together)
# ```
#
# In the order of the file, `train` has about one position of padding for every
# two pieces; sorted, fewer than one for a hundred.
#
# </details>


# %% jupyter={"source_hidden": true} tags=["hide-input"]
def padding(lengths, rows):
    """The positions of padding in batches of so many rows."""
    starts = range(0, len(lengths), rows)
    together = [lengths[start : start + rows] for start in starts]
    return sum(max(batch) * len(batch) - sum(batch) for batch in together)


assert padding([3, 12, 4, 11], rows=2) == 9 + 7
assert padding(sorted([3, 12, 4, 11]), rows=2) == 1 + 1

english = tokenizer.tokenize([pair[0] for pair in train]).row_lengths()
lengths = english.numpy().tolist()
in_order, in_length = padding(lengths, 64), padding(sorted(lengths), 64)
assert in_order > 0.4 * sum(lengths)
assert in_length < 0.01 * sum(lengths)
print("all holds")

# %% [markdown]
# ## 4. Teacher forcing
#
# The decoder writes one piece after another, each in view of those before it.
# To learn this it need not write anything, since the right translation is
# known. It reads that translation shifted by one place (`target_in`, which
# starts with the begin piece), and at each place has to name the next piece
# (`target_out`). After every step, the teacher forces it back onto the right
# path.

# %%
row = 0
length = int((target_out[row] != PAD_ID).numpy().sum())
read = tokenizer.pieces(target_in[row, :length].numpy())
to_write = tokenizer.pieces(target_out[row, :length].numpy())
for place, (seen, wanted) in enumerate(zip(read, to_write, strict=True)):
    print(f"{place:3}   reads {seen:>12}   has to write {wanted}")

assert read[0] == "<s>" and to_write[-1] == "</s>"
assert read[1:] == to_write[:-1]

# %% [markdown]
# All places are learnt at once, so something must keep each of them from
# reading its own answer: the mask of section 3.2.3. In the picture, each row is
# a place. Its answer stands in the margin, and what it may read is dark. Each
# answer may be read only from the next row on.

# %%
mask = keras.ops.convert_to_numpy(kt.masks.target_mask(target_in))
visible = mask[row, 0, :length, :length]

figure, axes = plt.subplots(figsize=(5.5, 5))
axes.imshow(visible, cmap="Blues", vmax=1.5)
axes.set_xticks(range(length), read, rotation=90)
axes.set_yticks(range(length), to_write)
axes.set(xlabel="may be read", ylabel="has to be written")
plt.show()

np.testing.assert_array_equal(visible, np.tril(np.ones_like(visible)))

# %% [markdown]
# ## 5. A model, and an epoch
#
# The model is the paper's, made small: two layers instead of six, a width of 64
# instead of 512. Adam, the schedule of equation 3 and the smoothed loss are
# those of section 5. The rest is Keras.
#
# `kt.batches` shuffles by itself in every epoch, and `shuffle=False` tells
# Keras not to. `jit_compile=False` matters only on a GPU, where Keras would
# compile every new shape of a batch.

# %%
model = kt.Transformer(
    vocab_size=tokenizer.vocab_size,
    num_layers=2,
    d_model=64,
    num_heads=4,
    ffn_dim=128,
    dropout=0.0,
)
model.compile(
    kt.Adam(kt.TransformerSchedule(64, warmup_steps=200, scale=0.5)),
    loss=kt.SmoothedCrossEntropy(0.1),
    metrics=[kt.TokenAccuracy()],
    jit_compile=False,
)
val_batches = kt.batches(val, tokenizer, shuffle=False, max_length=None)
log = model.fit(
    batches,
    epochs=1,
    validation_data=val_batches,
    shuffle=False,
    verbose=0,
).history
for name, (value,) in log.items():
    print(f"{name:20} {value:.3f}")

early_accuracy = log["val_token_accuracy"][0]
assert early_accuracy > 0.5

# %% [markdown]
# **Exercise 2.** What is a good loss? It is smoothed (ε = 0.1): for a
# vocabulary of 600 it wants 0.9 + 0.1 / 600 for the right piece and 0.1 / 600
# for each other one, and sums −wanted · ln(probability). Work out the loss of
# one piece by hand, in nats, for three models:
#
# - one that gives all 600 pieces the same probability;
# - one that gives the right piece 0.7, and the others equal parts of 0.3;
# - one that gives every piece exactly what is wanted.
#
# <details><summary>Solution</summary>
#
# - ln 600 = 6.40, whichever piece is right.
# - About 0.9002 · 0.357 + 0.0998 · 7.599 = 1.08. The 599 others are wanted with
#   0.0998 together, and each gets 0.3 / 599, of which −ln is 7.599.
# - About 0.9002 · 0.105 + 0.0998 · 8.700 = 0.96. No model can do better, so no
#   curve of this loss ever comes near 0.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
wishes = np.full(600, 0.1 / 600)
wishes[7] += 0.9  # Say that piece 7 is right.
sure = np.full(600, 0.3 / 599)
sure[7] = 0.7
for chances, expected in (
    (np.full(600, 1 / 600), 6.40),
    (sure, 1.08),
    (wishes, 0.96),
):
    assert np.isclose(chances.sum(), 1)
    one_loss = -(wishes * np.log(chances)).sum()
    of_the_package = kt.SmoothedCrossEntropy(0.1)(
        np.array([[7]]), np.log(chances)[None, None].astype("float32")
    )
    assert np.isclose(one_loss, of_the_package, rtol=1e-4)
    assert round(one_loss, 2) == expected
assert tokenizer.vocab_size == 600
assert log["val_loss"][0] > one_loss
print("all holds")

# %% [markdown]
# After one epoch the model names more than half of the pieces right, in
# sentences that it has never seen. Has it learnt to translate?

# %%
translator = kt.Translator(model, tokenizer)
sources, references = zip(*val, strict=True)
translations = translator.translate(sources, beam_size=1)

for source, translation in itertools.islice(
    zip(sources, translations, strict=True), 7
):
    print(f"{source}\n    {translation}")

early_bleu = evaluation.bleu(translations, references).value
right = np.mean(np.array(translations) == np.array(references))
print(f"\naccuracy {early_accuracy:.0%}, BLEU {early_bleu:.1f} of 100,")
print(f"sentences that are right from end to end: {right:.0%}")

# %% [markdown]
# It has not. The translations are German, but they seldom say what the source
# says. BLEU compares what was *written* with the reference, in runs of up to
# four words, so it sees that. The accuracy does not.

# %%
assert early_bleu < 40 and right < 0.25

# %% [markdown]
# ## 6. Why accuracy misleads
#
# Under teacher forcing the model always has the right beginning at hand, and
# that alone tells much. In the training text *neunzehnhundertacht* mostly goes
# on with *und*. A model that knows this is mostly right, and need not read the
# source.

# %%
beginning = "neunzehnhundertacht"
rests = [
    target.partition(beginning)[2] for _, target in train if beginning in target
]
with_und = sum(rest.startswith("und") for rest in rests)
print(f"{beginning}: {with_und} of {len(rests)} go on with und")

assert with_und > 0.7 * len(rests)

# %% [markdown]
# How much of the accuracy is of this kind? We ask again, but give the model the
# source of *another* sentence.

# %%
wrong_sources = sources[1:] + sources[:1]
blind = kt.batches(
    list(zip(wrong_sources, references, strict=True)),
    tokenizer,
    shuffle=False,
    max_length=None,
)
blind_accuracy = model.evaluate(blind, verbose=0, return_dict=True)[
    "token_accuracy"
]
wrong_translations = translations[1:] + translations[:1]
blind_bleu = evaluation.bleu(wrong_translations, references).value

print("                 its own source   another's")
print(f"token accuracy   {early_accuracy:14.0%}   {blind_accuracy:9.0%}")
print(f"BLEU             {early_bleu:14.1f}   {blind_bleu:9.1f}")

assert blind_accuracy > early_accuracy / 3
assert blind_bleu < early_bleu / 3

# %% [markdown]
# Much of the accuracy needs no source: it is knowledge of German numbers and
# dates. BLEU falls to almost nothing, as it should.
#
# The accuracy also ignores what follows from a mistake. The teacher takes it
# back, but a model that translates alone has to go on from it. Here is a
# sentence both ways.

# %%
ids = tokenizer.tokenize([sources[0], references[0]])
source_row, target_row = (ids[i].numpy()[None] for i in (0, 1))
read_row = np.concatenate(
    [[[BOS_ID]], target_row[:, :-1]], axis=1
)  # Begin first.
logits = keras.ops.convert_to_numpy(model((source_row, read_row)))
guesses = logits.argmax(-1)

print("source             ", sources[0])
print("the right pieces   ", *tokenizer.pieces(target_row[0]))
print("its guess for each ", *tokenizer.pieces(guesses[0]))
print("on its own         ", translations[0])

# %% [markdown]
# After another epoch some sentences are right. From here on we trust BLEU.

# %%
log = model.fit(
    batches, epochs=1, validation_data=val_batches, shuffle=False, verbose=0
).history
accuracy = log["val_token_accuracy"][0]
translations = translator.translate(sources, beam_size=1)
bleu = evaluation.bleu(translations, references).value
for source, translation in itertools.islice(
    zip(sources, translations, strict=True), 7
):
    print(f"{source}\n    {translation}")
print(f"\naccuracy {early_accuracy:.0%} → {accuracy:.0%}")
print(f"BLEU     {early_bleu:.1f} → {bleu:.1f}")

assert bleu > 1.5 * early_bleu

# %% [markdown]
# ## 7. A piece that repeats and repeats
#
# Some of these translations do not end. `groupby` finds the longest run of one
# piece in each.


# %%
def longest_run(text):
    """The longest run of a piece: how often, where, and its id."""
    ids = tokenizer.tokenize([text])[0].numpy().tolist()
    runs, place = [], 0
    for piece_id, group in itertools.groupby(ids):
        count = len(list(group))
        runs.append((count, place, piece_id))
        place += count
    return max(runs, key=lambda run: run[0])


runs = [longest_run(text) for text in translations]
# The longest of those that came after a beginning.
worst = max(range(len(runs)), key=lambda i: (runs[i][1] >= 3, runs[i][0]))
count, begin, piece_id = runs[worst]
piece = tokenizer.pieces([piece_id])[0]
looping = sum(count >= 5 for count, _, _ in runs)

print(
    f"{looping} of {len(runs)} translations repeat a piece five times or more"
)
print("source      ", sources[worst])
print("reference   ", references[worst])
print("translation ", translations[worst])
print(f"piece {piece!r}, {count} times from place {begin} on")

assert count >= 8 > max(longest_run(text)[0] for text in references)

# %% [markdown]
# How sure was the model? We let it read what it wrote, and ask at each place
# for the probability of that piece, and of the end.

# %%
ids = tokenizer.tokenize([sources[worst], translations[worst]])
source_row, target_row = (ids[i].numpy()[None] for i in (0, 1))
read_row = np.concatenate([[[BOS_ID]], target_row[:, :-1]], axis=1)
probabilities = keras.ops.convert_to_numpy(
    keras.ops.softmax(model((source_row, read_row)))
)[0]

figure, axes = plt.subplots(figsize=(8, 2.8))
axes.axvspan(begin, begin + count - 1, alpha=0.15, label="the run")
axes.plot(probabilities[:, piece_id], marker=".", label=f"piece {piece!r}")
axes.plot(probabilities[:, EOS_ID], marker=".", label="end")
axes.set(xlabel="place in the translation", ylabel="probability")
axes.legend()
plt.show()

in_run = probabilities[begin : begin + count]
assert np.median(in_run[:, piece_id]) > np.median(in_run[:, EOS_ID])

# %% [markdown]
# The model need not be sure of a piece to go on for ever: greedy search takes
# the likeliest one, and that is never the end.
#
# Now look at its attention to the source, the mean over layers and heads,
# starting a few places before the run. While the model repeats itself, its
# attention stands still. All that changes from step to step is the position:
# the piece written just before is always the same.

# %%
attention = translator.explain(sources[worst], beam_size=1).attention()
looks = attention.cross.mean(axis=(0, 1))
shown = slice(max(0, begin - 6), begin + 16)

figure, axes = plt.subplots(figsize=(8, 4.5))
axes.imshow(looks[shown].T, cmap="viridis", aspect="auto")
pieces = attention.target_pieces[shown]
axes.set_xticks(range(len(pieces)), pieces, rotation=45)
axes.set_yticks(range(looks.shape[1]), attention.source_pieces)
axes.set(xlabel="written", ylabel="looked at")
plt.show()

# How far the attention moves from each step to the next.
moves = np.abs(np.diff(looks, axis=0)).sum(axis=1)
inside = moves[begin : begin + count - 1].mean()
before = moves[:begin].mean()
print(f"moved per step: {before:.2f} before the run, {inside:.2f} in it")
assert inside < before / 2

# %% [markdown]
# What ends it, then? Not the model: the search stops every translation that has
# 50 pieces more than its source.

# %%
explained = translator.explain(sources[worst], beam_size=1)
last = explained.nodes[explained.leaves[0]]
print(f"ended by the {last.ends_with} after {last.step + 1} pieces,")
print(f"with {len(explained.source_pieces)} in the source")

assert last.ends_with == "limit"
assert last.step + 1 == len(explained.source_pieces) + 50

# %% [markdown]
# ### What helps
#
# `no_repeat_ngram=3` forbids the search to write the same three pieces in a row
# a second time. No loop is left.

# %%
unrepeated = translator.translate(sources, beam_size=1, no_repeat_ngram=3)
print("without ", translations[worst])
print("with    ", unrepeated[worst])
unrepeated_bleu = evaluation.bleu(unrepeated, references).value
print(f"BLEU {bleu:.1f} → {unrepeated_bleu:.1f}")

assert max(longest_run(text)[0] for text in unrepeated) <= 3
assert abs(unrepeated_bleu - bleu) < 10

# %% [markdown]
# But this treats the symptom. A model that does not know what to say is not
# helped by being told what not to say. And a few sentences *must* repeat
# themselves: now no model can write them, however well it is trained.


# %%
def repeats_three(ids):
    """Whether three pieces in a row occur twice."""
    threes = list(zip(ids, ids[1:], ids[2:], strict=False))
    return len(set(threes)) < len(threes)


ids_of_all = tokenizer.tokenize([target for _, target in train]).to_list()
barred = [
    pair
    for pair, ids in zip(train, ids_of_all, strict=True)
    if repeats_three(ids)
]
for source, target in barred:
    print(f"{source}\n    {target}")

tried = translator.translate([s for s, _ in barred], no_repeat_ngram=3)
assert barred and not {target for _, target in barred} & set(tried)

# %% [markdown]
# More training helps without such a price: a model that has learnt to read the
# source knows what comes next. So we train again, for longer, and count once
# more in section 9.

# %% [markdown]
# ## 8. A whole training
#
# `kt.train` does all of the above, and what a long training needs besides:
# checkpoints, validation, a learning curve, an average of weights at the end.
# It keeps it all in a *run directory*. The command line calls it too.
#
# `kt.train` logs all of that with times, which differ with every machine.
# `quiet` lets through only what the log says about interruptions; leave it out
# to see everything.

# %%
quiet = logging.StreamHandler(sys.stdout)
quiet.addFilter(
    lambda record: record.getMessage().startswith(("Resuming", "Stopped"))
)
logging.getLogger("keras_transformer").addHandler(quiet)

settings = dict(
    corpus="demo",
    preset="demo",  # And what differs from it:
    vocab_size=600,
    d_model=64,
    ffn_dim=128,
    warmup_steps=200,
    validation_steps=50,
    checkpoint_every="10",
    keep_checkpoints=30,
)
whole = kt.train("runs/whole", steps=50, **settings)

# %% [markdown]
# ### Cut off
#
# Training takes hours, and something always gets in the way: a notebook's stop
# button, or somebody who needs the machine. Here a callback presses the button,
# Ctrl-C, after update 25 of 50.

# %%
press_stop = keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda batch, logs: (
        signal.raise_signal(signal.SIGINT) if batch == 24 else None
    )
)
try:
    kt.train("runs/broken", steps=50, callbacks=[press_stop], **settings)
except KeyboardInterrupt:
    print("KeyboardInterrupt")

checkpoints = sorted(pathlib.Path("runs/broken/checkpoints").iterdir())
print(*(path.name for path in checkpoints), sep="\n")

stopped_after = int(checkpoints[-1].name.removeprefix("step-"))
assert 25 <= stopped_after < 30

# %% [markdown]
# The last step was finished and a checkpoint written. The same call again goes
# on from there, with the weights, the optimizer's moments and the place in the
# data.

# %%
broken = kt.train("runs/broken", steps=50, **settings)

# %% [markdown]
# It ends with the same weights as the run that nothing interrupted, bit for bit
# on a CPU. (A GPU may add numbers in another order, which rounds differently.)

# %%
weights, resumed = (
    run.translator(average=1).model.get_weights() for run in (whole, broken)
)
largest = max(
    float(np.abs(a - b).max()) for a, b in zip(weights, resumed, strict=True)
)
print("largest difference of a weight:", largest)
assert largest == 0 or tf.config.list_physical_devices("GPU")

# %% [markdown]
# ### Training further
#
# A run that has ended continues, too, if you ask for more steps.

# %%
run = kt.train("runs/whole", steps=400, **settings)

# %% [markdown]
# `run.history()` has the learning curve as rows. `run.plot()` draws it over the
# minutes; here it is over the updates. The accuracy is high when BLEU has
# hardly begun to rise.

# %%
curve = [row for row in run.history() if "validation_bleu" in row]
steps = [row["step"] for row in curve]
bleus = [row["validation_bleu"] for row in curve]
accuracies = [100 * row["validation_accuracy"] for row in curve]

figure, (losses, scores) = plt.subplots(1, 2, figsize=(9, 3.2))
losses.plot(steps, [row["validation_loss"] for row in curve], marker=".")
losses.set(xlabel="updates", ylabel="loss, nats per token", ylim=(0, None))
scores.plot(steps, accuracies, marker=".", label="token accuracy, %")
scores.plot(steps, bleus, marker=".", label="BLEU")
scores.set(xlabel="updates", ylim=(0, 100))
scores.legend()
for axes in (losses, scores):
    axes.grid(alpha=0.3)
plt.show()

half_way = next(i for i, value in enumerate(accuracies) if value > 50)
assert bleus[half_way] < 30 < bleus[-1]

# %% [markdown]
# ## 9. The average of the last checkpoints
#
# While the learning rate is high, the weights jump around a good point and
# never settle there. Their mean over some checkpoints is nearer to it (section
# 6.1). We had a checkpoint written every 10 updates. Here are averages over the
# last 1, 3, 5, 10 and 30 of them.

# %%
counts = (1, 3, 5, 10, 30)
losses_of, bleus_of = [], []
averaged = run.translator()
averaged.model.compile(loss=kt.SmoothedCrossEntropy(0.1), jit_compile=False)
for count in counts:
    weights = run.translator(average=count).model.get_weights()
    averaged.model.set_weights(weights)
    loss, *_ = averaged.model.evaluate(val_batches, verbose=0)
    losses_of.append(loss)
    written = averaged.translate(sources, beam_size=1)
    bleus_of.append(evaluation.bleu(written, references).value)
    if count == 5:
        written_by_5 = written
    print(f"last {count:2}: loss {losses_of[-1]:.3f}, BLEU {bleus_of[-1]:.1f}")

figure, axes = plt.subplots(figsize=(6, 2.8))
axes.plot(counts, losses_of, marker="o")
axes.axhline(losses_of[0], linestyle=":", color="gray", label="the last alone")
axes.set(xlabel="checkpoints averaged", ylabel="validation loss")
axes.legend()
plt.show()

# %% [markdown]
# The mean of a few is better than the last one alone. That of too many is
# worse: the oldest of them knew little German. So at its end `kt.train`
# validates the last weights and the average of 5, and `run.translator()` takes
# the better ones.

# %%
average_of_5 = losses_of[counts.index(5)]
assert average_of_5 < losses_of[0] < losses_of[-1]

taken, mean_of_5 = (
    run.translator(average=count).model.get_weights() for count in (None, 5)
)
for a, b in zip(taken, mean_of_5, strict=True):
    np.testing.assert_array_equal(a, b)

# %% [markdown]
# And the loops of section 7? Early in a training, their number depends on
# rounding, and so on the processor. Now fewer than one translation in ten
# loops, in the same sentences and again with greedy search. A training this
# short does not cure them all.

# %%
looping_now = sum(longest_run(text)[0] >= 5 for text in written_by_5)
print(f"translations that loop: {looping} of 500 then, {looping_now} now")

assert 0 < looping_now < len(sources) / 10

# %% [markdown]
# ## 10. The score
#
# Now score the test set, once, with beam search (the next notebook shows what
# that is). BLEU depends on how text is cut into words and on a dozen such
# choices, so a bare number cannot be compared. The line below it, sacreBLEU's
# signature, names all of them. Give it with every score.

# %%
result = run.evaluate("test")
print(f"{result.bleu.name} {result.bleu.value:.1f}")
print(result.bleu.signature)

test = list(corpus.pairs("test"))
asked, wanted = zip(*test, strict=True)
exact = np.mean(np.array(wanted) == np.array(result.translations))
print(f"{exact:.0%} of the sentences are right from end to end\n")
for source, translation in itertools.islice(
    zip(asked, result.translations, strict=True), 7
):
    print(f"{source}\n    {translation}")

assert result.bleu.value > 40 and "tok:13a" in result.bleu.signature

# %% [markdown]
# **Exercise 3.** You can work out the BLEU of one sentence by hand. Find the
# share of the words written that the reference has too, then the shares of its
# runs of two, three and four words. Take the fourth root of their product. If
# the translation is shorter than the reference, multiply by exp(1 − words of
# the reference / words written).
#
# The reference is *the cat sat on the mat*. Guess first: which scores higher,
# *the cat sat on a mat* or *the cat sat on*? Then work out both.
#
# <details><summary>Solution</summary>
#
# *the cat sat on a mat*: 5 of 6 words, 3 of 5 pairs, 2 of 4 threes, 1 of 3
# fours. Their product is 1/12 and its fourth root 0.537; it is as long as the
# reference. BLEU 53.7.
#
# *the cat sat on*: all four shares are 1, and exp(1 − 6 / 4) = 0.607. BLEU
# 60.7. A wrong word in the middle spoils every run through it, and costs more
# than two words that are missing at the end.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
wrong_word = (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)
cut_short = np.exp(1 - 6 / 4)
for text, by_hand in (
    ("the cat sat on a mat", wrong_word),
    ("the cat sat on", cut_short),
):
    score = evaluation.bleu([text], ["the cat sat on the mat"]).value
    assert np.isclose(score, 100 * by_hand)
assert (round(100 * wrong_word, 1), round(100 * cut_short, 1)) == (53.7, 60.7)
print("all holds")

# %% [markdown]
# That was a short training of a small model. `make demo` trains one of twice
# the width for some minutes. The next notebook, [Beam search and attention,
# looked at](3_beam_search_and_attention.ipynb), looks inside the search and the
# attention of a model.
