"""Makes tests/importing/opennmt: small models that OpenNMT-tf trained itself.

Run it by hand where OpenNMT-tf is; the tests read what it wrote:

    python3.10 -m venv ENV
    ENV/bin/pip install OpenNMT-tf==2.32.0 tensorflow-text==2.13.0 \
        sentencepiece==0.2.3
    ENV/bin/python tests/generators/make_opennmt.py [NAME ...]

Three models of the shape of `SIZES`, or those named, whose folders are what
`onmt-main` leaves: a checkpoint, `model_description.py`, the vocabularies and
`data.yml`.

    shared    TransformerBaseSharedEmbeddings' settings: one matrix; the
              checkpoint is the average in `avg`
    separate  TransformerBase's: three matrices, a vocabulary for each side,
              an end token on the source; the newest checkpoint
    unequal   as shared, with three layers in the encoder and one in the decoder

`expected.npz` in each has what OpenNMT-tf computes from that checkpoint:
encoder output, logits, and what its searches find.
"""

import io
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
BIN = pathlib.Path(sys.executable).parent
# Unlike each other, so that no swapped axis goes unseen.
SIZES = dict(num_layers=2, num_units=12, num_heads=3, ffn_inner_dim=19)
STEPS, BEAM_WIDTH = 600, 3
DESCRIPTION = '''\
"""A small Transformer."""

import opennmt


def model():
    return opennmt.models.Transformer(
        {settings}
    )
'''

COLOURS = {"red": "rot", "green": "grün", "blue": "blau", "grey": "grau"}
ANIMALS = {"dog": "Hund", "wolf": "Wolf", "fish": "Fisch", "hare": "Hase"}
VERBS = {"sees": "sieht", "finds": "findet", "hears": "hört"}


def pairs():
    """Sentences of three words that change places, such as a grammar has."""
    for colour in COLOURS:
        for animal in ANIMALS:
            for verb in VERBS:
                for other in ANIMALS:
                    yield (
                        f"the {colour} {animal} {verb} the {other}",
                        f"der {ANIMALS[animal]}, der {COLOURS[colour]} ist,"
                        f" {VERBS[verb]} den {ANIMALS[other]}",
                    )


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
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    (folder / "sp.vocab").write_text(
        "".join(
            f"{pieces.IdToPiece(i)}\t{pieces.GetScore(i)}\n" for i in range(43)
        )
    )


def make_vocabularies(work, to, shared):
    """As its users do: by `onmt-build-vocab`."""
    build = [str(BIN / "onmt-build-vocab")]
    if shared:
        build += ["--from_vocab", str(work / "sp.vocab")]
        build += ["--from_format", "sentencepiece"]
        build += ["--save_vocab", str(to / "shared.vocab")]
        subprocess.run(build, check=True)
        return
    for side in ("en", "de"):
        tokenizer = work / "tokenizer.yml"
        tokenizer.write_text(yaml.dump(tokenization(work)))
        save = str(to / f"{side}.vocab")
        subprocess.run(
            [*build, "--tokenizer_config", str(tokenizer)]
            + ["--save_vocab", save, str(work / side)],
            check=True,
        )


def tokenization(folder):
    model = str(folder / "sp.model")
    return {"type": "SentencePieceTokenizer", "params": {"model": model}}


def make_model(work, name, settings, vocabularies, controls, checkpoint):
    """Train, average, and write what the model computes."""
    to = FOLDER / name
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    shutil.copy(work / "sp.model", to)
    make_vocabularies(work, to, vocabularies[0] == vocabularies[1])
    lines = [f"{key}={value}," for key, value in settings.items()]
    (to / "model_description.py").write_text(
        DESCRIPTION.format(settings="\n        ".join(lines))
    )
    source, target = vocabularies
    data = {
        "source_vocabulary": source,
        "target_vocabulary": target,
        "source_tokenization": tokenization(pathlib.Path()),
        "target_tokenization": tokenization(pathlib.Path()),
        **controls,
    }
    # Names beside the file, as `--data_dir` completes them.
    (to / "data.yml").write_text(
        yaml.dump({"model_dir": ".", "data": data}, sort_keys=False)
    )
    config = {
        "model_dir": str(work / name),
        "data": {
            **opennmt.config.try_prefix_paths(str(to), data),
            "train_features_file": str(work / "en"),
            "train_labels_file": str(work / "de"),
        },
        "params": {
            "optimizer": "LazyAdam",
            "learning_rate": 0.01,
            "dropout": 0.0,
        },
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
    runner = opennmt.Runner(model, config, seed=1)
    runner.train()
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
    tf.train.Checkpoint(model=model).restore(
        tf.train.latest_checkpoint(str(checkpoint))
    ).expect_partial()
    # "fox" has pieces that no training sentence has, "ß" none at all.
    texts = [
        "the red dog sees the hare",
        "the grey wolf",
        "hears the fish the blue hare finds the green dog",
        "the fox ß sees the fish",
    ]
    expected = {"texts": np.array(texts)}
    features = model.features_inputter.make_features(tf.constant(texts))
    labels = model.labels_inputter.make_features(
        tf.constant(
            ["der Hund, der rot ist", "den Fisch", "Hase grün sieht", "ß der"]
        )
    )
    outputs, _ = model(features, labels)
    memory, _, _ = model.encoder(
        model.features_inputter(features),
        sequence_length=model.features_inputter.get_length(features),
    )
    expected |= {
        "source": features["ids"].numpy(),
        "source_length": features["length"].numpy(),
        "target_in": labels["ids"].numpy(),
        "target_length": labels["length"].numpy(),
        "memory": memory.numpy(),
        "logits": outputs["logits"].numpy(),
    }
    for beam, penalty in ((1, 0.0), (BEAM_WIDTH, 0.0), (BEAM_WIDTH, 0.6)):
        model.params |= {
            "beam_width": beam,
            "length_penalty": penalty,
            "num_hypotheses": beam,
        }
        _, found = model(features)
        name = f"beam_{beam}_{penalty}"
        expected[f"{name}_texts"] = np.array(
            [
                [text.decode() for text in row]
                for row in found["text"].numpy().tolist()
            ]
        )
        expected[f"{name}_log_probs"] = found["log_probs"].numpy()
    np.savez_compressed(to / "expected.npz", **expected)


def main(names):
    level = "opennmt.models.EmbeddingsSharingLevel"
    shared = {**SIZES, "share_embeddings": f"{level}.ALL"}
    one = ("shared.vocab", "shared.vocab")
    ends = {"source_sequence_controls": {"start": False, "end": True}}
    models = {
        "shared": (shared, one, {}, "avg"),
        "separate": (SIZES, ("en.vocab", "de.vocab"), ends, "."),
        "unequal": ({**shared, "num_layers": (3, 1)}, one, {}, "avg"),
    }
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        make_text(work)
        for name in names or models:
            make_model(work, name, *models[name])


if __name__ == "__main__":
    main(sys.argv[1:])
