"""Settings of trainings that are soon traced, their text, and their weights."""

import h5py

SHAPE = dict(num_layers=1, d_model=14, num_heads=2, ffn_dim=17, dropout=0.1)
SETTINGS = dict(
    preset="demo", vocab_size=300, batch_tokens=257, seed=3, **SHAPE
)


def pairs_of(folder, split):
    sides = (
        (folder / f"{split}.{language}").read_text("utf-8").splitlines()
        for language in ("en", "de")
    )
    return list(zip(*sides, strict=True))


def arrays_of(path):
    """Every array of a weights file."""
    found = {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(note)
    return found
