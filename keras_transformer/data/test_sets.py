"""Opens the test sets that sacreBLEU knows, such as WMT's, to score on."""

from collections.abc import Iterator

from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset
from sacrebleu.utils import smart_open

from keras_transformer.config import UserError
from keras_transformer.data.corpus import (
    TEST_SET_PREFIX,
    Corpus,
    Pair,
    some,
)

SPLIT = "test"


def open_test_set(name: str, source_lang: str, target_lang: str) -> Corpus:
    """Find a test set of sacreBLEU, such as `sacrebleu:wmt14/full`.

    Its one split is `test`; a pair holds the first reference of each source.

    Raises:
        UserError: If there is no such set or it lacks the pair of languages;
            while reading, if it is not in the cache and cannot be downloaded.
    """
    test_set = name.removeprefix(TEST_SET_PREFIX)
    if test_set not in DATASETS:
        raise UserError(
            f"Expected a test set of sacreBLEU, received {test_set}; it has: "
            f"{some(tuple(DATASETS))}."
        )
    dataset = DATASETS[test_set]
    pair = f"{source_lang}-{target_lang}"
    if pair not in dataset.langpairs:
        raise UserError(
            f"Expected languages of {name}, received {pair}; it has: "
            f"{some(tuple(dataset.langpairs))}."
        )

    def references(split: str) -> list[tuple[str, ...]]:
        _fetch(dataset, pair)
        files = dataset.get_reference_files(pair)
        return list(zip(*map(_lines, files), strict=True))

    def read(split: str) -> Iterator[Pair]:
        first = [of_source[0] for of_source in references(split)]
        sources = _lines(dataset.get_source_file(pair))
        return zip(sources, first, strict=True)

    return Corpus(
        name,
        source_lang,
        target_lang,
        (SPLIT,),
        read,
        references=references,
    )


def _lines(path: str) -> list[str]:
    """Read a file; sacreBLEU's own readers leave it open."""
    with smart_open(path) as file:
        return [line.strip() for line in file]


def _fetch(dataset: Dataset, pair: str) -> None:
    """Download the texts of a pair of languages that are not in the cache."""
    try:
        dataset.get_files(pair)
    # It may raise anything if the network or a checksum fails.
    except (Exception, SystemExit) as error:
        raise UserError(
            f"Expected sacreBLEU to find or download {dataset.name} in {pair}, "
            f"received {type(error).__name__}: {error}; fetch it where there "
            f"is a network: sacrebleu -t {dataset.name} -l {pair} --echo src."
        ) from None
