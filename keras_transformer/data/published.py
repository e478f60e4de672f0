"""Opens text of TensorFlow Datasets, and the test sets of sacreBLEU."""

import os
from collections.abc import Iterator

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import smart_open

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of
from keras_transformer.data.texts import Corpus, Pair, some
from keras_transformer.machine import extras

# Dataset examples decoded at a time.
BLOCK_EXAMPLES = 1024


class Tfds(Corpus):
    """`tfds:NAME[/CONFIG]`, which is downloaded if necessary.

    The languages are text features of the dataset.
    """

    def __init__(self, name: str, source_lang: str, target_lang: str) -> None:
        # Importing it takes half a second, which others need not spend.
        tfds = extras.needs("tensorflow_datasets", "tfds")
        dataset = name.partition(":")[2]
        try:
            # Use `TFDS_DATA_DIR` as it is now, not as TFDS was imported.
            self.builder = builder = tfds.builder(
                dataset, data_dir=os.environ.get("TFDS_DATA_DIR")
            )
        except Exception as error:
            # TFDS raises many types of errors for an unknown name.
            raise UserError(
                f"Expected a dataset that TensorFlow Datasets knows, received "
                f"{dataset} ({_first_line(error)}); check the name."
            ) from error
        features = tuple(builder.info.features or ())
        if not {source_lang, target_lang} <= set(features):
            raise UserError(
                f"Expected text in {source_lang} and {target_lang}, but the "
                f"features of {dataset} are: {some(features)}; choose among "
                "these or another dataset."
            )
        try:
            builder.download_and_prepare()
        except Exception as error:
            # The network, the disk or a missing manual download is the cause.
            raise UserError(
                f"Expected TensorFlow Datasets to prepare {dataset}, but it "
                f"failed ({_first_line(error)}); check the connection, or set "
                "TFDS_DATA_DIR to a folder that holds the dataset."
            ) from error
        splits = tuple(builder.info.splits)
        super().__init__(name, source_lang, target_lang, splits)

    def read(self, split: str) -> Iterator[Pair]:
        source, target = self.source_lang, self.target_lang
        examples = self.builder.as_dataset(split=split, shuffle_files=False)
        examples = examples.map(lambda row: (row[source], row[target]))
        blocks = examples.batch(BLOCK_EXAMPLES).as_numpy_iterator()
        for block in blocks:
            for one, other in zip(*block, strict=True):
                try:
                    yield one.decode(), other.decode()
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"Expected UTF-8 text in {self.name}, found other "
                        f"bytes in {split}: {error.object[:60]!r} "
                        f"({error.reason}); use another dataset."
                    ) from None


def _first_line(error: Exception) -> str:
    message = str(error).strip().partition("\n")[0].rstrip(".:")
    return f"{type(error).__name__}: {message}"


class TestSet(Corpus):
    """A test set of sacreBLEU, such as `sacrebleu:wmt14/full`.

    Its one split is `test`; a pair holds the first reference of each source.
    """

    def __init__(self, name: str, source_lang: str, target_lang: str) -> None:
        test_set = name.partition(":")[2]
        if test_set not in DATASETS:
            raise UserError(
                f"Expected a test set of sacreBLEU, received {test_set}; it "
                f"has: {some(tuple(DATASETS))}."
            )
        self.dataset = DATASETS[test_set]
        known = tuple(self.dataset.langpairs)
        codes = source_lang, target_lang
        pair = next((x for x in known if _are_same(x, *codes)), None)
        if pair is None:
            raise UserError(
                f"Expected languages of {name}, received {'-'.join(codes)}; it "
                f"has: {some(known)}."
            )
        self.pair = pair
        super().__init__(name, *codes, ("test",))

    def read(self, split: str) -> Iterator[Pair]:
        first = [of_source[0] for of_source in self.references(split)]
        sources = _lines(self.dataset.get_source_file(self.pair))
        return zip(sources, first, strict=True)

    def references(self, split: str) -> list[tuple[str, ...]]:
        name, pair = self.dataset.name, self.pair
        try:  # To download what is not in the cache.
            self.dataset.get_files(pair)
        # It may raise anything if the network or a checksum fails.
        except (Exception, SystemExit) as error:
            raise UserError(
                f"Expected sacreBLEU to find or download {name} in {pair}, "
                f"received {type(error).__name__}: {error}; fetch it where "
                f"there is a network: sacrebleu -t {name} -l {pair} --echo src."
            ) from None
        files = self.dataset.get_reference_files(pair)
        return list(zip(*map(_lines, files), strict=True))


def _are_same(pair: str, *codes: str) -> bool:
    """Whether `en-zh`, for one, is of the languages `EN` and `zh_Hans`."""
    sides = zip(pair.split("-"), codes, strict=True)
    return all(language_of(x).is_same(language_of(y)) for x, y in sides)


def _lines(path: str) -> list[str]:
    """Read a file; sacreBLEU's own readers leave it open."""
    with smart_open(path) as file:
        return [line.strip() for line in file]
