"""Programs that no test runs import what there is."""

import ast
import importlib
import importlib.util
import re

import pytest
from project_table import ROOT

PROGRAMS = sorted(
    path
    for folder in ("benchmarks", "examples", "tests_node", "tests_torch")
    for path in ROOT.glob(f"{folder}/**/*.py")
)
HELPERS = [ROOT / "benchmarks", ROOT / "tests" / "support"]
# Packages of other environments, which the programs name.
ELSEWHERE = {"locust", "opennmt", "torch"}


def imports(path):
    """Module and name of each import; the name is None for a module's."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)


def exists(path, module, name):
    if module.split(".")[0] == "keras_transformer":
        found = importlib.import_module(module)
        return name is None or hasattr(found, name) or is_there(module, name)
    for folder in (path.parent, *HELPERS):
        if (helper := folder / f"{module}.py").exists():
            defined = rf"^(def |class )?{name}\b|^[\w, ]*\b{name}\b.* = "
            text = helper.read_text("utf-8")
            return name is None or re.search(defined, text, re.M)
    return is_there(module)


def is_there(*parts):
    """Whether a module can be found, without importing it."""
    return importlib.util.find_spec(".".join(parts)) is not None


@pytest.mark.parametrize(
    "path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_program_imports_what_there_is(path):
    for module, name in imports(path):
        if module.split(".")[0] not in ELSEWHERE:
            assert exists(path, module, name), (module, name)
