"""The role `src`: a link from a page to the source of a module.

`viewcode` makes pages of the modules whose names are documented. This adds
those that the role names.
"""

import pathlib

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxRole

PACKAGE = pathlib.Path(__file__).parents[2] / "keras_transformer"


class SourceRole(SphinxRole):
    """A path inside the package, such as `layers/stacks.py`."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Link to the page that viewcode writes."""
        if not (PACKAGE / self.text).is_file():
            message = self.inliner.reporter.warning(
                f"no such module: {self.text}", line=self.lineno
            )
            return [], [message]
        module = f"keras_transformer/{self.text}".removesuffix(".py")
        vars(self.env).setdefault("source_modules", set()).add(
            module.replace("/", ".")
        )
        up = "../" * self.env.docname.count("/")
        link = nodes.reference(refuri=f"{up}_modules/{module}.html")
        link += nodes.literal(text=self.text)
        return [link], []


def add_modules(app: Sphinx, env: BuildEnvironment) -> None:
    """Have viewcode write the pages."""
    known = vars(env).setdefault("_viewcode_modules", {})
    for name in getattr(env, "source_modules", ()):
        if not known.get(name):
            analyzer = ModuleAnalyzer.for_module(name)
            analyzer.find_tags()
            known[name] = analyzer.code, analyzer.tags, {}, name


def setup(app: Sphinx) -> dict:
    """Add the role."""
    app.add_role("src", SourceRole())
    app.connect("env-updated", add_modules)
    return {"parallel_read_safe": False}
