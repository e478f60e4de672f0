"""Learns the pieces of a vocabulary from text: byte pairs, by sentencepiece.

Characters are counted first, since rare ones get no piece, and pieces are
learnt from the rest. So the text, or a sample of it, is kept in a file.

Its rules (`nfc`) write the same text in one way, that of Unicode's NFC, except
that singletons, such as U+FA19 in Japanese names, stay, and so does the order
of marks that do not compose, unless they are up to three points of one script,
such as a vowel and the doubling of Hebrew or Arabic. Tabs, line ends and spaces
at which a line may break become a space. Control characters but the zero byte,
and byte-order marks, go. No-break spaces, the ideographic space, joiners,
zero-width spaces, marks of direction and U+FFFD stay.
"""

import bisect
import collections
import functools
import io
import itertools
import logging
import math
import os
import pathlib
import re
import sys
import tempfile
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sentencepiece

from keras_transformer import config
from keras_transformer.data.pieces import SPACE
from keras_transformer.data.sentencepiece_file import NFC, parse_model
from keras_transformer.data.source_reading import is_singleton, is_visible
from keras_transformer.data.texts import checked_texts
from keras_transformer.machine import files

logger = logging.getLogger("keras_transformer")
# The four roles, the 256 bytes that spell rare characters, and the space.
RESERVED_PIECES = 4 + 256 + 1
# Beyond this many sentences, a random sample trains the vocabulary.
MAX_TRAINING_SENTENCES = 5_000_000
# A character seldomer than this share of the text is spelled in bytes. A model
# learns from such what bytes mean, and can copy characters that it never saw.
RARE = 1 / 100_000
# Letters of a script without capitals, such as Chinese, are counted among
# themselves: they get a piece until they cover this share of all such letters,
# as sentencepiece's authors advise where there are thousands, or fill this part
# of the vocabulary. A few of them in other text are no language.
COVERAGE = 0.9995
MOST_LETTERS = 1 / 3
LANGUAGE = 1 / 100
# Likewise of those that show nothing, since a source reads them as a space or
# nothing: a few stray ones are better no piece.
RARE_BLANK = 1 / 10_000
_OPTIONS: dict[str, Any] = {
    "model_type": "bpe",
    # Without it, a size too large for the text is an error.
    "hard_vocab_limit": False,
    # Of the characters that are left.
    "character_coverage": 1.0,
    "byte_fallback": True,
    "pad_id": config.PAD_ID,
    "unk_id": config.UNK_ID,
    "bos_id": config.BOS_ID,
    "eos_id": config.EOS_ID,
    "input_sentence_size": MAX_TRAINING_SENTENCES,
    "shuffle_input_sentence": True,
    "max_sentence_length": 65_536,  # Bytes; longer sentences are skipped.
    "minloglevel": 3,
}
# Combining classes of points that belong to one script, such as vowels.
_POINTS = range(1, 200)
# Points in a row that are put in order.
_MOST_POINTS = 3
_BYTE_ORDER_MARK = "\ufeff"
_LINE_ENDS = "\t\n\v\f\r\x85"
# Inside pieces "▁" stands for a space, and this, which no text has, for "▁".
_NONCHARACTER = "\ufdd0"


def learn(
    sentences: Iterable[str],
    vocab_size: int,
    folder: pathlib.Path,
    whole: Sequence[str],
    in_pairs: bool,
) -> bytes:
    """Learn a sentencepiece model, as `Tokenizer.train` says.

    The text is kept in `folder` meanwhile; the strings `whole` stay one piece.
    """
    texts = checked_texts("sentences", sentences, in_utf_8=True)
    most = vocab_size - RESERVED_PIECES - len(whole)
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=files.PARTIAL
    ) as partial:
        text = Sample(f"{partial}/sentences.txt", texts, in_pairs)
        characters = itertools.chain.from_iterable(text.lines())
        counts = collections.Counter(characters)
        kept = _kept(counts, most, tell=True)
        rare = dict.fromkeys(map(ord, counts.keys() - kept), " ")
        back = {_NONCHARACTER: SPACE}
        extra: dict[str, Any] = {
            "normalization_rule_tsv": _written(partial, "in", _rules()),
            "denormalization_rule_tsv": _written(partial, "out", back),
        }
        if whole:  # The model stores its arguments, empty ones too.
            extra["user_defined_symbols"] = list(whole)
        lines = (line.translate(rare) for line in text.lines())
        model = _train(lines, vocab_size=vocab_size, **extra)
    proto = parse_model(model)
    if in_pairs:  # What has a piece because of the targets alone.
        unmet = filter(_may_be_read, kept - _kept(text.of_sources, most))
        proto.unmet_in_sources = "".join(sorted(unmet))
    # Name the rules, instead of the files that they came from.
    proto.normalizer_spec.name = NFC
    for rules in proto.normalizer_spec, proto.denormalizer_spec:
        rules.ClearField("normalization_rule_tsv")
    return bytes(proto.SerializeToString())


class Sample:
    """Lines of text in a file: all of them, or so many that memory holds them.

    A line's checksum decides, and the bound sinks as lines come, so that the
    file stays small. Characters of sources, every other text `in_pairs`, are
    counted.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        texts: Iterable[str],
        in_pairs: bool = False,
    ) -> None:
        self.path, self.bound, written = path, 1 << 32, 0
        self.of_sources = collections.Counter[str]()
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for number, text in enumerate(texts):
                lines = map(_composed, text.split("\n"))
                for line in filter(self._has, lines):
                    file.write(f"{line}\n")
                    written += 1
                    if in_pairs and number % 2 == 0:
                        self.of_sources.update(line)
                    if written == 2 * MAX_TRAINING_SENTENCES:
                        self.bound, written = self.bound // 2, written // 2

    def _has(self, line: str) -> bool:
        return zlib.crc32(line.encode()) < self.bound

    def lines(self) -> Iterator[str]:
        """Read the lines, in the form of Unicode that the vocabulary sees."""
        with open(self.path, encoding="utf-8", newline="\n") as file:
            yield from filter(self._has, (x.removesuffix("\n") for x in file))


def _composed(line: str) -> str:
    return _composable().sub(lambda x: unicodedata.normalize("NFC", x[0]), line)


@functools.cache
def _composable() -> re.Pattern:
    singletons = filter(is_singleton, map(chr, range(sys.maxunicode + 1)))
    return re.compile(f"[^{''.join(singletons)}]+")


def _kept(
    counts: collections.Counter[str], most: int, tell: bool = False
) -> set[str]:
    """Choose the characters that get pieces, at most so many."""
    total = counts.total()
    del counts[" "]
    common = counts.most_common()
    letters = [x for x, _ in common if unicodedata.category(x) == "Lo"]
    sums = [0, *itertools.accumulate(counts[x] for x in letters)]
    if sums[-1] < LANGUAGE * counts.total():
        sums = [0]
    letters = letters[: bisect.bisect_left(sums, COVERAGE * sums[-1])]
    covered = {*letters[: int(most * MOST_LETTERS)]}
    kept = {
        x
        for x, count in counts.most_common(most)
        if count >= total * (RARE if is_visible(x) else RARE_BLANK)
        or x in covered
    }
    if tell and (missing := len({*letters} - kept)):
        size = RESERVED_PIECES + math.ceil(len(letters) / MOST_LETTERS)
        said = "%d everyday letters get no piece; %d pieces would hold all."
        logger.info(said, missing, size)
    return kept


def _may_be_read(character: str) -> bool:
    """Return whether it is no letter that only its case tells from another."""
    has_case = character.lower() != character.upper()
    return not (has_case and unicodedata.is_normalized("NFKC", character))


def _train(lines: Iterator[str], **extra: Any) -> bytes:
    """Train on lines; if they fail, sentencepiece would take it for the end."""
    model = io.BytesIO()
    raised: list[BaseException] = []

    def watched() -> Iterator[str]:
        try:
            yield from lines
        except BaseException as error:
            raised.append(error)
            raise

    # Fixes how sentencepiece shuffles the lines.
    sentencepiece.set_random_generator_seed(1)
    try:
        sentencepiece.SentencePieceTrainer.Train(
            # Not `input`, which would put the path into the model.
            sentence_iterator=watched(),
            model_writer=model,
            **_OPTIONS,
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


def _written(folder: str, name: str, rules: Mapping[str, str]) -> str:
    """Write rules as sentencepiece reads them, and return their file."""
    # It replaces the longest text first, and looks at each place once.
    path = f"{folder}/{name}.tsv"
    with open(path, "w", encoding="ascii", newline="\n") as file:
        for text, replacement in sorted(rules.items()):
            for end, part in ("\t", text), ("\n", replacement):
                file.write(" ".join(f"{ord(x):X}" for x in part) + end)
    return path


def _rules() -> dict[str, str]:
    """Map every text of a few characters that `nfc` changes."""
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
            points[unicodedata.name(character).split()[0]].append(character)
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
        and not (len(text) == 1 and is_singleton(text))
    }
    control = (x for x in characters if unicodedata.category(x) == "Cc")
    rules |= dict.fromkeys([*control, _BYTE_ORDER_MARK], "")
    rules |= dict.fromkeys(filter(_is_space, characters), " ")
    rules[SPACE] = _NONCHARACTER
    # Neither needs a rule, and sentencepiece takes none for the zero byte.
    del rules["\0"], rules[" "]
    return rules


def _is_space(character: str) -> bool:
    """Return whether it ends a line, or a line may break at it."""
    if unicodedata.category(character) in ("Zs", "Zl", "Zp"):
        kind = unicodedata.decomposition(character).partition(" ")[0]
        return kind not in ("<noBreak>", "<wide>")
    return character in _LINE_ENDS


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
