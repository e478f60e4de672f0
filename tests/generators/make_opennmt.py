"""Makes tests/importing/opennmt: small models that OpenNMT-tf trained itself.

Run it by hand where OpenNMT-tf is; the tests read what it wrote:

    python3.10 -m venv ENV
    ENV/bin/pip install OpenNMT-tf==2.32.0 tensorflow-text==2.13.0 \
        sentencepiece==0.2.3
    ENV/bin/python tests/generators/make_opennmt.py [NAME ...]

Two models of the shape of `SIZES`, or those named, whose folders are what
`onmt-main` leaves: a checkpoint, `model_description.py`, the vocabularies and
`data.yml`.

    separate  TransformerBase's settings: three matrices, a vocabulary for each
              side, an end token on the source; the newest checkpoint
    unequal   TransformerBaseSharedEmbeddings': one matrix, but three layers in
              the encoder and one in the decoder; the average in `avg`

`expected.npz` in each has what OpenNMT-tf computes from that checkpoint:
encoder output, logits, and what its searches find.
"""

import io
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import opennmt
import sentencepiece
import tensorflow as tf
import yaml

FOLDER = pathlib.Path(__file__).parents[1] / "importing" / "opennmt"
# Unlike each other, so that no swapped axis goes unseen.
SIZES = dict(num_layers=2, num_units=12, num_heads=3, ffn_inner_dim=19)
UNEQUAL = {
    **SIZES,
    "num_layers": (3, 1),
    "share_embeddings": "opennmt.models.EmbeddingsSharingLevel.ALL",
}
ONE = ("shared.vocab", "shared.vocab")
ENDS = {"source_sequence_controls": {"start": False, "end": True}}
MODELS = {
    "separate": (SIZES, ("en.vocab", "de.vocab"), ENDS, "."),
    "unequal": (UNEQUAL, ONE, {}, "avg"),
}
STEPS, BEAM_WIDTH = 600, 3
DESCRIPTION = '''\
"""A small Transformer."""

import opennmt


def model():
    return opennmt.models.Transformer(
        {settings}
    )
'''


def pairs():
    """Sentences of three words that change places, such as a grammar has."""
    colours = {"red": "rot", "green": "grün", "blue": "blau", "grey": "grau"}
    animals = {"dog": "Hund", "wolf": "Wolf", "fish": "Fisch", "hare": "Hase"}
    verbs = {"sees": "sieht", "finds": "findet", "hears": "hört"}
    for (a, b), (c, d), (e, f), (g, h) in itertools.product(
        *(words.items() for words in (colours, animals, verbs, animals))
    ):
        yield f"the {a} {c} {e} the {g}", f"der {d}, der {b} ist, {f} den {h}"


def make_text(folder):
    """Write `en`, `de` and a sentencepiece model without NFKC's tables."""
    sides = list(zip(*pairs(), strict=True))
    for name, side in zip(("en", "de"), sides, strict=True):
        (folder / name).write_text("\n".join(side) + "\n", encoding="utf-8")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        # Not `input`, which would put the path into the model.
        sentence_iterator=iter(sides[0] + sides[1]),
        model_writer=model,
        vocab_size=43,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    (folder / "sp.model").write_bytes(model.getvalue())
    of = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    lines = [f"{of.IdToPiece(i)}\t{of.GetScore(i)}\n" for i in range(43)]
    (folder / "sp.vocab").write_text("".join(lines))


def tokenization(folder):
    model = str(folder / "sp.model")
    return {"type": "SentencePieceTokenizer", "params": {"model": model}}


def make_vocabularies(work, to, shared):
    """As its users do: by `onmt-build-vocab`."""
    tokenizer = work / "tokenizer.yml"
    tokenizer.write_text(yaml.dump(tokenization(work)))
    build = pathlib.Path(sys.executable).with_name("onmt-build-vocab")
    asked = {
        side: ["--tokenizer_config", tokenizer, work / side]
        for side in ("en", "de")
    }
    if shared:
        of_pieces = ["--from_vocab", work / "sp.vocab"]
        asked = {"shared": [*of_pieces, "--from_format", "sentencepiece"]}
    for name, words in asked.items():
        words = [build, "--save_vocab", to / f"{name}.vocab", *words]
        subprocess.run([*map(str, words)], check=True)


def make_model(work, name, settings, vocabularies, controls, checkpoint):
    """Train, average, and write what the model computes."""
    to = FOLDER / name
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    shutil.copy(work / "sp.model", to)
    make_vocabularies(work, to, vocabularies == ONE)
    lines = [f"{key}={value}," for key, value in settings.items()]
    description = DESCRIPTION.format(settings="\n        ".join(lines))
    (to / "model_description.py").write_text(description)
    data = dict(controls)
    for side, vocabulary in zip(
        ("source", "target"), vocabularies, strict=True
    ):
        data[f"{side}_vocabulary"] = vocabulary
        data[f"{side}_tokenization"] = tokenization(pathlib.Path())
    # Names beside the file, as `--data_dir` completes them.
    text = yaml.dump({"model_dir": ".", "data": data}, sort_keys=False)
    (to / "data.yml").write_text(text)
    config = {
        "model_dir": str(work / name),
        "data": {
            **opennmt.config.try_prefix_paths(str(to), data),
            "train_features_file": str(work / "en"),
            "train_labels_file": str(work / "de"),
        },
        "params": dict(optimizer="LazyAdam", learning_rate=0.01, dropout=0.0),
        "train": {
            "batch_size": 32,
            "batch_type": "examples",
            "max_step": STEPS,
            "save_checkpoints_steps": STEPS // 3,
            "average_last_checkpoints": 2,
            "save_summary_steps": STEPS,
        },
    }
    model = opennmt.config.load_model_from_file(
        str(to / "model_description.py"), as_builder=True
    )
    opennmt.Runner(model, config, seed=1).train()
    kept = to / checkpoint
    kept.mkdir(exist_ok=True)
    for found in (work / name / checkpoint).glob(f"ckpt-{STEPS}.*"):
        shutil.copy(found, kept)
    (kept / "checkpoint").write_text(
        f'model_checkpoint_path: "ckpt-{STEPS}"\n'
        f'all_model_checkpoint_paths: "ckpt-{STEPS}"\n'
    )
    write_expected(model(), config, to, kept)


def write_expected(model, config, to, checkpoint):
    """What the weights compute, and what they translate."""
    model.initialize(config["data"], params={"beam_width": 1})
    model.create_variables()
    newest = tf.train.latest_checkpoint(str(checkpoint))
    tf.train.Checkpoint(model=model).restore(newest).expect_partial()
    # "fox" has pieces that no training sentence has, "ß" none at all.
    texts = [
        "the red dog sees the hare",
        "the grey wolf",
        "hears the fish the blue hare finds the green dog",
        "the fox ß sees the fish",
    ]
    targets = ["der Hund, der rot ist", "den Fisch", "Hase grün sieht", "ß der"]
    source, target = model.features_inputter, model.labels_inputter
    features = source.make_features(tf.constant(texts))
    labels = target.make_features(tf.constant(targets))
    outputs, _ = model(features, labels)
    memory, _, _ = model.encoder(
        source(features), sequence_length=source.get_length(features)
    )
    expected = {
        "source": features["ids"],
        "source_length": features["length"],
        "target_in": labels["ids"],
        "target_length": labels["length"],
        "memory": memory,
        "logits": outputs["logits"],
    }
    for beam, penalty in ((1, 0.0), (BEAM_WIDTH, 0.0), (BEAM_WIDTH, 0.6)):
        search = dict(beam_width=beam, num_hypotheses=beam)
        model.params |= {**search, "length_penalty": penalty}
        _, found = model(features)
        name = f"beam_{beam}_{penalty}"
        expected[f"{name}_texts"] = found["text"]
        expected[f"{name}_log_probs"] = found["log_probs"]
    arrays = {name: np.asarray(x) for name, x in expected.items()}
    for name, array in arrays.items():
        if name.endswith("texts"):
            arrays[name] = np.vectorize(bytes.decode)(array)
    arrays["texts"] = np.array(texts)
    np.savez_compressed(to / "expected.npz", **arrays)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        make_text(pathlib.Path(work))
        for name in sys.argv[1:] or MODELS:
            make_model(pathlib.Path(work), name, *MODELS[name])
