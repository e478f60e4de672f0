"""Learns the pieces of a vocabulary from text: byte pairs, by sentencepiece.

Characters are counted first, since rare ones get no piece, and pieces are
learnt from the rest. So the text, or a random sample of it, is kept in a file.

A vocabulary has one of two sets of rules, which normalise its text.

`nfc` changes no character into another: it writes the same text in one way.
Every spelling of a composed character becomes that character (U+00E9 for "e"
and U+0301, a Hangul syllable for its letters), and up to three points of one
script that follow each other, such as a vowel and the doubling of Hebrew or
Arabic, come in Unicode's order. That is Unicode's NFC, except that other marks
that do not compose stay in the order in which they were written, and keep
later ones from composing. The text stays canonically equivalent even then.
Tabs, line ends and spaces at which a line may break become a space. Control
characters but the zero byte, and byte-order marks, go. No-break spaces, the
ideographic space, joiners, zero-width spaces, marks of direction and U+FFFD
stay. "▁" stands for the space inside pieces, so it becomes one too.

`nfkc` is sentencepiece's `nmt_nfkc`, which folds much more: Unicode NFKC,
except that "～" stays as it is. Every kind of space and U+FFFD become a space,
U+200C too; zero-width spaces and marks of direction go, and so do control
characters other than the zero byte and U+0085.

The rules of `nfc` know the Unicode version of the Python that trains a
vocabulary; the vocabulary keeps them.
"""

import collections
import contextlib
import io
import itertools
import os
import pathlib
import sys
import tempfile
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece

from keras_transformer import config
from keras_transformer.data.sentencepiece_file import NFC, parse_model
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
# Combining classes of points that belong to one script, such as vowels.
_POINTS = range(1, 200)
# Points in a row that are put in order.
_MOST_POINTS = 3
# The byte-order mark, and what stands for the space inside pieces.
_DELETED, _SPACES = "\ufeff", "▁"
_LINE_ENDS = "\t\n\v\f\r\x85"


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
    # Left out if there are none, since the model stores its arguments.
    extra: dict[str, Any] = {"user_defined_symbols": symbols} if symbols else {}
    most = vocab_size - RESERVED_PIECES - len(symbols)
    texts = checked_texts("sentences", sentences, in_utf_8=True)
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=files.PARTIAL
    ) as partial:
        _refuse_a_path(sentences)
        text = Sample(f"{partial}/sentences.txt", texts, MAX_TRAINING_SENTENCES)
        if normalization == "nfkc":
            extra["normalization_rule_name"] = "nmt_nfkc"
            return _train(text, "NFKC", most, vocab_size=vocab_size, **extra)
        extra["normalization_rule_tsv"] = f"{partial}/rules.tsv"
        write_rules(extra["normalization_rule_tsv"])
        model = _train(text, "NFC", most, vocab_size=vocab_size, **extra)
    # Name the rules, instead of the file that they came from.
    proto = parse_model(model)
    proto.normalizer_spec.name = NFC
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return bytes(proto.SerializeToString())


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
        lines = (line for text in texts for line in text.split("\n"))
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
        expected = "texts, such as the lines of a file"
        raise config.SettingError("sentences", expected, sentences)


def _train(text: Sample, form: Form, most: int, **extra: Any) -> bytes:
    """Train on some lines, without all but `most` of their characters."""
    rare = _rare_characters(text, form, most)
    model = io.BytesIO()
    raised: list[BaseException] = []
    # Fixes how sentencepiece shuffles the lines.
    sentencepiece.set_random_generator_seed(1)
    try:
        sentencepiece.SentencePieceTrainer.Train(
            # Not `input`, which would put the path into the model.
            sentence_iterator=_normalized(text, form, rare, raised),
            model_writer=model,
            model_type="bpe",
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


def _normalized(
    text: Sample, form: Form, rare: dict[int, str], raised: list[BaseException]
) -> Iterator[str]:
    """Read lines as they will be; keep an error, for sentencepiece an end."""
    try:
        for line in text.lines():
            yield unicodedata.normalize(form, line).translate(rare)
    except (Exception, KeyboardInterrupt) as error:
        raised.append(error)
        raise


def _rare_characters(text: Sample, form: Form, most: int) -> dict[int, str]:
    """Map the characters that get no piece to spaces, for `str.translate`."""
    counts: collections.Counter[str] = collections.Counter()
    for line in text.lines():
        counts.update(unicodedata.normalize(form, line))
    total = counts.total()
    del counts[" "]
    rare = {x for x, _ in counts.most_common()[most:]}
    for x, count in counts.items():
        if count < total * (RARE if is_visible(x) else RARE_BLANK):
            rare.add(x)
    return dict.fromkeys(map(ord, rare), " ")


def write_rules(path: str | os.PathLike) -> None:
    """Write `nfc` as a `normalization_rule_tsv` of sentencepiece.

    Each line has the code points of a text, a tab and those that replace it.
    sentencepiece replaces the longest text first, and looks at each place once.
    """
    with open(path, "w", encoding="ascii", newline="\n") as file:
        for text, replacement in sorted(_rules().items()):
            for end, part in ("\t", text), ("\n", replacement):
                file.write(" ".join(f"{ord(x):X}" for x in part) + end)


def _rules() -> dict[str, str]:
    """Map every text of a few characters that is not as it should be."""
    characters = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) not in ("Cs", "Cn", "Co")
    ]
    # By their full decomposition.
    composed = collections.defaultdict(list)
    points = collections.defaultdict(list)  # By script.
    for character in characters:
        if not unicodedata.is_normalized("NFD", character):
            composed[unicodedata.normalize("NFD", character)].append(character)
        if unicodedata.combining(character) in _POINTS:
            script = unicodedata.name(character).split()[0]
            points[script].append(character)
    texts = itertools.chain(
        characters,
        *(
            _spellings(parts, composed)
            for parts in composed
            if len(unicodedata.normalize("NFC", parts)) < len(parts)
        ),
        *(
            map("".join, itertools.permutations(of_script, count))
            for of_script in points.values()
            for count in range(2, _MOST_POINTS + 1)
        ),
    )
    rules = {
        text: unicodedata.normalize("NFC", text)
        for text in texts
        if not unicodedata.is_normalized("NFC", text)
    }
    for character in characters:
        if _is_space(character):
            rules[character] = " "
        elif unicodedata.category(character) == "Cc" or character in _DELETED:
            rules[character] = ""
    # Neither needs a rule, and sentencepiece takes none for the zero byte.
    del rules["\0"], rules[" "]
    return rules


def _is_space(character: str) -> bool:
    """Return whether it ends a line, or a line may break at it."""
    if unicodedata.category(character) in ("Zs", "Zl", "Zp"):
        kind = unicodedata.decomposition(character).partition(" ")[0]
        return kind not in ("<noBreak>", "<wide>")
    return character in _LINE_ENDS + _SPACES


def _spellings(
    parts: str, composed: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Write fully decomposed text in every canonically equivalent way."""
    for marks in set(itertools.permutations(parts[1:])):
        ordered = parts[0] + "".join(marks)
        if unicodedata.normalize("NFD", ordered) == parts:
            yield from _partly_composed(ordered, composed)


def _partly_composed(
    parts: str, composed: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Compose no, some or all neighbours of a text."""
    if not parts:
        yield ""
    for end in range(1, len(parts) + 1):
        begins = [*parts[:end]] if end == 1 else []
        for begin in [*begins, *composed.get(parts[:end], ())]:
            for rest in _partly_composed(parts[end:], composed):
                yield begin + rest
