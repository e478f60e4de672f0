"""What a run directory remembers of its text, so that no start reads it twice.

Nothing here is needed: without it, or with another text, all is read again.
"""

import json
import pathlib

from keras_transformer.data.corpus import Corpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files
from keras_transformer.runs import layout
from keras_transformer.runs.vocabulary import checksum_of


class Remembered:
    """The notes of a run directory; `save` writes what is new.

    Args:
        run_dir: The run directory, which exists.
    """

    def __init__(self, run_dir: pathlib.Path) -> None:
        self.path = run_dir / layout.RECORDS / layout.REMEMBERED_FILE
        try:
            self.notes = dict(json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            self.notes = {}
        self._saved = dict(self.notes)

    def fingerprint(self, corpus: Corpus, split: str, known: str | None) -> str:
        """The fingerprint of a split, without reading files that stayed alike.

        Args:
            corpus: Where it is.
            split: Its name.
            known: What the fingerprint should be; None to read the text.
        """
        name = f"text {split}"
        stamp = corpus.fingerprint_stamp(split)
        if known is not None and self.notes.get(name) == [stamp, known]:
            return known
        fingerprint = corpus.fingerprint(split)
        if stamp is not None and stamp == corpus.fingerprint_stamp(split):
            self.notes[name] = [stamp, fingerprint]
        return fingerprint

    def has_vocabulary(
        self, tokenizer: Tokenizer, size: int, made_of: str
    ) -> bool:
        """Whether a vocabulary is what `note_vocabulary` was told of."""
        expected = [size, made_of, checksum_of(tokenizer)]
        return self.notes.get("vocabulary") == expected

    def note_vocabulary(
        self, tokenizer: Tokenizer, size: int, made_of: str
    ) -> None:
        """Note what a vocabulary was trained for.

        Args:
            tokenizer: The vocabulary.
            size: The size asked for.
            made_of: Fingerprint of the text, and the symbols if there are any.
        """
        checksum = checksum_of(tokenizer)
        self.notes["vocabulary"] = [size, made_of, checksum]

    def save(self) -> None:
        """Write the notes, where there are new ones."""
        if self.notes != self._saved:
            self.path.parent.mkdir(exist_ok=True)
            files.write_text(self.path, json.dumps(self.notes, indent=2))
            self._saved = dict(self.notes)
