"""Shared by every test file: quiet logs and a small model."""

import gc
import os

# Before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import artifacts
import hypothesis
import pytest

# The same examples everywhere, however slow the machine is.
hypothesis.settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same")

# Tracing makes millions of objects that stay. Looking through them so often
# takes a tenth of its time.
gc.set_threshold(100_000, 50, 100)


def pytest_sessionstart(session):
    if not hasattr(session.config, "workerinput"):
        artifacts.forget_others()
        return
    # Workers of pytest-xdist fill all cores: with more threads each, they would
    # only wait for each other. Programs that they start still have several.
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)


def pytest_configure(config):
    # The package itself warns of nothing; what other libraries say to each
    # other is theirs.
    config.addinivalue_line("filterwarnings", "error:::keras_transformer")
    # The first step of a search attends to one position, rightly.
    config.addinivalue_line(
        "filterwarnings", "ignore:You are using a softmax over axis"
    )


@pytest.fixture(scope="session")
def small_model():
    """A model of two layers, primes for sizes, sinusoids. Not to be changed."""
    # Tests of configuration, text and imports need no Keras.
    from small_models import model_of

    return model_of("sinusoidal")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder of numbers in English and German words."""
    from sample_runs import write_digits

    folder = tmp_path_factory.mktemp("digits")
    return write_digits(folder, train=211, val=23, test=17)


@pytest.fixture(scope="session")
def small_run():
    """A run directory with one checkpoint. Not to be changed."""
    from sample_runs import small_run

    return small_run()


@pytest.fixture(scope="session")
def small_translator(small_run):
    """The `Translator` of that run."""
    from keras_transformer.run import Run

    return Run(small_run).translator(average=1)


@pytest.fixture(scope="session")
def exported():
    """The SavedModel of that run, version 17. Not to be changed."""
    from sample_runs import small_export

    return small_export() / "17"


@pytest.fixture(scope="session")
def served(exported):
    """That SavedModel in the loader of TensorFlow Serving."""
    from session_loader import Served

    return Served(exported)


@pytest.fixture
def one_signature(monkeypatch):
    """Exports have `serving_default` alone, and take a quarter of the time."""
    from keras_transformer.exporting import saved_model

    every = saved_model._signatures

    def first(*arguments):
        return dict([next(iter(every(*arguments).items()))])

    monkeypatch.setattr(saved_model, "_signatures", first)


@pytest.fixture(scope="session")
def server(exported, small_run):
    """The embedded server of that SavedModel, in a thread of its own."""
    from running_server import running

    from keras_transformer.commands.serve import explainer
    from keras_transformer.run import Run

    explain = explainer(small_run)
    # The card of that export is invented.
    weights = Run(small_run).card().weights
    with running(
        exported.parent, explain=lambda text, _: explain(text, weights)
    ) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    """A real browser; CI must have one.

    It does not last the whole session: Playwright leaves an event loop running,
    and other tests could not run their own.
    """
    import real_browser

    with real_browser.launched() as found:
        yield found
