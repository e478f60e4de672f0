"""Learns the pieces of a vocabulary from text: byte pairs, by sentencepiece.

Characters are counted first, since rare ones get no piece, and pieces are
learnt from the rest. So the text, or a random sample of it, is kept in a file.
"""

import collections
import contextlib
import io
import itertools
import os
import pathlib
import tempfile
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import sentencepiece

from keras_transformer import config
from keras_transformer.data import sentencepiece_file
from keras_transformer.data.source_reading import is_visible
from keras_transformer.data.symbols import Form
from keras_transformer.data.texts import checked_texts
from keras_transformer.machine import files

# The four roles, the 256 bytes that spell rare characters, and the space.
RESERVED_PIECES = 4 + 256 + 1
# Beyond this many sentences, a random sample trains the vocabulary.
MAX_TRAINING_SENTENCES = 5_000_000
# A character seldomer than this share of the text is spelled in bytes. A model
# learns from such what bytes mean, and can copy characters that it never saw.
RARE = 1 / 100_000
# Likewise of those that show nothing, since a source reads them as a space or
# nothing: a few stray ones are better no piece.
RARE_BLANK = 1 / 10_000
# In bytes; sentencepiece skips longer sentences.
MAX_SENTENCE_BYTES = 65_536
# Lines drawn at a time.
CHUNK = 8192
# All draws are below this.
DRAWS = 2**32


def learn(
    sentences: Iterable[str],
    vocab_size: int,
    folder: pathlib.Path,
    symbols: list[str],
    normalization: str | None,
) -> bytes:
    """Learn a sentencepiece model, as `Tokenizer.train` says.

    The text is kept in `folder` meanwhile.
    """
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=files.PARTIAL
    ) as partial:
        texts = checked_texts("sentences", sentences, in_utf_8=True)
        _refuse_a_path(sentences)
        text = Sample(f"{partial}/sentences.txt", texts, MAX_TRAINING_SENTENCES)
        if normalization == "nfkc":
            rules = {"normalization_rule_name": "nmt_nfkc"}
            return _train_model(text, vocab_size, symbols, rules)
        file = os.path.join(partial, "rules.tsv")
        sentencepiece_file.write_rules(file)
        rules = {"normalization_rule_tsv": file}
        model = _train_model(text, vocab_size, symbols, rules)
        return sentencepiece_file.with_named_rules(model)


class Sample:
    """Lines of text: all of them, or a random sample in their order.

    Every line draws a number, and the lowest are the sample. A line that
    cannot be among them never reaches the file, so the file stays small.

    Args:
        path: The file to write.
        texts: Texts of one line or several.
        most: Lines in the sample.
        seed: Fixes the sample.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        texts: Iterable[str],
        most: int,
        seed: int = 1,
    ) -> None:
        self.path, limit = path, DRAWS
        lines = itertools.chain.from_iterable(
            text.split("\n") for text in texts
        )
        random = np.random.default_rng(seed)
        drawn = [np.zeros(0, np.uint32)]  # One for each line of the file.
        written = 0
        next_look = 2 * most
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            while chunk := list(itertools.islice(lines, CHUNK)):
                draws = random.integers(0, DRAWS, len(chunk), np.uint32)
                keep = draws < limit
                file.writelines(
                    f"{line}\n" for line in itertools.compress(chunk, keep)
                )
                drawn.append(draws[keep])
                written += len(drawn[-1])
                if written >= next_look:
                    limit = _limit(np.concatenate(drawn), most)
                    next_look += most
        self.draws = np.concatenate(drawn)
        self.limit = _limit(self.draws, most)

    def lines(self) -> Generator[str, None, None]:
        """Read the lines of the sample, without their ends."""
        with open(self.path, encoding="utf-8", newline="\n") as file:
            for line in itertools.compress(file, self.draws < self.limit):
                yield line.removesuffix("\n")


def _limit(draws: np.ndarray, most: int) -> int:
    """Find the value that at most `most` of the draws are below."""
    return int(np.partition(draws, most)[most]) if len(draws) > most else DRAWS


def _refuse_a_path(sentences: Iterable[str]) -> None:
    """Refuse a file's name instead of its lines."""
    is_file = False
    if isinstance(sentences, Sequence) and len(sentences) == 1:
        with contextlib.suppress(TypeError, ValueError):  # Not a name.
            is_file = os.path.exists(sentences[0])
    if is_file:
        raise config.SettingError(
            "sentences", "texts, such as the lines of a file", sentences
        )


def _train_model(
    text: Sample, vocab_size: int, symbols: list[str], rules: dict[str, Any]
) -> bytes:
    """Train on some lines, without the characters that get no piece."""
    is_folded = "normalization_rule_name" in rules
    form: Form = "NFKC" if is_folded else "NFC"
    most = vocab_size - RESERVED_PIECES - len(symbols)
    rare = _rare_characters(text, form, most)
    model = io.BytesIO()
    # Left out if there are none, since the model stores its arguments.
    extra: dict[str, Any] = {"user_defined_symbols": symbols} if symbols else {}
    raised: list[BaseException] = []

    def normalized(lines: Iterable[str]) -> Iterator[str]:
        # For sentencepiece an error is the end of the lines.
        try:
            for line in lines:
                yield unicodedata.normalize(form, line).translate(rare)
        except (Exception, KeyboardInterrupt) as error:
            raised.append(error)
            raise

    # Fixes how sentencepiece shuffles the lines.
    sentencepiece.set_random_generator_seed(1)
    try:
        with contextlib.closing(text.lines()) as lines:
            sentencepiece.SentencePieceTrainer.Train(
                # Not `input`, which would put the path into the model.
                sentence_iterator=normalized(lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                # Without it, a size too large for the text is an error.
                hard_vocab_limit=False,
                # Of the characters that are left.
                character_coverage=1.0,
                byte_fallback=True,
                pad_id=config.PAD_ID,
                unk_id=config.UNK_ID,
                bos_id=config.BOS_ID,
                eos_id=config.EOS_ID,
                input_sentence_size=MAX_TRAINING_SENTENCES,
                shuffle_input_sentence=True,
                max_sentence_length=MAX_SENTENCE_BYTES,
                minloglevel=3,
                **rules,
                **extra,
            )
    except RuntimeError as error:
        if raised:
            raise raised[0] from None
        raise config.UserError(
            "Expected sentences to learn a vocabulary from, received none that "
            "sentencepiece can use; check the corpus."
        ) from error
    return model.getvalue()


def _rare_characters(text: Sample, form: Form, most: int) -> dict[int, str]:
    """Map the characters that get no piece to spaces, for `str.translate`."""
    counts: collections.Counter[str] = collections.Counter()
    with contextlib.closing(text.lines()) as lines:
        for line in lines:
            counts.update(unicodedata.normalize(form, line))
    total = counts.total()
    del counts[" "]
    rare = {
        x: count
        for x, count in counts.items()
        if count < total * (RARE if is_visible(x) else RARE_BLANK)
    }
    rare.update(counts.most_common()[most:])
    return dict.fromkeys(map(ord, rare), " ")
