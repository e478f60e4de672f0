"""Opens text of TensorFlow Datasets."""

import os
from collections.abc import Iterator

from keras_transformer.config import UserError
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
                yield one.decode(), other.decode()


def _first_line(error: Exception) -> str:
    message = str(error).strip().partition("\n")[0].rstrip(".:")
    return f"{type(error).__name__}: {message}"
