"""The floors of the house, by folder, written down once and enforced.

A module imports from the floors below its own and from its own folder, never
from a neighbour on its floor, never from above. The model wing (ids) and the
data wing (text) never import each other, and the model wing imports no
TensorFlow, so that it runs on every Keras backend.
"""

import ast
import graphlib
import importlib
import re

import pytest
from project_table import ROOT

PACKAGE = ROOT / "keras_transformer"

# Folders, and the few modules beside them, from the ground up.
FLOORS = [
    {"config", "keras_internals", "presets", "replicas", "settings"},
    {"layers", "losses", "machine", "masks", "optimizers"},
    {"data", "exact_step", "model"},
    {"decoding", "runs", "viewing"},
    {"importing", "translation"},
    {"exporting", "serving", "training"},
    {"run", "synthetic"},
    {"__main__", "commands"},
]
FLOOR = {place: i for i, floor in enumerate(FLOORS) for place in floor}
# Neighbours on one floor, and yet one stands on the other.
STEPS = {
    ("layers", "masks"),
    ("model", "exact_step"),
    ("config", "settings"),
    ("presets", "config"),
    ("presets", "settings"),
    ("replicas", "keras_internals"),
    ("synthetic", "run"),
    ("__main__", "commands"),
}

MODEL_WING = {
    *("exact_step", "keras_internals", "layers", "losses", "masks"),
    *("model", "optimizers", "replicas"),
}
DATA_WING = {"data"}
# Places that may import TensorFlow at the top of a module.
TENSORFLOW = {
    *("data", "decoding", "runs", "translation", "training", "exporting"),
    *("importing", "serving", "commands"),
}
# Places that may import it inside functions, or where it is Keras's backend:
# the model's `fit` must sum over the replicas of a TensorFlow strategy; devices
# are TensorFlow's.
TENSORFLOW_IN_FUNCTIONS = {
    *("exact_step", "keras_internals", "machine", "replicas")
}


def test_contributors_are_told_these_floors():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (\d) \| (.*) \|$", text, re.MULTILINE)
    told = {
        int(number): {x.removesuffix(".py") for x in re.findall("`(.*?)`", row)}
        for number, row in rows
    }
    for number, floor in enumerate(FLOORS, start=1):
        assert {x for x in told.pop(number) if "kt." not in x} == floor
    assert not told


def place_of(path):
    """The folder of the package that a file lies in, or its own name."""
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
    """Dotted names of this package that `code` imports, without its own."""
    for name in imported(code):
        package, _, rest = name.partition(".")
        # The version is a constant; all other names of the root load lazily.
        if package == "keras_transformer" and rest != "__version__":
            yield rest or "__init__"


def outside_functions(code):
    """The code on every backend, without the bodies of its functions."""
    tree, backend = ast.parse(code), "keras.backend.backend() == 'tensorflow'"
    for node in ast.walk(tree):
        is_if = isinstance(node, ast.If) and ast.unparse(node.test) == backend
        if is_if or isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def module_graph():
    """The modules of the package, and those that each imports."""
    names = {
        path: ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in files()
    }
    modules = set(names.values())
    edges = {}
    for path, name in names.items():
        found = set()
        for target in of_package(path.read_text()):
            parts = target.split(".")
            # `a.b.c` may name the module a.b, or the package a's own file.
            for end in range(len(parts), 0, -1):
                candidate = ".".join(parts[:end])
                if candidate in modules:
                    found.add(candidate)
                    break
                if f"{candidate}.__init__" in modules:
                    found.add(f"{candidate}.__init__")
                    break
        edges[name] = found - {name}
    return edges


def test_every_folder_has_a_floor():
    assert {place_of(path) for path in files()} == set(FLOOR)


@pytest.mark.parametrize("place", sorted(FLOOR))
def test_imports_go_down(place):
    for path in files():
        if place_of(path) != place:
            continue
        for target in of_package(path.read_text()):
            other = target.split(".")[0]
            below = other != "__init__" and FLOOR[other] < FLOOR[place]
            allowed = other == place or (place, other) in STEPS
            assert below or allowed, f"{path} may not import {target}"


def test_no_two_modules_import_each_other():
    # Raises CycleError, which names them.
    order = graphlib.TopologicalSorter(module_graph()).static_order()
    assert set(order) == set(module_graph())


def test_tensorflow_appears_only_where_the_design_has_it_and_programs_nowhere():
    tensorflow = {"tensorflow", "tensorflow_datasets", "tensorflow_text"}
    for path in files():
        place, code = place_of(path), path.read_text()
        origins = {name.split(".")[0] for name in imported(code)}
        # The graph above would not see a relative import.
        assert not origins & {"", "train", "export", "tests"}, path
        if place in TENSORFLOW_IN_FUNCTIONS:
            code = outside_functions(code)
        if place not in TENSORFLOW:
            origins = {name.split(".")[0] for name in imported(code)}
            assert not origins & tensorflow, path


def test_private_names_of_keras_and_tensorflow_are_in_one_file():
    private = re.compile(
        r"keras\.src|tensorflow\.python|tf\.__internal__"
        r"|(?:model|optimizer|iterator|registry|super\(\))\._(?!_)"
    )
    found = {path.name for path in files() if private.search(path.read_text())}
    assert found == {"keras_internals.py"}


def test_the_model_wing_reaches_neither_tensorflow_nor_the_data_wing():
    edges, reached = module_graph(), set()
    ahead = {name for name in edges if name.split(".")[0] in MODEL_WING}
    while ahead:
        module = ahead.pop()
        reached.add(module)
        ahead |= edges[module] - reached
    places = {name.split(".")[0] for name in reached}
    assert not places & (TENSORFLOW | DATA_WING)


def test_the_data_wing_imports_nothing_of_the_model_wing():
    edges = module_graph()
    of_data = [edges[x] for x in edges if x.split(".")[0] in DATA_WING]
    places = {name.split(".")[0] for name in set().union(*of_data)}
    assert places and not places & MODEL_WING


def test_every_public_name_is_where_the_package_says():
    import keras_transformer

    for name in keras_transformer.__all__:
        assert getattr(keras_transformer, name) is not None
    assert callable(keras_transformer.beam_search)
    with pytest.raises(AttributeError, match="has no attribute 'transformer'"):
        _ = keras_transformer.transformer


def test_type_checkers_see_the_names_that_the_package_has():
    import keras_transformer

    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            home = importlib.import_module(node.module)
            for alias in node.names:
                # A stub shows only what is imported under a name.
                assert alias.name == alias.asname
                seen = getattr(keras_transformer, alias.name)
                assert seen is getattr(home, alias.name)
    assert {"Transformer", "layers"} <= {*keras_transformer.__all__}
    assert isinstance(keras_transformer.__version__, str)
