"""The pages of verbs, flags and settings, made from the parser itself."""

import argparse
import dataclasses
import inspect
import pathlib
import re

from sphinx.application import Sphinx

from keras_transformer import __main__ as command_line
from keras_transformer.commands import flags
from keras_transformer.config import (
    ModelConfig,
    Sampling,
    Search,
    TrainingConfig,
)
from keras_transformer.settings import kind_of, setting_of

REFERENCE = pathlib.Path(__file__).parents[1] / "reference"

_VERBS_INTRODUCTION = """\
# Verbs and flags

`keras-transformer VERB --help` prints what this page shows: both come from the
same parser. `python -m keras_transformer VERB` is the same command, and in the
clone `python train.py` and `python export.py` are the verbs of those names.

Results go to standard output and the log to standard error, so you can pipe one
verb into the next. A verb exits with

- 0 when it is done, and 130 after Ctrl-C;
- 1 when the job failed on its way;
- 2 when an argument or an input is wrong.

"""
_SETTINGS_INTRODUCTION = """\
# Settings and presets

Every setting stands once, in a configuration. The command line, `kt.train`, the
layers and this page all read it there. On the command line a setting is a flag
with dashes, in Python an argument with underscores: `--beam-size 4` is
`beam_size=4`. A preset changes the defaults; what you give beside it wins.

"""
_CONFIGURATIONS = {
    "The model": (
        ModelConfig,
        "The shape, with the letters of the paper in brackets.",
    ),
    "The training": (TrainingConfig, "Section 5 of the paper as numbers."),
    "The search": (Search, "How a translation is found (section 6.1)."),
    "Sampling": (Sampling, "Drawing at random instead of searching."),
}


def write_pages(app: Sphinx, config: object) -> None:
    """Write both pages."""
    for name, text in (
        ("verbs", _VERBS_INTRODUCTION + _verbs()),
        ("settings", _SETTINGS_INTRODUCTION + _settings() + _presets()),
    ):
        path = REFERENCE / f"{name}.md"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def _verbs() -> str:
    """Write a section for each verb."""
    sections = []
    for name in command_line.VERBS:
        module = command_line.module_of(name)
        parser = argparse.ArgumentParser(prog=f"keras-transformer {name}")
        module.add_flags(parser)
        sections += [
            f"## {name}\n",
            f"{_description(module.run)}\n",
            _flags(parser),
        ]
    return "\n".join(sections)


def _description(function: object) -> str:
    """Write the text of `--help` as Markdown, indented parts as code."""
    parts = []
    for part in (inspect.getdoc(function) or "").split("\n\n"):
        head, *rest = part.split("\n")
        if head.startswith("Args"):
            break
        if head == "Example:":
            lines = [line.strip() for line in rest]
            parts.append("\n".join(["```", *lines, "```"]))
        elif head.startswith("    "):
            parts.append("\n".join(["```", part.strip(), "```"]))
        else:
            parts.append(_cell(part))
    return "\n\n".join(parts)


def _flags(parser: argparse.ArgumentParser) -> str:
    """Write a table of a parser's flags."""
    rows = ["| flag | meaning |", "| --- | --- |"]
    formatter = parser._get_formatter()
    for action in parser._actions:
        is_help = isinstance(action, argparse._HelpAction)
        if is_help or action.help == argparse.SUPPRESS:
            continue
        text = formatter._expand_help(action) if action.help else ""
        named = ", ".join(action.option_strings) or (
            action.metavar or action.dest
        )
        if action.option_strings and action.nargs != 0:
            value = action.metavar or action.dest.upper()
            named += f" {value}"
        if action.choices and "choices" not in text:
            names = ", ".join(map(str, action.choices))
            text = text if names in text else f"{text}; one of {names}"
        needed = " (needed)" if action.required and action.nargs != "?" else ""
        rows.append(f"| `{named}`{needed} | {_cell(text)} |")
    return "\n".join(rows) + "\n"


def _settings() -> str:
    """Write a table for each configuration."""
    sections = []
    for title, (configuration, sentence) in _CONFIGURATIONS.items():
        rows = [
            "| setting | default | meaning |",
            "| --- | --- | --- |",
        ]
        for field in dataclasses.fields(configuration):
            about = setting_of(field)
            described = about.described()
            allowed = ""
            is_count = kind_of(field) is int
            within = about.within or ("[1, inf)" if is_count else None)
            if within and within not in described:
                least = "at least" if within[0] == "[" else "above"
                allowed = f"; {least} {within[1:].split(',')[0]}"
            flag = flags.flag(field.name) if about.flag else ""
            flag = f"<br>`{flag}`" if flag else ""
            rows.append(
                f"| `{field.name}`{flag} | `{field.default!r}` | "
                f"{_cell(described + allowed)} |"
            )
        sections += [f"## {title}\n", f"{sentence}\n", "\n".join(rows) + "\n"]
    return "\n".join(sections)


def _presets() -> str:
    """Write how each preset differs from `base`."""
    from keras_transformer.presets import PRESETS, parameters

    rows = [
        "| preset | parameters | differs from `base` in |",
        "| --- | --- | --- |",
    ]
    base = PRESETS["base"]
    for name, preset in PRESETS.items():
        changed = [
            f"`{field.name}={getattr(ours, field.name)!r}`"
            for ours, theirs in zip(
                (preset.model, preset.training, preset.search),
                (base.model, base.training, base.search),
                strict=True,
            )
            for field in dataclasses.fields(ours)
            if getattr(ours, field.name) != getattr(theirs, field.name)
        ]
        count = f"{parameters(preset.model):,}"
        rows.append(f"| `{name}` | {count} | {', '.join(changed)} |")
    return (
        "\n## Presets\n\nThe rows of table 3 of the paper, and a few beyond. "
        "The number of parameters\nfollows from the shape and the "
        "vocabulary.\n\n" + "\n".join(rows) + "\n"
    )


def _cell(text: str) -> str:
    """Write text for a cell of a table: flags as code, no bars."""
    spans = re.split(r"(`[^`]*`)", " ".join(text.split()))
    for i, words in enumerate(spans[::2]):  # Not what is code already.
        words = re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", words)
        words = re.sub(r"(?<!\w)([A-Za-z]+_\w+)", r"`\1`", words)
        spans[2 * i] = words.replace("*", "\\*").replace("<", "&lt;")
    return "".join(spans).replace("|", "\\|")


def setup(app: Sphinx) -> dict:
    """Write the pages before Sphinx looks for its sources."""
    app.connect("config-inited", write_pages)
    return {"parallel_read_safe": True}
