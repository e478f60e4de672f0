"""Aligned text in a folder of `SPLIT.LANG` files, plain or gzipped."""

import functools
import gzip
import hashlib
import pathlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from keras_transformer.config import UserError
from keras_transformer.data import lines
from keras_transformer.data.corpus import Corpus, Pair, some

# Bytes read at a time.
BLOCK_BYTES = 1 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def open_folder(name: str, source_lang: str, target_lang: str) -> Corpus:
    """Find the splits of a folder that have both languages.

    Args:
        name: The folder.
        source_lang: Language code, as in the file names.
        target_lang: Another one.

    Raises:
        UserError: If there is no such folder, or no split has both.
    """
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise UserError(
            "Expected demo, a folder or tfds:NAME as corpus, received "
            f"{name}, which is no folder; check the path that --corpus names."
        )
    files = tuple(sorted(p.name for p in folder.iterdir() if p.is_file()))
    sides = [
        {
            stem
            for stem, _, ending in (
                file.removesuffix(".gz").rpartition(".") for file in files
            )
            if ending == language and stem
        }
        for language in (source_lang, target_lang)
    ]
    splits = tuple(sorted(sides[0] & sides[1]))
    if not splits:
        raise UserError(
            f"Expected files SPLIT.{source_lang} and SPLIT.{target_lang} in "
            f"{folder}, found no such pair; this folder has: {some(files)}; "
            "name its languages with --source-lang and --target-lang."
        )
    languages = source_lang, target_lang
    missing = {
        split: str(folder / f"{split}.{language}")
        for language, side in zip(languages, sides, strict=True)
        for split in (sides[0] | sides[1]) - side
    }
    return Corpus(
        name,
        source_lang,
        target_lang,
        splits,
        functools.partial(_read, folder, languages),
        functools.partial(_identify, folder, languages),
        missing,
    )


def _read(
    folder: pathlib.Path, languages: tuple[str, str], split: str
) -> Iterator[Pair]:
    """Check both files of a split at once, then stream their lines."""
    source, target = (_path(folder, split, name) for name in languages)
    source_lines, target_lines = _count_lines(source), _count_lines(target)
    if source_lines != target_lines:
        raise UserError(
            "Expected a line in one language for every line in the other, "
            f"found {source_lines} in {source} and {target_lines} in "
            f"{target}; align them again."
        )
    if not source_lines:
        raise UserError(
            f"Expected sentences in {source} and {target}, found both files "
            "empty; check where they come from."
        )
    return zip(_lines(source), _lines(target), strict=True)


def _path(folder: pathlib.Path, split: str, language: str) -> pathlib.Path:
    plain = folder / f"{split}.{language}"
    return plain if plain.is_file() else plain.with_name(f"{plain.name}.gz")


def _open(path: pathlib.Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _blocks(path: pathlib.Path) -> Iterator[bytes]:
    try:
        with _open(path) as file:
            while block := file.read(BLOCK_BYTES):
                yield block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"Expected gzipped text in {path}, found something else or half "
            f"of it ({error}); fetch the file again."
        ) from None


def _count_lines(path: pathlib.Path) -> int:
    """Count lines; the last one needs no line end."""
    count, size, returns, last = 0, 0, 0, b"\n"
    for block in _blocks(path):
        if not size and block[:2] in _UTF_16:
            raise UserError(
                f"Expected UTF-8 text in {path}, found UTF-16; convert it with "
                f"iconv -f UTF-16 -t UTF-8."
            )
        if b"\0" in block:
            raise UserError(
                f"Expected UTF-8 text in {path}, found zero bytes, as UTF-16 "
                "has them; convert it with iconv -f UTF-16LE -t UTF-8."
            )
        count += block.count(b"\n")
        returns += block.count(b"\r")
        size += len(block)
        last = block[-1:]
    if returns > 1 and count <= 1:
        raise UserError(
            f"Expected line feeds at the ends of lines in {path}, found "
            "carriage returns alone; convert it with tr '\\r' '\\n'."
        )
    return count + (last != b"\n")


def _lines(path: pathlib.Path) -> Iterator[str]:
    with _open(path) as file:
        yield from lines.read_lines(file, str(path))


def _identify(
    folder: pathlib.Path, languages: tuple[str, str], split: str
) -> str:
    """A checksum of both files' text, wherever they lie."""
    digest = hashlib.blake2b(digest_size=16)
    for language in languages:
        for block in _blocks(_path(folder, split, language)):
            digest.update(block)
        digest.update(b"\0")  # Which no text of ours holds.
    return f"text {digest.hexdigest()}"
