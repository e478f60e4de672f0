"""The order of the suite: files with the most recorded seconds come first.

So none is left alone on a core at the end; `make seconds` records them.
"""

import json
from collections import Counter

import artifacts
from project_table import ROOT

TABLE = ROOT / "tests" / "seconds.json"
SECONDS: Counter[str] = Counter()


def file_of(test):
    return test.nodeid.partition("::")[0].removeprefix("tests/")


def pytest_addoption(parser):
    parser.addoption(
        "--record-seconds",
        action="store_true",
        help=f"write {TABLE.name}, the table by which files are ordered",
    )


def pytest_sessionstart(session):
    if not hasattr(session.config, "workerinput"):
        artifacts.forget_others()


def pytest_collection_modifyitems(items):
    seconds = json.loads(TABLE.read_text())
    items.sort(key=lambda item: -seconds.get(file_of(item), 0))


def pytest_runtest_logreport(report):
    SECONDS[file_of(report)] += report.duration


def pytest_sessionfinish(session):
    config = session.config
    if config.getoption("--record-seconds") and SECONDS:
        if not hasattr(config, "workerinput"):
            table = {x: round(n) for x, n in sorted(SECONDS.items()) if n >= 1}
            TABLE.write_text(json.dumps(table, indent=1) + "\n")
