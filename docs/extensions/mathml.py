"""Formulas as MathML, which browsers draw without a script or the network."""

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula of a line."""
    translator.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula that stands by itself."""
    formula = latex2mathml.tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict:
    """Offer it to `html_math_renderer`."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
