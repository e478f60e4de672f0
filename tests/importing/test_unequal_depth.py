"""Imports of models whose encoder is deeper than their decoder.

Of a model whose numbers the other tests compare with its original's, the last
layer of the decoder is cut off. `make_marian.py` has recorded what
`MarianMTModel` makes of two that are cut likewise; a model of OpenNMT-tf's own
is in `test_opennmt.py`.
"""

import json

import pytest
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


# How the last of three layers is cut off.
CUTS = {"hf": cut_hugging_face, "npz": cut_marian}


@pytest.mark.parametrize("kind", CUTS)
def test_logits_are_those_of_the_original_without_that_layer(
    originals, copy_of, tmp_path, kind
):
    folder = copy_of(kind)
    CUTS[kind](folder)
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
