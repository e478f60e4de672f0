"""Changes to models of other toolkits, and what is compared with them."""

import json

import numpy as np
import yaml

from keras_transformer.config import BOS_ID

LANGUAGES = dict(source_lang="en", target_lang="de")
SETTINGS = "special:model.yml"


def change_json(path, changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_marian(path, changes, without="nothing"):
    """Change settings in a file of Marian's, and leave out some arrays."""
    with np.load(path) as file:
        arrays = {n: array for n, array in file.items() if without not in n}
    settings = yaml.safe_load(bytes(arrays[SETTINGS]).rstrip(b"\0"))
    text = yaml.safe_dump({**settings, **changes}).encode() + b"\0"
    np.savez(path, **{**arrays, SETTINGS: np.frombuffer(text, "int8")})


def check_logits(translator, expected, ours, logits):
    """Compare with logits that the original gave; `ours` has our ids."""
    source = [[ours[i] for i in expected["source_ids"][0]]]
    target = [ours[i] for i in expected["target_ids"][0]]
    found = translator.model(
        (np.array(source), np.array([[BOS_ID, *target[:-1]]]))
    )[0].numpy()
    theirs = np.array(logits)
    for their_id, our_id in ours.items():
        np.testing.assert_allclose(
            found[:, our_id], theirs[:, their_id], atol=1e-4
        )
