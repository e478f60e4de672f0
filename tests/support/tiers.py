"""The order of the suite.

The files with the most recorded seconds come first, so that none is left alone
on a core at the end; `make seconds` records them.
"""

import json
from collections import Counter

import artifacts
from project_table import ROOT

TABLE = ROOT / "tests" / "seconds.json"
TIERS = ("slow", "example")


def tier(keywords):
    """`test` for what `make test` runs, or the marker of another tier."""
    return next((name for name in TIERS if name in keywords), "test")


class Tiers:
    """Orders the tests of a session, and adds up what they take."""

    def __init__(self, record):
        self.record = record
        self.seconds = {name: Counter() for name in ("test", *TIERS)}

    def pytest_collection_modifyitems(self, items):
        table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
        cost = Counter()
        for path, name in {(i.path, tier(i.keywords)) for i in items}:
            cost[path] += table.get(name, {}).get(self.name_of(path), 0)
        items.sort(key=lambda item: -cost[item.path])

    def name_of(self, path):
        return path.relative_to(ROOT / "tests").as_posix()

    def pytest_runtest_logreport(self, report):
        name = tier(report.keywords)
        file = report.nodeid.partition("::")[0].removeprefix("tests/")
        self.seconds[name][file] += report.duration

    def pytest_sessionfinish(self, session):
        if self.record and not hasattr(session.config, "workerinput"):
            write(self.seconds)


def write(seconds):
    """Write the table: for each tier, whole seconds by file."""
    table = {
        name: {file: round(n) for file, n in sorted(files.items()) if n >= 1}
        for name, files in seconds.items()
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


def pytest_addoption(parser):
    parser.addoption(
        "--record-seconds",
        action="store_true",
        help=f"write {TABLE.name}, the table by which files are ordered",
    )


def pytest_configure(config):
    tiers = Tiers(config.getoption("--record-seconds"))
    config.pluginmanager.register(tiers, "tiers of the suite")


def pytest_sessionstart(session):
    if not hasattr(session.config, "workerinput"):
        artifacts.forget_others()
