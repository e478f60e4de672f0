"""Builds what a run trains: its model and the plan of its batches.

The model is new, restored, or has another run's weights. The batching is
chosen once, when the run begins.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import TrainingConfig, logger
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.texts import Pair
from keras_transformer.data.tokenizer import NUM_SPECIAL, Tokenizer
from keras_transformer.layers import TiedEmbedding
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.optimizers import Adam, TransformerSchedule
from keras_transformer.runs import averaging, checkpoints
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig, load_vocabulary
from keras_transformer.training import workers
from keras_transformer.training.request import Session


@dataclasses.dataclass(frozen=True)
class Training:
    """A training for its parts to read: prepared, then restored with a model.

    The model is compiled. Its weights are those of update `start.step`.
    """

    session: Session  # Its run is completed from the text.
    tokenizer: Tokenizer
    plan: BatchPlan
    validation: tf.data.Dataset | None = None  # The chief's, as `watched`.
    watched: Sequence[Pair] = ()  # Decoded for BLEU.
    model: Transformer = None  # type: ignore
    start: Progress = Progress()

    @property
    def run(self) -> RunConfig:
        """The configuration of the run."""
        return self.session.run


def build_model(session: Session) -> Transformer:
    """Set the seed; build the model with section 5's optimizer and loss."""
    run, recipe = session.run, session.run.training
    kept = checkpoints.list_checkpoints(session.run_dir)
    paths = [path for each in kept for path in each.glob("*.h5")]
    if sizes := [path.stat().st_size for path in paths]:
        averaging.check_size(run.model, max(sizes), paths[-1])
    keras.utils.set_random_seed(recipe.seed)
    model = Transformer(**dataclasses.asdict(run.model), dtype=recipe.precision)
    model.compile(
        # Sections 5.3 and 5.4.
        optimizer=Adam(schedule_of(run), beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        loss=SmoothedCrossEntropy(recipe.label_smoothing),
        accumulate=recipe.accumulate,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def schedule_of(run: RunConfig) -> TransformerSchedule:
    """Make the learning rate of a run (5.3)."""
    warmup, scale = run.training.warmup_steps, run.training.learning_rate_scale
    return TransformerSchedule(run.model.d_model, warmup, scale)


def local_copy(run: RunConfig) -> Transformer:
    """Build a model to evaluate on the chief only."""
    recipe = run.training
    model = Transformer(**dataclasses.asdict(run.model), dtype=recipe.precision)
    loss = SmoothedCrossEntropy(recipe.label_smoothing)
    model.compile(loss=loss, jit_compile=False)
    return model


def restored(training: Training, strategy: tf.distribute.Strategy) -> Training:
    """Build the model and restore it, or begin with another run's weights."""
    run, run_dir = training.run, training.session.run_dir
    with strategy.scope():
        model = build_model(training.session)
        with workers.chief_first(strategy):  # It sets damaged ones aside.
            start = checkpoints.restore_checkpoint(run_dir, model)
        if run.initial and not start.step:
            source_dir = run.initial["run_dir"]
            initial = _begin_with(model, source_dir, training.tokenizer)
            run = dataclasses.replace(run, initial=initial)
            if workers.is_chief(strategy):
                run.save(run_dir)
    workers.check_alike(
        strategy,
        update=start.step,
        steps=run.training.steps,
        batches=training.plan.checksum(),
        weights=run.initial and run.initial["weights"],
    )
    for side in {training.tokenizer, training.tokenizer.target}:
        # `build_model` has set the seed, which unloads these operators.
        side.load_operator()
    return dataclasses.replace(training, model=model, start=start)


def _begin_with(
    model: Transformer, run_dir: str, vocabulary: Tokenizer
) -> dict[str, Any]:
    """Take over weights, and return a note of them for `config.json`."""
    source, chosen = averaging.load(run_dir)
    rows = _rows_of(load_vocabulary(run_dir), vocabulary)
    tied = [x for x in model.layers if isinstance(x, TiedEmbedding)]
    of_pieces = {id(weight) for layer in tied for weight in layer.weights}
    for weight, old in zip(model.weights, source.get_weights(), strict=True):
        if id(weight) in of_pieces:
            mean = old[NUM_SPECIAL:].mean(axis=0, dtype="float64")
            old = np.concatenate([old, mean[None]])[rows]  # -1 is the mean.
        weight.assign(old)
    logger.info("Starting from the weights of %s.", run_dir)
    if np.any(rows < 0):
        said = "%d of %d pieces keep their rows, the others start at the mean."
        logger.info(said, np.sum(rows >= 0), len(rows))
    return {
        "run_dir": run_dir,
        "checkpoints": [*chosen.checkpoints],
        "weights": chosen.checksum,
    }


def _rows_of(old: Tokenizer, new: Tokenizer) -> np.ndarray:
    """Find the row of each new piece among the old ones; -1 if it has none."""
    names = old.pieces(range(NUM_SPECIAL, old.vocab_size))
    place = {name: row for row, name in enumerate(names, NUM_SPECIAL)}
    names = new.pieces(range(NUM_SPECIAL, new.vocab_size))
    # Roles stay, whatever they are called.
    roles = [*range(NUM_SPECIAL)]
    return np.array(roles + [place.get(name, -1) for name in names])


def plan_batches(corpus: TokenisedCorpus, recipe: TrainingConfig) -> BatchPlan:
    """Plan the training batches of a recipe."""
    growth = recipe.length_growth
    return BatchPlan(
        corpus, recipe.batch_tokens, recipe.seed, length_growth=growth
    )
