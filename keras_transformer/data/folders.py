"""Opens a folder of `SPLIT.LANG` files, plain, or else gzipped."""

import pathlib
import re
from collections.abc import Iterator, Sequence

from keras_transformer.config import UserError
from keras_transformer.data.languages import read_code, spelling_in
from keras_transformer.data.lines import PACKED, read_texts
from keras_transformer.data.texts import Corpus, Pair, State, some
from keras_transformer.machine import files

_DEMO = "en", "de"


class Folder(Corpus):
    """A folder of files."""

    def __init__(self, name: str, source_lang: str, target_lang: str) -> None:
        folder = pathlib.Path(name)
        if not folder.is_dir():
            raise UserError(
                "Expected demo, a folder or tfds:NAME as corpus, received "
                f"{name}, which is not a folder; check the path, or give the "
                "pairs of a table in Python, as the guide to corpora shows."
            )
        names = tuple(sorted(p.name for p in folder.iterdir() if p.is_file()))
        self._checked: set[str] = set()
        parts = {part for x in names for part in x.split(".")[1:]} - {"gz"}
        codes = source_lang, target_lang
        self._endings = [spelling_in(parts, code) for code in codes]
        self._sides = sides = [_files(folder, names, x) for x in self._endings]
        splits = tuple(sorted(sides[0].keys() & sides[1].keys()))
        if not splits or sides[0] == sides[1]:
            advice = "name its languages with `source_lang` and `target_lang`"
            endings = {pathlib.Path(x).suffix for x in names} & PACKED.keys()
            for ending in endings - {".gz"}:
                advice = f"unpack {ending} with {PACKED[ending][1]}"
            raise UserError(
                f"Expected files SPLIT.{source_lang} and SPLIT.{target_lang} "
                f"in {folder}, found no such pair; this folder has: "
                f"{some(names)}; {advice}."
            )
        super().__init__(name, source_lang, target_lang, splits)

    def find(self, split: str, flag: str | None = None) -> str:
        """Find a split; of one with a single file, name the other file."""
        is_here = any(split in side for side in self._sides)
        name = split if is_here else self.real_name(split)
        both = zip(self._endings, self._sides, strict=True)
        lacking = [end for end, side in both if name not in side]
        if len(lacking) == 1:
            path = pathlib.Path(self.name, f"{name}.{lacking[0]}")
            raise UserError(
                f"Expected {path}, plain or gzipped, as the other side of the "
                f"split {name}, found none; restore it."
            )
        return super().find(split, flag)

    def read(self, split: str) -> Iterator[Pair]:
        """Check both files of a split first, then stream their lines."""
        source, target = paths = [side[split] for side in self._sides]
        if split not in self._checked:
            counts = [sum(1 for _ in read_texts(path)) for path in paths]
            if counts[0] != counts[1]:
                raise UserError(
                    f"Expected as many lines on both sides, found {counts[0]} "
                    f"in {source} and {counts[1]} in {target}; align them."
                )
            if not counts[0]:
                raise UserError(
                    f"Expected sentences in {source} and {target}, found both "
                    "files empty; check where they come from."
                )
            self._checked.add(split)
        return zip(read_texts(source), read_texts(target), strict=True)

    def state(self, split: str) -> State:
        return [files.state(side[split].resolve()) for side in self._sides]


class Demo(Folder):
    """The built-in corpus: numbers, dates, times and amounts.

    20,000 pairs in `train`, 500 in `val` and in `test`, without a text that
    occurs twice. `examples/demo_corpus.py` made them.
    """

    def __init__(self, name: str, source_lang: str, target_lang: str) -> None:
        if {read_code(x).base for x in (source_lang, target_lang)} != {*_DEMO}:
            raise UserError(
                "Expected English and German for the demo, received "
                f"{source_lang} and {target_lang}; give text of your own."
            )
        folder = pathlib.Path(__file__).with_name("demo")
        super().__init__(str(folder), source_lang, target_lang)
        self.name = name

    def state(self, split: str) -> State:
        return []  # Wherever the package is installed, the text is the same.


def _files(
    folder: pathlib.Path, names: Sequence[str], ending: str
) -> dict[str, pathlib.Path]:
    """Find the files of one side by their split."""
    pattern = re.compile(rf"(.+)\.{re.escape(ending)}(?:\.gz)?")
    # A plain file comes before a gzipped one, which it replaces here.
    found = filter(None, map(pattern.fullmatch, reversed(names)))
    return {name[1]: folder / name[0] for name in found}
