"""The configuration of a run, for tests that need one without a training."""

from keras_transformer.config import ModelConfig, TrainingConfig
from keras_transformer.runs.run_config import RunConfig


def make_run(model: ModelConfig, training=None, **changes) -> RunConfig:
    """Of the demo corpus and the preset `tiny`, but for what is given."""
    settings = dict(
        preset="tiny",
        corpus="demo",
        source_lang="en",
        target_lang="de",
        train_split="train",
        validation_split="val",
        requested_vocab_size=model.vocab_size,
        model=model,
        training=training or TrainingConfig(),
    )
    return RunConfig(**{**settings, **changes})
