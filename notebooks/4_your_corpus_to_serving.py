# %% [markdown]
# # Your own corpus, on Colab's GPU, to TensorFlow Serving
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/keras-transformer/keras-transformer/blob/v0.1.0/notebooks/4_your_corpus_to_serving.ipynb)
#
# Not run in Colab itself yet.
#
# This notebook goes from two text files to a model that a server loads: what to
# write where, what a training would cost, what to do when the machine goes away
# in the middle, and how to hand on the result. The corpus is small, so you can
# watch every step within a minute. Put yours in its place.
#
# 1. What stays, and what goes
# 2. The text
# 3. Which precision
# 4. First ask what it costs
# 5. Begin, and lose the machine
# 6. Go on
# 7. The score
# 8. Export
# 9. Ask it without this package
# 10. TensorFlow Serving
#
# In Colab, choose a GPU first (menu Runtime, *Change runtime type*). Everything
# works without one, and this small corpus needs none.
#
# Every claim is an `assert`: if the notebook runs to its end, all of them hold.
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
import json
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import matplotlib.pyplot as plt
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.config import UserError

plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})

# %% [markdown]
# ## 1. What stays, and what goes
#
# Colab takes its machine back after some hours, or sooner, with everything on
# it. So what must stay goes to Google Drive; outside Colab, a local folder
# takes its place. Everything else is written anew whenever this notebook runs.

# %%
if "google.colab" in sys.modules:
    from google.colab import drive

    drive.mount("/content/drive")
    stays = pathlib.Path("/content/drive/MyDrive/keras_transformer")
else:
    stays = pathlib.Path("drive")
stays.mkdir(parents=True, exist_ok=True)
run_dir = stays / "runs" / "mine"

for folder in ("built-in-text", "one-line-short", "another-machine"):
    shutil.rmtree(folder, ignore_errors=True)

# %% [markdown]
# ## 2. The text
#
# A corpus is a folder with a file for each split and language, one sentence a
# line, UTF-8, plain or gzipped. Line 7 of `train.en` is the translation of line
# 7 of `train.de`. We write such a folder from the built-in corpus, German to
# English. This notebook deletes it again. To train on your own text, keep it
# elsewhere and give its folder to `kt.train`, as in section 6.


# %%
def write_corpus(folder):
    """Write `SPLIT.LANG` files of the built-in corpus."""
    pathlib.Path(folder).mkdir(parents=True)
    built_in = kt.open_corpus("demo", source_lang="de", target_lang="en")
    for split in built_in.splits:
        sides = zip(*built_in.pairs(split), strict=True)
        for language, sentences in zip(("de", "en"), sides, strict=True):
            path = pathlib.Path(folder, f"{split}.{language}")
            path.write_text("\n".join(sentences) + "\n", encoding="utf-8")


write_corpus("built-in-text")
for path in sorted(pathlib.Path("built-in-text").iterdir()):
    lines = path.read_text(encoding="utf-8").splitlines()
    print(f"{path.name:9} {len(lines):6} lines, such as: {lines[2]}")

# %% [markdown]
# The worst mistake in such a folder is a line that is missing on one side:
# every pair after it is wrong, and a model would learn from them all the same.
# So the package refuses the folder, and says in one sentence what to do, as it
# does for every mistake of a user.

# %%
shutil.copytree("built-in-text", "one-line-short")
german = pathlib.Path("one-line-short/train.de")
lines = german.read_text(encoding="utf-8").splitlines()
german.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
try:
    list(kt.open_corpus("one-line-short", "de", "en").pairs("train"))
except UserError as error:
    told = str(error)
print(told)

assert "19999" in told.replace(",", "") and "20000" in told.replace(",", "")

# %% [markdown]
# A corpus of [TensorFlow
# Datasets](https://www.tensorflow.org/datasets/catalog/wmt14_translate) has a
# name in place of a folder. This is WMT 2014, the paper's; it takes gigabytes
# and is not run here:
#
# ```
# corpus="tfds:wmt14_translate/de-en", validation_split="validation"
# ```

# %% [markdown]
# ## 3. Which precision
#
# Matrix products in 16 bits are faster on GPUs made for them. What needs more
# digits (weights, softmax, norms, the loss) stays in 32 bits. Which 16-bit type
# to take depends on the GPU. From Ampere on (A100, L4: compute capability 8),
# take bfloat16, which has the range of float32. On the older T4 (7.5), take
# float16; its range is small, so Keras scales the loss. On a CPU, this notebook
# stays with float32. Nobody has measured the gain on a GPU yet; the next
# section times a few steps of your own training. A run keeps its precision to
# the end, whatever machine it continues on.


# %%
def precision_for(capability):
    """The dtype policy for a compute capability such as `(7, 5)`."""
    if capability >= (8, 0):
        return "mixed_bfloat16"
    return "mixed_float16" if capability >= (7, 0) else "float32"


details = [
    tf.config.experimental.get_device_details(gpu)
    for gpu in tf.config.list_physical_devices("GPU")
]
precision = "float32"
if details:
    precision = precision_for(details[0].get("compute_capability", (0, 0)))
if (run_dir / "config.json").exists():  # Begun on another machine.
    precision = kt.Run(run_dir).config.training.precision
print("precision:", precision)

assert precision_for((7, 5)) == "mixed_float16"  # A T4.
assert precision_for((8, 9)) == "mixed_bfloat16"  # An L4.

# %% [markdown]
# ## 4. First ask what it costs
#
# The settings below are those of a small model, and the checks in this notebook
# expect them. For a real corpus of tens of thousands of pairs, leave the
# notebook and call `kt.train(run_dir, corpus=…, source_lang=…, target_lang=…,
# recipe="small-corpus", minutes=45)`. For millions of pairs, give
# `preset="base"`, the paper's, instead of the recipe, and hours.

# %%
settings = dict(
    preset="demo",
    source_lang="de",
    target_lang="en",
    precision=precision,
    steps=350,
    # What differs from the preset, to be done in half a minute:
    vocab_size=600,
    d_model=64,
    ffn_dim=128,
    warmup_steps=200,
    validation_steps=50,
    checkpoint_every="50",
)

# %% [markdown]
# The command line does all that `kt.train` does, with the same names. In a cell
# you would type `!keras-transformer train --corpus built-in-text …`; here
# Python puts the line together. With `--dry-run` it reads the
# corpus, measures a few steps on this machine and writes nothing.

# %%
flags = [
    f"--{name.replace('_', '-')}={value}" for name, value in settings.items()
]
command = [sys.executable, "-m", "keras_transformer", "train"]
command += ["--corpus", "built-in-text", "--run-dir", str(run_dir), *flags]
print("keras-transformer", *command[3:])

existed = run_dir.exists()
dry = subprocess.run(
    [*command, "--dry-run"], capture_output=True, text=True, check=True
)
about_the_model, about_the_time = dry.stdout.split("\nTime and memory, ")
print("\n" + about_the_model.replace(f"{pathlib.Path.cwd()}/", ""))

assert "hours" in about_the_time
assert run_dir.exists() == existed  # Nothing was written.

# %% [markdown]
# Below that it printed seconds a step, tokens a second, memory, hours in all.
# Those depend on the machine and are not shown here; `print(dry.stdout)` has
# them. Look at two lines before you begin. The *peak memory* is that of the
# longest batch. If it does not fit into the GPU's, `accumulate=4` runs each
# batch in four parts and changes nothing but dropout's draws and the rounding
# of sums. And the hours must fit into your day.
#
# **Exercise 1.** Get to the 204,288 parameters by hand. The vocabulary has 600
# pieces, d_model is 64, ffn_dim 128, and there are two layers on each side;
# section 8 of [the first notebook](1_the_paper.ipynb) counts a larger model.
# Guess, then count: how many are there with d_model and ffn_dim doubled? And
# how much memory do weights, gradients and Adam's moments of the paper's base
# model take, with its 63,045,632 parameters of four bytes?
#
# <details><summary>Solution</summary>
#
# ```python
# def parameters_of(d, ffn):
#     attention = 4 * d * d
#     feed_forward = d * ffn + ffn + ffn * d + d
#     norm = 2 * d
#     encoder_layer = attention + feed_forward + 2 * norm
#     decoder_layer = 2 * attention + feed_forward + 3 * norm
#     return 600 * d + 2 * (encoder_layer + decoder_layer)
# ```
#
# Doubled widths make 736,256, or 3.6 times as many: matrices between two widths
# grow fourfold, the table of the vocabulary, biases and norms twofold.
#
# For each weight there are a gradient and two moments: 16 bytes a parameter,
# 1.0 GB for the base model before it has read a sentence.
#
# </details>


# %% jupyter={"source_hidden": true} tags=["hide-input"]
def parameters_of(d, ffn):
    attention = 4 * d * d
    feed_forward = d * ffn + ffn + ffn * d + d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return 600 * d + 2 * (encoder_layer + decoder_layer)


counts = [parameters_of(64, 128), parameters_of(128, 256)]
assert re.search(rf"parameters +{counts[0]:,}\n", about_the_model)
for width, count in zip((64, 128), counts, strict=True):
    by_layers = kt.Transformer(
        600, num_layers=2, d_model=width, num_heads=4, ffn_dim=2 * width
    )
    assert by_layers.count_params() == count
assert counts[1] == 736_256 and round(counts[1] / counts[0], 1) == 3.6
assert round(63_045_632 * 4 * (1 + 1 + 2) / 1e9, 1) == 1.0
print("all holds")

# %% [markdown]
# ## 5. Begin, and lose the machine
#
# Training starts in a process of its own. As soon as it has written its second
# checkpoint, we take the machine away: we kill the process without notice and
# delete the text.

# %%
environment = {**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
with open("train.log", "w") as train_log:
    training = subprocess.Popen(command, stderr=train_log, env=environment)
while training.poll() is None and not list(
    run_dir.glob("checkpoints/step-*100/state.json")
):
    time.sleep(0.1)
training.kill()
training.wait()
shutil.rmtree("built-in-text")

for path in sorted(run_dir.iterdir()):
    print(path.relative_to(stays))
checkpoints = sorted((run_dir / "checkpoints").glob("step-*"))
reached = int(checkpoints[-1].name.removeprefix("step-"))
print("checkpoints up to update", reached)

assert 100 <= reached <= settings["steps"]
assert training.returncode != 0 or reached == settings["steps"]

# %% [markdown]
# ## 6. Go on
#
# On a new machine, run the notebook again from the top with the same settings.
# The run directory is still on Drive, and whatever is done there is not done
# again. The text may lie elsewhere now, as long as it is the same. This process
# has known nothing of the training so far.
#
# The log of a training has times, which differ with every machine. `quiet` lets
# one line through, the one that says where training resumes. Leave it out to
# see all.

# %%
write_corpus("another-machine/built-in-text")

quiet = logging.StreamHandler(sys.stdout)
quiet.addFilter(lambda record: record.getMessage().startswith("Resuming"))
logging.getLogger("keras_transformer").addHandler(quiet)
logging.getLogger("tensorflow").setLevel(logging.ERROR)

run = kt.train(run_dir, corpus="another-machine/built-in-text", **settings)

# %% [markdown]
# The run resumed from its last checkpoint and trained to the end. The learning
# curve goes on where it stopped, and so does the order of the data. On a CPU
# the weights are those of a training that nothing stopped; notebook 2 compares
# them.

# %%
curve = [row for row in run.history() if "validation_bleu" in row]
figure, axes = plt.subplots(figsize=(6, 3))
axes.axvline(reached, linestyle=":", color="gray", label="machine lost")
axes.plot(
    [row["step"] for row in curve],
    [row["validation_bleu"] for row in curve],
    marker=".",
    label="BLEU, greedy",
)
axes.set(xlabel="updates", xlim=(0, None), ylim=(0, 100))
axes.legend()
plt.show()

trained = [row["step"] for row in run.history()]
assert trained == sorted(trained) and trained[-1] == settings["steps"]
assert curve[0]["step"] < reached
assert curve[-1]["validation_bleu"] > curve[0]["validation_bleu"]

# %% [markdown]
# The run keeps what it needs of the text, so it would resume without it too. If
# the text changes, the log says so, and the run goes on with what it began
# with. Other settings are refused, because what is in one run directory belongs
# together: below, we ask for another width.

# %%
try:
    kt.train(run_dir, **{**settings, "d_model": 32})
except UserError as error:
    told = str(error)
print(told)

assert "d_model" in told

# %% [markdown]
# ## 7. The score
#
# The test set is translated with beam search and scored by sacreBLEU. The
# signature belongs to the score.

# %%
result = run.evaluate("test", corpus="another-machine/built-in-text")
print(f"{result.bleu.name} {result.bleu.value:.1f}  {result.bleu.signature}")

sources = [
    "Sonntag, der zwölfte Juni neunzehnhundertachtundachtzig",
    "Der Tisch kostet zweihundertdreizehn Dollar und sechs Cent.",
    "zweiunddreißigtausendsiebenhundertvierundsechzig",
]
wanted = [
    "Sunday, the twelfth of June, nineteen eighty-eight",
    "The table costs two hundred and thirteen dollars and six cents.",
    "thirty-two thousand, seven hundred and sixty-four",
]
translations = run.translator().translate(sources)
for source, translation, right in zip(
    sources, translations, wanted, strict=True
):
    print(f"{source}\n    {translation}")
    if translation != right:
        print(f"    which is wrong. Right is: {right}")

assert 30 < result.bleu.value < 100

# %% [markdown]
# After so short a training some translations are wrong, and you cannot tell
# from reading them: a wrong amount reads as well as the right one.
#
# ## 8. Export
#
# An export is a SavedModel that takes text and returns text: tokenizer, model
# and beam search are one graph. Each version is a folder with a number, as
# TensorFlow Serving wants it. A version that is there is never overwritten, so
# we take the next free number.

# %%
versions = stays / "exported" / "german-english"
numbers = [int(path.name) for path in versions.glob("[0-9]*")]
exported = run.export(versions, version=max(numbers, default=0) + 1)
for path in sorted(exported.parent.rglob("*")):
    if path.is_file():
        print(path.relative_to(stays))

# %% [markdown]
# ## 9. Ask it without this package
#
# Whoever gets the folder needs TensorFlow and tensorflow-text, which has the
# tokenizer's operators, and nothing of ours. To prove it, the script below
# makes every import of this package fail.

# %%
script = """
import sys

sys.modules["keras_transformer"] = None  # An import would raise.
import tensorflow as tf
import tensorflow_text  # noqa: F401  The tokenizer's operators.

model = tf.saved_model.load(sys.argv[1])
answer = model.signatures["serving_default"](text=tf.constant(sys.argv[2:]))
for translation in answer["translation"].numpy():
    print(translation.decode())
"""
pathlib.Path("ask.py").write_text(script, encoding="utf-8")
asked = subprocess.run(
    [sys.executable, "ask.py", str(exported), *sources],
    capture_output=True,
    text=True,
    check=True,
    env=environment,
)
print(asked.stdout)

assert asked.stdout.splitlines() == translations

# %% [markdown]
# `serving_default` also returns a score, and whether the text was too long and
# was cut. Other signatures give several translations, continue a given
# beginning, score a given translation, or show the attention.

# %%
model = tf.saved_model.load(exported)
for name, signature in sorted(model.signatures.items()):
    inputs = ", ".join(signature.structured_input_signature[1])
    outputs = ", ".join(signature.structured_outputs)
    print(f"{name:16} {inputs} → {outputs}")

scores = model.signatures["score"](
    source=tf.constant(sources[2:] * 2),
    target=tf.constant([translations[2], "seven"]),
)["score"].numpy()
print(
    f"score of its own translation {scores[0]:.2f}, of 'seven' {scores[1]:.2f}"
)

assert scores[0] > scores[1]

# %% [markdown]
# **Exercise 2.** That list has names, but neither types nor shapes. Find out
# from `model.signatures["with_prefix"]` what it takes, without looking anything
# up. What does `None` mean there? Then make the model translate the last of
# `sources` once more, beginning with *thirty-two thousand*.
#
# <details><summary>Solution</summary>
#
# ```python
# signature = model.signatures["with_prefix"]
# takes = signature.structured_input_signature[1]
# answer = signature(
#     text=tf.constant(sources[2:]), prefix=tf.constant(["thirty-two thousand"])
# )
# ```
#
# It takes two vectors of strings. `None` stands for any number of them: as many
# texts as you like, and as many prefixes as texts.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
signature = model.signatures["with_prefix"]
takes = signature.structured_input_signature[1]
answer = signature(
    text=tf.constant(sources[2:]), prefix=tf.constant(["thirty-two thousand"])
)
for name in sorted(takes):
    assert takes[name].dtype == tf.string
    assert takes[name].shape.as_list() == [None]
(begun,) = [text.decode() for text in answer["translation"].numpy()]
assert sorted(takes) == ["prefix", "text"]
assert begun.startswith("thirty-two thousand")
print("all holds")

# %% [markdown]
# ## 10. TensorFlow Serving
#
# Beside the model lies what the server reads: `batching_parameters.txt` says
# how requests of many clients are put together. The SavedModel also has
# requests to warm up with, so that the first client does not wait.

# %%
for path in sorted(exported.parent.glob("*.*")):
    print(f"--- {path.name}")
    print(path.read_text(encoding="utf-8"))

# %% [markdown]
# On a machine with Docker this starts the server, in the folder that holds
# `german-english` (not run here):
#
# ```
# docker run --rm -p 8500:8500 -p 8501:8501 \
#   -v "$PWD/german-english:/models/german-english:ro" \
#   tensorflow/serving:2.20.0 \
#   --model_name=german-english --model_base_path=/models/german-english \
#   --enable_batching=true \
#   --batching_parameters_file=/models/german-english/batching_parameters.txt \
#   --rest_api_timeout_in_ms=120000
# ```
#
# Later, put a better model under the next number into the same folder: the
# server changes over without a pause. This is what a client sends, to port
# 8501:

# %%
request = {"instances": sources}
print("POST /v1/models/german-english:predict")
print(json.dumps(request, ensure_ascii=False, indent=2))

# %% [markdown]
# **Exercise 3.** A client wants several translations of each text. A request
# may name another signature in a field `signature_name`: change the request so
# that it asks for `n_best`. The run searches with a beam of four, and the
# signature returns all four. Predict the shapes of its outputs for three texts,
# then call it.
#
# <details><summary>Solution</summary>
#
# ```python
# request_n_best = {"signature_name": "n_best", "instances": sources}
# several = model.signatures["n_best"](text=tf.constant(sources))
# ```
#
# `translations` and `scores` have the shape (3, 4): a row for each text, the
# best first.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["hide-input"]
request_n_best = {"signature_name": "n_best", "instances": sources}
several = model.signatures["n_best"](text=tf.constant(sources))
for name in ("translations", "scores"):
    assert several[name].shape == (3, 4)
assert request_n_best["signature_name"] in model.signatures
assert (several["scores"][:, :-1] >= several["scores"][:, 1:]).numpy().all()
assert [text.decode() for text in several["translations"][:, 0].numpy()] == (
    translations
)
print("all holds")

# %% [markdown]
# In Colab, everything under `stays` is on your Drive: the run, which you can
# train further (`steps=2_000` in the same call), and the export, which you can
# take wherever you want it. *Drive* writes in the background. Before you close
# the tab, call `drive.flush_and_unmount()`, which waits for it.
#
# The last notebook goes back to the model: [The whole model on one
# screen](5_the_model_on_one_screen.ipynb).
