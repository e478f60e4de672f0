"""What every test file shares: quiet logs and a small model."""

import os

# Before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest


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
    from small import make_model

    return make_model()


@pytest.fixture(scope="session")
def learned_model():
    """The same with learned positions. Not to be changed."""
    from small import make_model

    return make_model(positions="learned")


@pytest.fixture(params=["sinusoidal", "learned"])
def either_model(request, small_model, learned_model):
    """The one, then the other."""
    models = {"sinusoidal": small_model, "learned": learned_model}
    return models[request.param]
