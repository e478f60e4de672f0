"""Opens a folder of `SPLIT.LANG` files, plain or gzipped."""

import codecs
import gzip
import hashlib
import itertools
import json
import logging
import pathlib
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, cast

from keras_transformer.config import UserError
from keras_transformer.data import lines
from keras_transformer.data.corpus import Corpus, Pair, some
from keras_transformer.data.languages import is_code, language_of

# Bytes read at a time.
BLOCK_BYTES = 1 << 20
# More than a tick of any file system's clock.
CLOCK_TICK_NS = 2_000_000_000
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

logger = logging.getLogger("keras_transformer")


def open_folder(name: str, source_lang: str, target_lang: str) -> Corpus:
    """Find the splits of a folder that have both languages.

    Raises:
        UserError: If there is no such folder, or no split has both.
    """
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise UserError(
            "Expected demo, a folder or tfds:NAME as corpus, received "
            f"{name}, which is not a folder; check the path in `corpus`."
        )
    files = tuple(sorted(p.name for p in folder.iterdir() if p.is_file()))
    languages = _ending(files, source_lang), _ending(files, target_lang)
    # `test.de.1` is a reference of the split `test` too.
    numbered = re.compile(rf"(?<=\.{re.escape(languages[1])})\.\d+$")
    named = [
        numbered.sub("", file.removesuffix(".gz")).rpartition(".")
        for file in files
    ]
    sides = [
        {split for split, _, ending in named if split and ending == language}
        for language in languages
    ]
    splits = tuple(sorted(sides[0] & sides[1]))
    if not splits:
        raise UserError(
            f"Expected files SPLIT.{source_lang} and SPLIT.{target_lang} in "
            f"{folder}, found no such pair; this folder has: {some(files)}; "
            "name its languages with `source_lang` and `target_lang`."
        )
    for split, language in itertools.product(splits, languages):
        plain = f"{split}.{language}"
        if {plain, f"{plain}.gz"} <= set(files):
            logger.warning(
                "Reading %s and not %s.gz beside it; remove or rename one.",
                folder / plain,
                plain,
            )
    missing = {
        split: str(folder / f"{split}.{language}")
        for language, side in zip(languages, sides, strict=True)
        for split in (sides[0] | sides[1]) - side
    }
    texts = _Texts(folder, languages)
    return Corpus(
        name,
        source_lang,
        target_lang,
        splits,
        texts.read,
        texts.identify,
        texts.stamp,
        missing,
        texts.references,
    )


def _ending(files: Sequence[str], code: str) -> str:
    """Find how the files of a folder spell a code: `zh_CN` for `zh-CN`."""
    endings = {
        part for file in files for part in file.split(".")[1:] if part != "gz"
    }
    spelt = (
        part
        for part in sorted(endings)
        if is_code(part) and language_of(part).code == language_of(code).code
    )
    return code if code in endings else next(spelt, code)


class _Scan(NamedTuple):
    """The findings of one reading of both files of a split."""

    num_lines: dict[pathlib.Path, int]
    checksum: str


class _Texts:
    """Reads the splits of a folder, and remembers what it finds in them."""

    def __init__(
        self, folder: pathlib.Path, languages: tuple[str, str]
    ) -> None:
        self.folder = folder
        self.languages = languages
        self._scans: dict[str, tuple[str, _Scan]] = {}

    def read(self, split: str) -> Iterator[Pair]:
        """Check both files of a split first, then stream their lines."""
        source, target = self._paths(split)
        num_lines = self._scan(split).num_lines
        if num_lines[source] != num_lines[target]:
            raise UserError(
                "Expected a line in one language for every line in the other, "
                f"found {num_lines[source]} in {source} and "
                f"{num_lines[target]} in {target}; align them again."
            )
        if not num_lines[source]:
            raise UserError(
                f"Expected sentences in {source} and {target}, found both "
                "files empty; check where they come from."
            )
        return zip(read_texts(source), read_texts(target), strict=True)

    def identify(self, split: str) -> str:
        """Compute a checksum of both files' text."""
        return f"text {self._scan(split).checksum}"

    def stamp(self, split: str) -> str | None:
        """Note where both files lie, their sizes and when they last changed.

        This includes the time of the last change to the file's metadata, which
        no program can set back, unlike the time of its text.

        Returns:
            The stamp; None if a file changed so recently that it could change
            again within one tick of the file system's clock.
        """
        parts = []
        for path in self._paths(split):
            found = path.stat()
            times = (found.st_mtime_ns, found.st_ctime_ns)
            if max(times) > time.time_ns() - CLOCK_TICK_NS:
                return None
            parts.append([str(path.resolve()), found.st_size, *times])
        return json.dumps(parts)

    def references(self, split: str) -> list[tuple[str, ...]] | None:
        """Read `SPLIT.LANG.0`, `SPLIT.LANG.1` and on, with `SPLIT.LANG`.

        Return None if there is but one file.

        Raises:
            UserError: If they differ in their number of lines.
        """
        paths = self._references(split)
        if len(paths) == 1:
            return None
        first, *others = texts = [list(read_texts(path)) for path in paths]
        for path, found in zip(paths[1:], others, strict=True):
            if len(found) != len(first):
                raise UserError(
                    f"Expected as many lines in {path} as in {paths[0]}, "
                    f"{len(first)}, found {len(found)}; align them again."
                )
        return list(zip(*texts, strict=True))

    def _references(self, split: str) -> list[pathlib.Path]:
        """List the files of the target side, the one of the pairs first."""
        plain = self._path(f"{split}.{self.languages[1]}")
        name = re.compile(
            rf"{re.escape(split)}\.{re.escape(self.languages[1])}\.(\d+)(\.gz)?"
        )
        numbered = {
            int(found[1]): path
            for path in self.folder.iterdir()
            if (found := name.fullmatch(path.name)) and path.is_file()
        }
        others = [path for _, path in sorted(numbered.items())]
        return [plain, *others] if plain.is_file() or not others else others

    def _path(self, name: str) -> pathlib.Path:
        path = self.folder / name
        return path if path.is_file() else path.with_name(f"{name}.gz")

    def _paths(self, split: str) -> list[pathlib.Path]:
        source = self._path(f"{split}.{self.languages[0]}")
        return [source, self._references(split)[0]]

    def _scan(self, split: str) -> _Scan:
        """Read both files, unless they have not changed since the last time."""
        stamp = self.stamp(split)
        if stamp is not None and split in self._scans:
            known, scan = self._scans[split]
            if known == stamp:
                return scan
        digest = hashlib.blake2b(digest_size=16)
        num_lines = {}
        for path in self._paths(split):
            num_lines[path] = count_lines(path, digest)
            digest.update(b"\0")  # None of our texts holds it.
        scan = _Scan(num_lines, digest.hexdigest())
        if stamp is not None and stamp == self.stamp(split):
            self._scans[split] = stamp, scan
        return scan


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


def count_lines(path: pathlib.Path, digest: "hashlib.blake2b") -> int:
    """Count lines of UTF-8; the last one needs no line end.

    Args:
        path: A file of a split.
        digest: Gets its text.

    Raises:
        UserError: If it is not UTF-8; it names the line.
    """
    count, size, returns, last = 0, 0, 0, b"\n"
    decoder = codecs.getincrementaldecoder("utf-8")()
    for block in _blocks(path):
        digest.update(block)
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
        try:
            decoder.decode(block)
        except UnicodeDecodeError as error:
            # It also holds the end of the block before, without a line end.
            count += error.object.count(b"\n", 0, error.start)
            raise lines.not_utf_8(path, count + 1, error.reason) from None
        count += block.count(b"\n")
        returns += block.count(b"\r")
        size += len(block)
        last = block[-1:]
    if decoder.getstate()[0]:
        raise lines.not_utf_8(path, count + 1, "unexpected end of data")
    if returns > 1 and count <= 1:
        raise UserError(
            f"Expected line feeds at the ends of lines in {path}, found "
            "carriage returns alone; convert it with tr '\\r' '\\n'."
        )
    return count + (last != b"\n")


def read_texts(path: pathlib.Path) -> Iterator[str]:
    """Read the lines of a file, plain or gzipped."""
    with _open(path) as file:
        yield from lines.read_lines(file, str(path))
