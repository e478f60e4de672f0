"""The package's import graph, written down once and enforced.

A module imports from the floors below its own. The model wing (ids) and the
data wing (text) never import each other, and the model wing imports no
TensorFlow, so that it runs on every Keras backend.
"""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"

# module -> what it may import from this package, floor by floor.
FLOORS = [
    {
        "config": set(),
        "command_line": {"config"},
        "lines": {"config"},
        "masks": {"config"},
        "schedules": set(),
        "losses": {"config"},
        "metrics": {"losses"},
        "beam_search": {"config"},
    },
    {
        "layers": {"masks"},
    },
    {
        "model": {"config", "layers", "masks"},
        "data": {"config", "lines"},
    },
    {
        "checkpoints": {"config", "model"},
        "translator": {"beam_search", "checkpoints", "config", "data", "model"},
        "distribution": {"config", "losses", "metrics", "model"},
    },
    {
        "callbacks": {"checkpoints", "evaluation", "translator"},
        "curves": {"callbacks"},
        "evaluation": {"config", "data", "translator"},
        "serving": {"config", "translator"},
        "__main__": {
            "checkpoints",
            "command_line",
            "config",
            "data",
            "evaluation",
            "lines",
            "translator",
        },
    },
]
ALLOWED = {module: may for floor in FLOORS for module, may in floor.items()}
FLOOR = {module: i for i, floor in enumerate(FLOORS) for module in floor}
# Everyone may import config; further edges inside a floor.
ON_ONE_FLOOR = {
    ("metrics", "losses"),
    ("translator", "checkpoints"),
    ("callbacks", "evaluation"),
    ("curves", "callbacks"),
    ("__main__", "evaluation"),
}

MODEL_WING = {
    "config",
    "layers",
    "losses",
    "masks",
    "metrics",
    "model",
    "schedules",
}
TENSORFLOW = {
    "command_line",  # To keep its start-up notices off the terminal.
    "beam_search",
    "callbacks",
    "data",
    "distribution",
    "serving",
    "translator",
}


def module_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def files():
    """Every file of the package but the root, which loads names lazily."""
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "__init__.py"
    ]


def imported(code):
    """Absolute dotted names, also of imports inside functions."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            # A relative import would start with a dot and match no name.
            origin = "." * node.level + (node.module or "")
            for alias in node.names:
                yield f"{origin}.{alias.name}"


def of_package(code):
    """The modules of this package that `code` imports."""
    for name in imported(code):
        package, *rest = name.split(".")
        if package == "keras_transformer":
            yield rest[0] if rest else "__init__"


def imports_any(code, packages):
    return {name.split(".")[0] for name in imported(code)} & set(packages)


def graph():
    edges = {module: set() for module in ALLOWED}
    for path in files():
        edges[module_of(path)] |= set(of_package(path.read_text()))
    return {module: edges[module] - {module} for module in edges}


def test_the_reader_of_imports_sees_every_form():
    code = """
import keras_transformer
import keras_transformer.curves
from keras_transformer import config, masks as m
from keras_transformer.data.tokenizer import Tokenizer
def later():
    from keras_transformer import model
"""
    assert list(of_package(code)) == [
        "__init__",
        "curves",
        "config",
        "masks",
        "data",
        "model",
    ]


def test_every_module_has_a_floor():
    assert {module_of(path) for path in files()} <= set(ALLOWED)


def test_what_is_allowed_goes_down():
    for module, may in ALLOWED.items():
        for other in may - {"config"}:
            below = FLOOR[other] < FLOOR[module]
            assert below or (module, other) in ON_ONE_FLOOR, (module, other)


@pytest.mark.parametrize("module", ALLOWED)
def test_a_module_imports_only_what_its_floor_allows(module):
    beyond = graph()[module] - ALLOWED[module]
    assert not beyond, f"{module} may not import {sorted(beyond)}"


def test_imports_are_absolute():
    # Or the graph above would not see them.
    for path in files():
        for name in imported(path.read_text()):
            assert not name.startswith("."), f"{path} imports {name}"


def test_no_module_imports_a_program():
    for path in files():
        found = imports_any(path.read_text(), {"train", "export", "tests"})
        assert not found, f"{path} may not import {sorted(found)}"


def test_tensorflow_appears_only_where_the_design_has_it():
    for path in files():
        if module_of(path) not in TENSORFLOW:
            found = imports_any(
                path.read_text(),
                {"tensorflow", "tensorflow_datasets", "tensorflow_text"},
            )
            assert not found, f"{path} may not import {sorted(found)}"


def test_the_model_wing_reaches_no_tensorflow_through_others():
    edges, reached, ahead = graph(), set(), set(MODEL_WING)
    while ahead:
        module = ahead.pop()
        reached.add(module)
        ahead |= edges[module] - reached
    assert reached == MODEL_WING
    assert not reached & TENSORFLOW


@pytest.mark.parametrize(
    "module", ["keras_transformer", "keras_transformer.config"]
)
def test_names_and_presets_load_without_keras_and_tensorflow(module):
    program = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        cwd=ROOT,
        text=True,
    ).stdout.splitlines()
    assert module in loaded
    assert not {"keras", "tensorflow", "numpy"} & set(loaded)


def test_every_public_name_is_where_the_package_says():
    import keras_transformer

    for name in keras_transformer.__all__:
        assert getattr(keras_transformer, name) is not None
    assert callable(keras_transformer.beam_search)
    with pytest.raises(AttributeError, match="has no attribute 'transformer'"):
        _ = keras_transformer.transformer
