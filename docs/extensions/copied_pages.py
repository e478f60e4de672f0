"""Pages that live elsewhere in the repository, copied before each build.

Links lead to what is in the repository, on these pages and on our own, so that
they work in a clone. Here they are turned to where things are on the site. What
the site has not, such as a source file, is named by its path instead of linked.
"""

import functools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable

from sphinx.application import Sphinx

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"

# Path in the repository: page of the site.
PAGES = {
    **{
        f"benchmarks/{path.name}": f"benchmarks/{path.name}"
        for path in sorted((ROOT / "benchmarks").glob("*.md"))
    },
    **{
        f"notebooks/{path.name}": f"notebooks/{path.name}"
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    },
    "examples/beam/README.md": "examples/beam.md",
    "examples/cluster/README.md": "examples/cluster.md",
    "examples/importing/README.md": "examples/importing.md",
    "examples/importing/opennmt.md": "examples/opennmt.md",
    "examples/parsing/README.md": "examples/parsing.md",
    "examples/serving/README.md": "examples/serving.md",
    "keras_transformer/recipes/README.md": "examples/recipes.md",
}
# Linked, and not copied; the last three become pages of `flag_pages`.
OTHERS = {
    "README.md": "index.md",
    "notebooks/README.md": "notebooks.md",
    "benchmarks": "benchmarks.md",
    "notebooks": "notebooks.md",
    "keras_transformer/commands": "reference/verbs.md",
    "keras_transformer/config.py": "reference/settings.md",
    "keras_transformer/presets.py": "reference/settings.md",
}

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def copy_pages(app: Sphinx, config: object) -> None:
    """Copy every page, and the pictures that it shows."""
    for folder in ("benchmarks", "examples", "notebooks"):
        (DOCS / folder).mkdir(exist_ok=True)
    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        if source.endswith(".ipynb"):
            text = _notebook(text, source, page)
        else:
            turn = functools.partial(links, source=source, page=page)
            text = _outside_code(text, turn)
        _write(DOCS / page, text)


def turn_links(app: Sphinx, docname: str, content: list[str]) -> None:
    """Turn the links of a page that is not copied, once it has been read."""
    page = f"{docname}.md"
    if page not in PAGES.values() and (DOCS / page).exists():
        turn = functools.partial(links, source=f"docs/{page}", page=page)
        content[0] = _outside_code(content[0], turn)


def links(text: str, source: str, page: str) -> str:
    """Turn the links of a file into links of the page that it becomes."""

    def turned(found: re.Match) -> str:
        image, label, target = found.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not path:
            return found[0]
        there = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if image and source.startswith("docs/"):
            return found[0]
        if image:
            copy = DOCS / os.path.dirname(page) / os.path.basename(there)
            shutil.copyfile(ROOT / there, copy)
            return f"![{label}]({copy.name})"
        if not (ROOT / there).exists():
            raise FileNotFoundError(f"{source} links to {there}")
        known = {**PAGES, **OTHERS}
        if there.startswith("docs/"):
            known[there] = there.removeprefix("docs/")
        for name in (there, f"{there}/README.md"):
            if name in known:
                to = os.path.relpath(known[name], os.path.dirname(page) or ".")
                return f"[{label}]({to}{'#' + anchor if anchor else ''})"
        plain = label.strip("`")
        return f"`{there}`" if there.endswith(plain) else f"{label} (`{there}`)"

    return _LINK.sub(turned, text)


def _notebook(text: str, source: str, page: str) -> str:
    """Turn the links; a badge on Colab needs the network and a release."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            markdown = "".join(cell["source"])
            markdown = re.sub(
                r"\[!\[Open in Colab\]\([^)]*\)\]\([^)]*\)\s*"
                r"Not run in Colab itself yet\.",
                "Once the release is published, its copy on GitHub opens in "
                "Colab with one click. It has not been run in Colab itself "
                "yet.",
                markdown,
            )
            cell["source"] = links(markdown, source, page)
    return json.dumps(notebook, ensure_ascii=False, indent=1)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change what is not in a fenced block."""
    parts, end = [], 0
    for block in _CODE.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def _write(path: pathlib.Path, text: str) -> None:
    """Write a page if it changed, so that Sphinx reads only those."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def setup(app: Sphinx) -> dict:
    """Copy the pages before Sphinx looks for its sources."""
    app.connect("config-inited", copy_pages)
    app.connect("source-read", turn_links)
    return {"parallel_read_safe": True}
