"""Fit the plain model in several ways under a strategy; save what comes.

A program of its own, because logical devices and workers must be set before
TensorFlow starts: python tests/support/fit_replicas.py OUTPUT STRATEGY WAYS.
STRATEGY is none, mirrored (two devices) or worker, with TF_CONFIG set; OUTPUT
is a folder that gets WAY.npz for each way, or each of `WAYS`.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from local_workers import split_processor
from small_models import randomise

import keras_transformer as kt
from keras_transformer.training import workers

VOCAB, ROWS, BATCH = 29, 21, 5


def make_rows():
    """21 rows, in batches of 5 and 1 whose halves hold unequal tokens."""
    random = np.random.default_rng(3)
    lengths = np.where(np.arange(ROWS) % BATCH < 3, 11, 2)
    ids = random.integers(4, VOCAB, (ROWS, 13))
    target = np.where(np.arange(13) < lengths[:, None], ids, 0)
    target_in = np.concatenate([np.full((ROWS, 1), 2), target[:, :-1]], 1)
    source = np.roll(target, 1, axis=0)
    weights = random.uniform(0.5, 2, ROWS).astype("float32")
    x = (source.astype("int32"), target_in.astype("int32"))
    return x, target.astype("int32"), weights


X, Y, WEIGHTS = make_rows()
EVALUATE = dict(batch_size=BATCH, verbose=0)
FIT = dict(batch_size=BATCH, shuffle=False, verbose=0)


SIZES = dict(num_layers=1, d_model=14, num_heads=2, ffn_dim=17, dropout=0.0)


def make_model(**changes):
    return randomise(kt.Transformer(VOCAB, **{**SIZES, **changes}))


def compiled(model, optimizer=None, **options):
    model.compile(
        optimizer or keras.optimizers.Adam(0.01),
        kt.SmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        **options,
    )
    return model


def results(model, history, **others):
    """Numbers of the last epoch and the weights, by name."""
    logs = {f"log {name}": of[-1] for name, of in history.history.items()}
    weights = {f"weight {i}": w for i, w in enumerate(model.get_weights())}
    return {**logs, **weights, **others}


def fit_with_callbacks(strategy, folder):
    with strategy.scope():
        model = compiled(make_model())
    history = model.fit(
        X,
        Y,
        sample_weight=WEIGHTS,
        epochs=3,
        validation_data=(X, Y),
        callbacks=[
            # The loss never rises by 9: it stops after the second epoch.
            keras.callbacks.EarlyStopping("val_loss", min_delta=9, patience=1),
            keras.callbacks.ModelCheckpoint(
                folder / "best.keras", save_best_only=True
            ),
            keras.callbacks.BackupAndRestore(folder / "backup"),
            keras.callbacks.TensorBoard(folder / "logs"),
        ],
        **FIT,
    )
    with strategy.scope():
        again = keras.models.load_model(folder / "best.keras")
    evaluated = again.evaluate(X, Y, return_dict=True, **EVALUATE)
    model.export(folder / "exported", verbose=False)
    exported = tf.saved_model.load(folder / "exported")
    return results(
        model,
        history,
        epochs=len(history.epoch),
        logged=len(list((folder / "logs").rglob("events.*"))),
        best=min(history.history["val_loss"]),
        again=evaluated["loss"],
        logits=model(X),
        exported=exported.serve(X),
        predicted=model.predict(X, batch_size=BATCH, verbose=0),
        loss_on_batch=model.train_on_batch(X, Y)[0],
    )


def fit_clipped(strategy, folder):
    with strategy.scope():
        optimizer = keras.optimizers.AdamW(
            0.01, weight_decay=0.01, global_clipnorm=0.1
        )
        model = compiled(make_model(), optimizer)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    # Its length is unknown: Keras does not know when to stop.
    data = data.filter(lambda x, y: True)
    return results(model, model.fit(data, epochs=2, verbose=0))


def fit_on_batches_of_texts(strategy, folder):
    """Epochs of 1 to 7 batches, each with the order of its own."""
    draw = np.random.default_rng(3)
    pairs = [
        tuple(" ".join(draw.choice(list("abcde"), 5)) for _ in range(2))
        for _ in range(7 * 8)
    ]
    texts = [text for pair in pairs for text in pair]
    tokenizer = kt.Tokenizer.train(texts, 271, folder / "tokenizer.model")
    with strategy.scope():
        model = randomise(kt.Transformer(tokenizer.vocab_size, **SIZES))
        compiled(model)
        model.optimizer.build(model.trainable_variables)
    variables = model.variables + model.optimizer.variables
    start = [keras.ops.convert_to_numpy(each) for each in variables]
    found = {}
    for steps in (1, 2, 7):
        # 5 words and the end.
        batches = kt.batches(pairs[: 8 * steps], tokenizer, 8 * 6)
        assert len(batches) == steps
        # The same step again, from the same start.
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value)
        history = model.fit(batches, epochs=3, shuffle=False, verbose=0)
        found[f"log {steps}"] = history.history["loss"]
    return found


def fit_exactly(accumulate=1, dropout=0.0, jit_compile=False):
    """The exact step, whose rows are shared as a training shares them."""

    def fit(strategy, folder):
        keras.utils.set_random_seed(5)
        with strategy.scope():
            model = kt.Transformer(VOCAB, **{**SIZES, "dropout": dropout})
            model.compile(
                kt.Adam(0.01),
                kt.SmoothedCrossEntropy(0.1),
                jit_compile=jit_compile,
                accumulate=accumulate,
            )
            model.optimizer.build(model.trainable_variables)
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
        data = workers.share_rows(strategy, data.repeat())
        losses = []
        keep = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda _, logs: losses.append(
                float(logs["batch_loss"])
            )
        )
        how = dict(steps_per_epoch=20, validation_steps=20, verbose=0)
        fitted = model.fit(data, validation_data=data, callbacks=[keep], **how)
        found = results(model, fitted)

        @tf.function(autograph=False)
        def drop():
            ones = tf.ones((5, 7, 11))
            return strategy.run(
                lambda: model.source_dropout(ones, training=True)
            )

        dropped = strategy.experimental_local_results(drop())
        return {**found, "log losses": losses, "dropped": np.stack(dropped)}

    return fit


def make_scaled(accumulate, start=2.0**40):
    """A model in float16, and batches with tokens in their second half alone.

    Such a loss scale must overflow; the gradient of the first of two replicas
    is finite all the same.
    """
    keras.utils.set_random_seed(5)
    ids = np.random.default_rng(3).integers(4, VOCAB, (59, 8, 5))
    ids[:, :4] = 0
    starts = np.where(ids[:, :, :1] > 0, 2, 0)
    rows = (ids, np.concatenate([starts, ids[:, :, :-1]], 2)), ids
    data = tf.data.Dataset.from_tensor_slices(
        tf.nest.map_structure(lambda x: x.astype("int32"), rows)
    )
    sizes = {**SIZES, "dropout": 0.1}
    model = kt.Transformer(VOCAB, **sizes, dtype="mixed_float16")
    adam = kt.Adam(kt.TransformerSchedule(14, 11))
    model.compile(
        keras.optimizers.LossScaleOptimizer(adam, initial_scale=start),
        kt.SmoothedCrossEntropy(0.1),
        jit_compile=False,
        accumulate=accumulate,
    )
    model.optimizer.build(model.trainable_variables)
    return model, data


def flat(variables):
    return np.concatenate([np.ravel(v.numpy()) for v in variables])


def record_scaled(strategy, folder=None, accumulate=1):
    """The state before and after each step, as arrays by name."""
    with strategy.scope():
        model, data = make_scaled(accumulate)
    optimizer, steps = model.optimizer, []

    def note(batch, logs):
        steps.append(
            {
                "loss": float(logs["batch_loss"]),
                "norm": float(logs["gradient_norm"]),
                "scale": float(optimizer.dynamic_scale.numpy()),
                "updates": int(optimizer.iterations.numpy()),
                "rate": float(tf.convert_to_tensor(optimizer.learning_rate)),
                "weights": flat(model.trainable_variables),
                "moments": flat(optimizer.inner_optimizer.variables),
            }
        )

    note(None, {"batch_loss": 0.0, "gradient_norm": 0.0})
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    model.fit(data, verbose=0, shuffle=False, callbacks=[keep])
    return {name: np.stack([x[name] for x in steps]) for name in steps[0]}


WAYS = {
    "with callbacks": fit_with_callbacks,
    "clipped": fit_clipped,
    "on batches of texts": fit_on_batches_of_texts,
    "exactly": fit_exactly(),
    "accumulated": fit_exactly(accumulate=2),
    "by XLA": fit_exactly(jit_compile=True),
    "accumulated by XLA": fit_exactly(accumulate=2, jit_compile=True),
    "with dropout": fit_exactly(dropout=0.1),
    "in float16": record_scaled,
}


def make_strategy(name):
    if name == "worker":
        # Before anything else of TensorFlow runs.
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "none":
        return tf.distribute.get_strategy()
    split_processor()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main(output, strategy, *ways):
    output, strategy = pathlib.Path(output), make_strategy(strategy)
    for name in ways or WAYS:
        folder = output / "files" / name
        folder.mkdir(parents=True)
        np.savez(output / f"{name}.npz", **WAYS[name](strategy, folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
