"""Docstrings in Keras's manner: Markdown links inside reStructuredText."""

import inspect
import re

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

PACKAGE = "keras_transformer"


def to_rest(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    lines: list[str],
) -> None:
    """Turn the Markdown of a docstring into what Sphinx reads."""
    text = "\n".join(lines)
    text = re.sub(
        r"\[([^\]`]+)\]\((https?://[^)\s]+)\)",
        lambda link: f"`{' '.join(link[1].split())} <{link[2]}>`__",
        text,
    )
    # A bar is an absolute value, no substitution.
    text = re.sub(r"(?<![`|\\])\|([^|`\n]+)\|(?!`)", r"\\|\1\\|", text)
    # Arguments of a signature are no emphasis.
    text = re.sub(r"^(\s*)\*\*(\w+):", r"\1\\*\\*\2:", text, flags=re.M)
    lines[:] = text.split("\n")


def own_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: type,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Show what `__init__` takes: `__new__` of Keras takes anything."""
    home = getattr(getattr(obj, "__init__", None), "__module__", "")
    if what != "class" or not home.startswith(PACKAGE):
        return None
    _, *parameters = inspect.signature(obj.__init__).parameters.values()
    found = inspect.Signature(parameters)
    return stringify_signature(found, show_annotation=False), returns


def setup(app: Sphinx) -> dict:
    """Connect before napoleon, which is first in `conf.py`, priority 500."""
    app.connect("autodoc-process-signature", own_signature)
    app.connect("autodoc-process-docstring", to_rest, priority=400)
    return {"parallel_read_safe": True}
