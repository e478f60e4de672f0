"""Joins two sentencepiece models over one table of ids, as Marian has them.

The model file of such a vocabulary is a zip of `source.spm`, `target.spm` and
`pieces.json`, the list of all pieces in the order of our ids. Each piece of a
sentencepiece model is looked up there by its name, and so is a run of
characters that the model does not know. A piece that is not in the list is
`UNK_ID`.

A text may begin with a tag such as `>>deu<<`, which tells a model with several
target languages which one to write. Up to the first "<<" it is one piece.

A fourth file, `rules.json`, says whether there are tags, and which pieces of
the other a side lacks, which it reads as `UNK_ID`.

Axes: B batch, L length.
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf

from keras_transformer.config import EOS_ID, UNK_ID, logger
from keras_transformer.data import source_reading
from keras_transformer.data.texts import some
from keras_transformer.data.tokenizer import (
    SOURCE,
    TARGET,
    Tokenizer,
    as_strings,
)
from keras_transformer.machine.files import ZIP_DAMAGES

_PIECES, _RULES = "pieces.json", "rules.json"
# The tag, and the text after it.
_TAG = "(?s)(>>.*?<<)(.*)"


def pack(
    source: bytes,
    target: bytes,
    pieces: Sequence[str],
    *,
    lacking: Mapping[str, Sequence[int]] | None = None,
    has_tags: bool = True,
) -> bytes:
    """Write the model file of a vocabulary, the same bytes each time.

    `source` and `target` are serialised sentencepiece models; a side is
    `lacking` the pieces that its texts never use, by their ids.
    """
    rules = dict(has_tags=has_tags, lacking=dict(lacking or {}))
    contents = {
        f"{SOURCE}.spm": source,
        f"{TARGET}.spm": target,
        _PIECES: json.dumps(list(pieces)).encode(),
        _RULES: json.dumps(rules).encode(),
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in contents.items():
            # No date, so that the bytes are the same each time.
            file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


class PairedTokenizer(Tokenizer):
    """A `Tokenizer` whose source and target texts differ in their pieces.

    Args:
        model: The bytes that `pack` makes.
        side: The texts that this one turns into ids, `"source"` or `"target"`.
    """

    _words = None  # Words are not segmented by themselves.
    _operator = dict(out_type=tf.string)

    def __init__(self, model: bytes, side: str = SOURCE) -> None:
        tf.Module.__init__(self, name=f"{side}_tokenizer")
        self.model = model
        try:
            with zipfile.ZipFile(io.BytesIO(model)) as file:
                self.spm = file.read(f"{side}.spm")
                self._names: list[str] = json.loads(file.read(_PIECES))
                rules: dict[str, Any] = {}
                if _RULES in file.namelist():
                    rules = json.loads(file.read(_RULES))
            sentencepiece.SentencePieceProcessor(model_proto=self.spm)
        except (*ZIP_DAMAGES, LookupError, TypeError):
            raise ValueError(
                "`model` must hold two sentencepiece models and their pieces. "
                f"Received: {len(model)} bytes of something else"
            ) from None
        self.vocab_size = len(self._names)
        self._has_tags = rules.get("has_tags", True)
        self._unknown_tags: set[bytes] = set()  # A warning has named them.
        ids = np.arange(self.vocab_size, dtype="int64")
        ids[rules.get("lacking", {}).get(side, [])] = UNK_ID
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(self._names, ids), UNK_ID
        )
        if side == SOURCE:
            texts = np.flatnonzero(ids > EOS_ID)
            pieces = [self._names[piece_id] for piece_id in texts]
            self.spm = source_reading.for_sources(self.spm, pieces)
        self._begin(side)

    def tokenize(self, text: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        tags, rest = self._split_tags(text)
        ids, pieces = self._ids(tags), self._ids(self._run("tokenize", rest))
        if tf.executing_eagerly():
            self._check_tags(tags.values, ids.values)
        ends = tf.fill([tf.size(rest), 1], EOS_ID)
        return tf.concat([ids, pieces, ends], axis=1)

    def _check_tags(self, tags: tf.Tensor, ids: tf.Tensor) -> None:
        """Warn once of each tag that the model lacks: it reads none then."""
        for tag in set(tf.boolean_mask(tags, ids == UNK_ID).numpy()):
            if tag not in self._unknown_tags:
                self._unknown_tags.add(tag)
                logger.warning(
                    "The model does not know the tag %s, so it may write "
                    "another language; its tags: %s.",
                    tag.decode(errors="replace"),
                    some(tuple(x for x in self._names if x[:2] == ">>")),
                )

    def _split_tags(
        self, text: tf.Tensor | Sequence[str]
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Split each text into its tag, `(B, 0 or 1)`, and the rest, `(B,)`."""
        text = as_strings(text)
        has_tag = tf.strings.regex_full_match(text, _TAG) & self._has_tags
        tags = tf.strings.regex_replace(text, _TAG, r"\1")
        rest = tf.strings.regex_replace(text, _TAG, r"\2")
        return (
            tf.RaggedTensor.from_row_lengths(
                tf.boolean_mask(tags, has_tag), tf.cast(has_tag, tf.int64)
            ),
            tf.where(has_tag, rest, text),
        )

    def _ids(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """Look up the id of each piece, int32."""
        ids = self._table.lookup(pieces.values)
        return pieces.with_values(tf.cast(ids, tf.int32))

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        # Pieces of the other side come out by their names.
        if self.target is not self:
            return self.target._join(ids)
        text = self._run("detokenize", tf.gather(tf.constant(self._names), ids))
        return tf.strings.strip(tf.strings.regex_replace(text, "▁", " "))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._names[int(piece_id)] for piece_id in ids]
