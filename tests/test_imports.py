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
        "half": set(),
        "schedules": set(),
        "estimates": {"config"},
        "cluster": {"config"},
        "workers": {"cluster", "config"},
        "losses": {"config"},
        "metrics": {"losses"},
        "optimizers": set(),
        "continuations": set(),
        "beam_search": {"config", "continuations"},
        "options": set(),
        "sampling": {"beam_search", "config", "continuations", "options"},
        "search_flags": {"config", "options"},
        "sentences": set(),
        "text_batches": {"config"},
    },
    {
        "layers": {"masks"},
    },
    {
        "model": {"config", "layers", "masks"},
        "data": {"config", "lines"},
    },
    {
        "progress": set(),
        "checkpoints": {"config"},
        "history": {"checkpoints"},
        "guard": {"checkpoints", "config", "lines"},
        "averaging": {"checkpoints", "config", "model"},
        "serving_kit": {"config"},
        "alignment": {"config", "model"},
        "cached_steps": {"beam_search", "model"},
        "text_model": {
            "alignment",
            "beam_search",
            "cached_steps",
            "config",
            "data",
            "model",
            "options",
            "sampling",
            "text_batches",
        },
        "given_pairs": {
            "alignment",
            "config",
            "data",
            "model",
            "text_batches",
            "text_model",
        },
        "translator": {
            "averaging",
            "config",
            "data",
            "given_pairs",
            "model",
            "options",
            "text_batches",
            "text_model",
        },
        "distribution": {"config", "losses", "metrics", "model", "workers"},
    },
    {
        "callbacks": {"checkpoints", "evaluation", "translator"},
        "compilations": {"data"},
        "ctranslate2_export": {"config", "layers", "translator"},
        "curves": {"history"},
        "dry_run": {"config", "data", "estimates"},
        "evaluation": {"config", "data", "translator"},
        "preparation": {
            "checkpoints",
            "config",
            "data",
            "progress",
            "translator",
        },
        "serving": {"config", "half", "serving_kit", "translator"},
        "commands": {
            "averaging",
            "command_line",
            "config",
            "data",
            "evaluation",
            "lines",
            "options",
            "search_flags",
            "sentences",
            "translator",
        },
        "__main__": {"command_line", "commands", "config", "search_flags"},
    },
]
ALLOWED = {module: may for floor in FLOORS for module, may in floor.items()}
FLOOR = {module: i for i, floor in enumerate(FLOORS) for module in floor}
# Everyone may import config; further edges inside a floor.
ON_ONE_FLOOR = {
    ("beam_search", "continuations"),
    ("metrics", "losses"),
    ("workers", "cluster"),
    ("guard", "checkpoints"),
    ("history", "checkpoints"),
    ("averaging", "checkpoints"),
    ("sampling", "beam_search"),
    ("sampling", "continuations"),
    ("sampling", "options"),
    ("search_flags", "options"),
    ("text_model", "alignment"),
    ("text_model", "cached_steps"),
    ("given_pairs", "alignment"),
    ("given_pairs", "text_model"),
    ("translator", "given_pairs"),
    ("translator", "averaging"),
    ("translator", "text_model"),
    ("callbacks", "evaluation"),
    ("commands", "evaluation"),
    ("__main__", "commands"),
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
    "alignment",
    "averaging",
    "beam_search",
    "cached_steps",
    "continuations",
    "history",
    "optimizers",
    "progress",
    "data",
    "distribution",
    "dry_run",
    "serving",
    "sampling",
    "serving_kit",
    "given_pairs",
    "text_batches",
    "text_model",
    "translator",
    "workers",
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
