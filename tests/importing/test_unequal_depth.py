"""Imports of models whose encoder is deeper than their decoder.

Of a model whose numbers the other tests compare with its original's, the last
layer of the decoder is cut off. `make_marian.py` has recorded what
`MarianMTModel` makes of two that are cut likewise; a model of OpenNMT-tf's own
is in `test_opennmt.py`.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
from imported_models import change_json, change_marian, check_logits
from safetensors.numpy import load_file, save_file

from keras_transformer.config import PAD_ID
from keras_transformer.importing import run_directory
from keras_transformer.run import Run


def cut_hugging_face(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    kept = {n: a for n, a in tensors.items() if "decoder.layers.2." not in n}
    assert len(kept) < len(tensors)
    save_file(kept, path)
    change_json(folder / "config.json", {"decoder_layers": 2})


def cut_marian(folder):
    change_marian(folder / "opus.npz", {"dec-depth": 2}, "decoder_l3_")


def cut_opennmt(folder):
    state = tf.train.latest_checkpoint(str(folder))
    reader = tf.train.load_checkpoint(state)
    names = [
        name
        for name in reader.get_variable_to_shape_map()
        if name.endswith("VARIABLE_VALUE") and "decoder/layers/1/" not in name
    ]
    arrays = [reader.get_tensor(name) for name in names]
    tf.raw_ops.SaveV2(
        prefix=state,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=arrays,
    )


# How the last layer is cut off, and how many there were.
CUTS = {
    "hf": (cut_hugging_face, 3),
    "npz": (cut_marian, 3),
    "opennmt": (cut_opennmt, 2),
}


@pytest.mark.parametrize("kind", CUTS)
def test_a_shallower_decoder_has_the_weights_of_its_layers(
    originals, copy_of, kind
):
    whole = run_directory.read(originals / kind)
    cut, layers = CUTS[kind]
    folder = copy_of(kind)
    cut(folder)

    found = run_directory.read(folder)

    assert whole.model.num_layers == layers
    assert found.model.layers_of("encoder") == layers
    assert found.model.layers_of("decoder") == layers - 1
    last = f"decoder/layer_{layers - 1}/"
    expected = {n for n in whole.weights if not n.startswith(last)}
    assert set(found.weights) == expected < set(whole.weights)
    for name, array in found.weights.items():
        np.testing.assert_array_equal(array, whole.weights[name])


@pytest.mark.parametrize("kind", ["hf", "npz"])
def test_logits_are_those_of_the_original_without_that_layer(
    originals, copy_of, tmp_path, kind
):
    folder = copy_of(kind)
    CUTS[kind][0](folder)
    run_dir = run_directory.import_run(folder, tmp_path / "run", "en", "de")
    translator = Run(run_dir).translator()
    tokenizer = translator.tokenizer
    vocabulary = json.loads((originals / "hf" / "vocab.json").read_text())
    # Marian has no padding.
    ours = {
        vocabulary[piece]: i
        for i, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))
        if piece in vocabulary and (kind == "hf" or i != PAD_ID)
    }
    assert len(ours) > 50
    expected = json.loads((originals / "expected.json").read_text())
    answers = {"hf": expected, "npz": expected["marian"]}[kind]
    check_logits(translator, expected, ours, answers["shallower"])
