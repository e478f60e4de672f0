"""One subword vocabulary for both languages (section 5.1).

sentencepiece trains the byte-pair encoding, and tensorflow-text runs it inside
the graph, so that a SavedModel takes and returns text.

Text is composed (`data.learning`), runs of spaces become one, and those at
either end are removed. A source is read generously (`data.source_reading`);
a target survives `detokenize(target.tokenize(text))` unchanged, but for U+FFFD
at its end: a character without a piece is spelled in bytes. Bytes that are not
UTF-8 become U+FFFD.
"""

import collections
import contextlib
import contextvars
import functools
import logging
import os
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text

from keras_transformer import config
from keras_transformer.data import (
    kept_spans,
    sentencepiece_file,
    source_reading,
)
from keras_transformer.data.pieces import (
    TERM_SYMBOLS,
    TOKENIZER_FILE,
    read_symbols,
)
from keras_transformer.data.texts import checked_texts
from keras_transformer.machine import files
from keras_transformer.settings import whole_number

logger = logging.getLogger("keras_transformer")

_shares_operators = contextvars.ContextVar("shared operators", default=False)

_SPECIAL_IDS = (config.PAD_ID, config.UNK_ID, config.BOS_ID, config.EOS_ID)
SOURCE, TARGET = "source", "target"
NUM_SPECIAL = len(_SPECIAL_IDS)  # They come first.
# A text of characters that show nothing.
_INVISIBLE = r"[\p{Z}\p{Cc}\p{Cf}]*"


class Tokenizer(tf.Module):
    """Turns text into ids and back, in Python or inside a `tf.function`.

    It is a `tf.Module`, so that a SavedModel holds its vocabulary, whose bytes
    are also what it is pickled as.

    Args:
        model: A serialised sentencepiece model whose ids are `PAD_ID`,
            `UNK_ID`, `BOS_ID` and `EOS_ID` of `config`.
        side: The texts that this one reads: `"source"`, generously, or
            `"target"`, exactly.

    Attributes:
        vocab_size: Number of pieces.
        pad_id: Fills batches; no text has it.
        unk_id: Stands for an unknown piece.
        bos_id: Begins a model's `target_in`; no text has it.
        eos_id: Ends the ids of every text.
        ids: The four as a search needs them.
        model: The serialised sentencepiece model.
        spm: The model that reads texts of this side.
        target: The tokenizer of target texts.
    """

    pad_id, unk_id, bos_id, eos_id = _SPECIAL_IDS
    _operator: Mapping[str, Any] = dict(out_type=tf.int32, add_eos=True)

    def __init__(self, model: bytes, side: str = SOURCE) -> None:
        super().__init__(name=f"{side}_tokenizer")
        self._pieces = pieces = sentencepiece.SentencePieceProcessor()
        with contextlib.suppress(RuntimeError, TypeError):
            pieces.LoadFromSerializedProto(model)
        ids = pieces.pad_id(), pieces.unk_id(), pieces.bos_id(), pieces.eos_id()
        if ids != _SPECIAL_IDS:
            raise ValueError(
                "`model` must be the bytes of a sentencepiece model with the "
                f"ids (PAD, UNK, BOS, EOS) = {_SPECIAL_IDS}, as spm_train does "
                "with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3. "
                f"Received: ids {ids}"
            )
        self.vocab_size: int = pieces.GetPieceSize()
        self.model = self.spm = model
        if side == SOURCE:
            self.spm = source_reading.for_sources(model)
            pieces.LoadFromSerializedProto(self.spm)
        self._begin(side)

    def _begin(self, side: str) -> None:
        self.load_operator()
        self._side, is_target = side, side == TARGET
        self.target = self if is_target else type(self)(self.model, TARGET)

    def __reduce__(self) -> tuple:
        return type(self), (self.model, self._side)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size})"

    @functools.cached_property
    def ids(self) -> config.SpecialIds:
        names = self.pieces(range(self.vocab_size))
        places = {name: place for place, name in enumerate(names)}
        found = (places.get(f"<0x{byte:02X}>") for byte in range(256))
        of_bytes = tuple(place for place in found if place is not None)
        return config.OURS._replace(bytes=of_bytes * (len(of_bytes) == 256))

    @functools.cached_property
    def has_marks(self) -> bool:
        """Whether it has the symbols that mark terms."""
        return {*TERM_SYMBOLS} <= {*self.pieces(range(self.vocab_size))}

    def fits(self, vocab_size: int) -> bool:
        """Return whether a model's logits are of this vocabulary."""
        return vocab_size == self.vocab_size

    def load_operator(self) -> None:
        """Load the vocabulary into TensorFlow; call it again after a new seed.

        Setting a seed clears TensorFlow's eager kernels, and the vocabulary
        of a tensorflow-text operator lives in one (tensorflow/text #570). The
        next text would load it too, but with a warning from TensorFlow.
        """
        self.processor = self._make_operator()

    def _make_operator(self) -> tensorflow_text.SentencepieceTokenizer:
        # Those of one name share a model once loaded.
        name = f"{self.name}_{zlib.crc32(self.spm):08x}"
        return tensorflow_text.SentencepieceTokenizer(
            model=self.spm, name=name, **self._operator
        )

    def _run(self, method: str, values: tf.Tensor) -> tf.Tensor:
        """Call the operator, which `tf.random.set_seed` may have unloaded."""
        is_shared = tf.executing_eagerly() or _shares_operators.get()
        processor = self.processor if is_shared else self._make_operator()
        try:
            return getattr(processor, method)(values)
        except tf.errors.NotFoundError:
            self.load_operator()
            return getattr(self.processor, method)(values)

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocab_size: int,
        path: str | os.PathLike,
        symbols: Sequence[str] = (),
        in_pairs: bool = False,
    ) -> "Tokenizer":
        """Learn a vocabulary and write it to `path`, whole or not at all.

        The same sentences in the same order give the same file.

        Args:
            sentences: Sentences of both languages; iterated once. If there
                are more than five million, a random sample is used.
            vocab_size: Number of pieces, more than 261. If the sentences
                cannot fill this size, the largest possible one is used and a
                warning logged. Characters that are less than one in 100,000
                (one in 10,000 if they show nothing, such as no-break spaces),
                and the rarest of those that the size cannot hold, get no
                piece: they are spelled in bytes. Letters without case, such as
                kanji, get pieces until 99.95 % of them are covered or a third
                of the size is full.
            path: File to write; its folder must exist.
            symbols: Strings that stay one piece each, as in
                `pieces.read_symbols`; `pieces` has them after the four ids.
            in_pairs: Whether a source and its target take turns, as in
                `corpus.sentences`. Then sources read a character that only
                the targets gave a piece as if it had none.
        """
        from keras_transformer.data import learning

        vocab_size = whole_number("vocab_size", vocab_size)
        symbols = read_symbols(symbols) if symbols else ()
        reserved = learning.RESERVED_PIECES + len(symbols)
        if vocab_size <= reserved:
            raise config.UserError(
                f"Expected a vocabulary size above {reserved} (four special "
                "ids, the symbols, 256 bytes and the space come first), "
                f"received {vocab_size}; ask for more, such as 8000."
            )
        folder = pathlib.Path(path).parent
        model = learning.learn(sentences, vocab_size, folder, symbols, in_pairs)
        tokenizer = cls(model)
        size = tokenizer.vocab_size
        if size != vocab_size:
            said = "The vocabulary has %d pieces instead of %d: the text has no"
            logger.warning(f"{said} more.", size, vocab_size)
        tokenizer.save(path)
        return tokenizer

    def with_symbols(self, symbols: Sequence[str]) -> "Tokenizer":
        """Return this vocabulary with strings that stay one piece each.

        Every other piece keeps its id; new ones come last.

        Args:
            symbols: As in `train`.
        """
        if not symbols:
            return self
        if self.target.spm != self.model:
            raise config.UserError(
                "Expected one vocabulary to add `symbols` to, found two, of an "
                "imported run; leave them out, or give another `tokenizer`."
            )
        pieces = read_symbols(symbols)
        return type(self)(sentencepiece_file.with_pieces(self.model, pieces))

    def save(self, path: str | os.PathLike) -> None:
        """Write the sentencepiece model to a file, whole or not at all."""
        with files.open_whole(path) as file:
            file.write(self.model)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        """Read a file that `train` wrote, or another sentencepiece model.

        Args:
            path: The file, or a run directory that holds one. The two
                vocabularies of an imported run are `Run(…).translator()
                .tokenizer`.
        """
        if not isinstance(path, str | os.PathLike):
            expected = "a `Tokenizer` or the path of a sentencepiece model"
            raise config.SettingError("tokenizer", expected, path)
        path = pathlib.Path(path)
        if path.is_dir():
            path = path / TOKENIZER_FILE
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise config.UserError(
                f"Expected a vocabulary at {path}, found none "
                f"({error.strerror}); give a run or a sentencepiece model."
            ) from None
        except ValueError as error:
            raise config.UserError(
                f"{path} is not a vocabulary that this package can use "
                f"({error}); restore the file or train another one."
            ) from None

    def tokenize(self, text: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Turn each text into ids that end with `EOS_ID`.

        Args:
            text: String tensor `(B,)` in UTF-8, or a list of `str`.

        Returns:
            Ragged int32 `(B, None)`. A text of spaces and invisible characters
            is only `EOS_ID`, as an empty one is.
        """
        text = as_strings(text)
        if self.has_marks and self._side == SOURCE:
            text, _ = kept_spans.put_away(text)
        is_blank = tf.strings.regex_full_match(text, _INVISIBLE)
        return self._run("tokenize", tf.where(is_blank, "", text))

    def tokenize_many(
        self, texts: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize in bulk, segmenting each word once.

        Returns:
            The ids of all texts end to end, int32 `(sum of lengths,)`, and
            the length of each, int64 `(len(texts),)`.
        """
        given = checked_texts("texts", texts)
        texts = [x if source_reading.is_visible(x) else "" for x in given]
        with contextlib.suppress(UnicodeError, RuntimeError):  # Told below.
            if self._words and (rows := self._words.tokenize(texts)):
                return rows
        ragged = self.tokenize(texts)
        return ragged.values.numpy(), ragged.row_lengths().numpy()

    @functools.cached_property
    def _words(self) -> sentencepiece_file.Words | None:
        is_possible = sentencepiece_file.are_independent(self.model)
        return sentencepiece_file.Words(self._pieces) if is_possible else None

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Turn ids into the text before the first `EOS_ID`.

        `PAD_ID` and `BOS_ID` leave no trace, `UNK_ID` reads " ⁇ ", bytes that
        spell no character read U+FFFD, and nothing at the end.

        Args:
            ids: Integer tensor `(..., L)`, dense or ragged, each at least 0
                and below `vocab_size`.

        Returns:
            String tensor `(...)` in UTF-8, ragged where `ids` is ragged in
            more than its last axis.
        """
        if isinstance(ids, tf.RaggedTensor):
            if ids.ragged_rank > 1:
                return ids.with_values(self.detokenize(ids.values))
            ids = ids.to_tensor(config.PAD_ID)
        return text_of(ids, config.OURS, self._join)

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Join ids of pieces, ragged `(N, None)`, to texts `(N,)`."""
        text = self._run("detokenize", ids)
        # A limit of length may have cut the last character between its bytes.
        return tf.strings.regex_replace(text, " *\ufffd+$", "")

    def spelled(self, ids: np.ndarray) -> collections.Counter[str]:
        """Count the characters that ids spell in bytes, or as `UNK_ID`: "⁇"."""
        values = np.full(self.vocab_size, -1)  # The byte of each piece.
        values[[*self.ids.bytes]] = range(len(self.ids.bytes))
        of_ids = values[ids]
        text = bytes(of_ids[of_ids >= 0].astype(np.uint8))
        counts = collections.Counter(text.decode("utf-8", "replace"))
        counts["⁇"] += int((ids == config.UNK_ID).sum())
        return +counts

    _told_unmet = ""

    def log_unmet(self, ids: np.ndarray) -> None:
        """Log which characters of texts have no piece, if any."""
        counts = self.spelled(ids)
        named = " ".join(x for x, _ in counts.most_common(12))
        said = f"{named} ({counts.total()} times in these texts)"
        # A training validates the same texts again and again.
        if counts and said != self._told_unmet:
            self._told_unmet = said
            known = "The vocabulary has no piece for %s: the model may read"
            logger.info(f"{known} them as anything.", said)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Name the piece of each id, "▁" for a space, as attention plots do."""
        return [self._pieces.IdToPiece(int(piece_id)) for piece_id in ids]


def text_of(
    ids: tf.Tensor,
    special: config.SpecialIds,
    join: Callable[[tf.RaggedTensor], tf.Tensor],
) -> tf.Tensor:
    """Join the pieces of ids `(..., L)` before their end to texts `(...)`."""
    ids = tf.cast(ids, tf.int32)
    shape = tf.shape(ids)
    # (N, L), also where N or L is 0.
    rows = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
    has_ended = tf.cumsum(tf.cast(rows == special.eos, tf.int32), axis=1) > 0
    is_silent = has_ended | (rows == special.pad) | (rows == special.bos)
    text = join(tf.ragged.boolean_mask(rows, ~is_silent))
    text = tf.reshape(text, shape[:-1])
    text.set_shape(ids.shape[:-1])
    return text


def as_strings(text: tf.Tensor | Sequence[str]) -> tf.Tensor:
    """Convert texts to a string tensor; UserError if one is not a text."""
    if isinstance(text, str):
        raise config.SettingError("text", "a list of texts", text)
    try:  # An empty list would become float32.
        return tf.convert_to_tensor(text, tf.string)
    except (TypeError, ValueError, RuntimeError):
        list(checked_texts("text", text, in_utf_8=True))  # Names its place.
        raise


@contextlib.contextmanager
def shared_operators() -> Iterator[None]:
    """Let graphs that are traced use the vocabularies of their `Tokenizer`.

    A SavedModel has them once then. Other graphs have their own, since they
    could not load those again after `tf.random.set_seed`.
    """
    token = _shares_operators.set(True)
    try:
        yield
    finally:
        _shares_operators.reset(token)
