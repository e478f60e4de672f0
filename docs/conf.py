"""How Sphinx builds the site: `make docs`."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "extensions")]

from keras_transformer import __version__  # noqa: E402

project = "keras_transformer"
author = "The keras_transformer authors"
copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    # Of this repository, in docs/extensions.
    "copied_pages",
    "flag_pages",
    "keras_docstrings",
    "mathml",
    "source_links",
]
exclude_patterns = ["_build", "README.md"]

# Types of other packages, of which no inventory is fetched.
nitpick_ignore = [("py:class", "numpy.ndarray")]

# Commands are no Python.
highlight_language = "text"

# Notebooks show the outputs that they were committed with.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# A single backtick is code, as in Keras's docstrings.
default_role = "code"
autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [
    ("Call arguments", "params_style"),
    "Reference",
]
python_display_short_literal_types = True
python_maximum_signature_line_length = 76
add_module_names = False

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "keras_transformer"
html_theme_options = {
    "sidebar_hide_name": False,
    "navigation_with_keys": True,
}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
