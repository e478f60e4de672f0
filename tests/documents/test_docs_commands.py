"""What the pages of docs/ say, name and draw is so."""

import itertools
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess

import pytest
from programs import python

import keras_transformer as kt
from keras_transformer import layers
from keras_transformer.__main__ import parse_args
from keras_transformer.data.languages import language_of

DOCS = pathlib.Path(__file__).parents[2] / "docs"
# What a build has written, or copied from elsewhere.
MADE = re.compile(
    r"(_build|benchmarks|examples|notebooks)/|reference/(verbs|settings)\.md"
)
PAGES = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if not MADE.match(path.relative_to(DOCS).as_posix())
]


def blocks(text, *languages):
    """The text between the fences of some languages."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.M | re.S)
    return [block for language, block in found if language in languages]


def commands(page):
    """The arguments of each command of ours on a page."""
    for block in blocks(page.read_text("utf-8"), ""):
        for line in block.replace("\\\n", " ").splitlines():
            _, found, arguments = line.partition("keras-transformer ")
            if found:
                # Redirections belong to the shell.
                arguments = re.split(r" [<>|] ", arguments)[0]
                yield shlex.split(arguments, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_parser_takes_every_command(page, monkeypatch):
    # The files of arguments are here.
    monkeypatch.chdir(DOCS.parent)
    for arguments in commands(page):
        if arguments[0] != "VERB":
            parse_args(arguments)


AWKWARD = ["a\tb", "\\n \\t", '"it\'s" $HOME `ls` %s', "", "  x ", "-n"]


def test_the_shell_lines_that_gather_a_corpus_keep_its_pairs(tmp_path):
    page = (DOCS / "guides" / "several_models.md").read_text("utf-8")
    (script,) = (x for x in blocks(page, "text") if "more-" in x)
    (tmp_path / "translated").mkdir()
    sources = [text.replace("\t", " ") for text in AWKWARD]  # As Beam's are.
    for i in "01":  # The last line of a file may have no end.
        (tmp_path / f"more-{i}.fr").write_text("\n".join(AWKWARD))
        rows = "".join(f"{text}\t-0.5000\n" for text in sources)
        (tmp_path / "translated" / f"en-{i}.tsv").write_text(rows)
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)
    for lang, lines in ("fr", AWKWARD), ("en", sources):
        found = (tmp_path / "backtranslated" / f"train.{lang}").read_text()
        assert found == "".join(f"{line}\n" for line in lines * 2)


@pytest.mark.parametrize("page", ["guides/precision.md", "questions/bleu.md"])
def test_the_lines_that_compare_two_systems_take_any_text(tmp_path, page):
    found = "\n".join(blocks((DOCS / page).read_text("utf-8"), ""))
    (line,) = re.findall("^sacrebleu .* -i .*", found, re.MULTILINE)
    for name in re.findall(r"\S+\.txt", line):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{x} two three four\n" if x else "\n" for x in AWKWARD)
        (tmp_path / name).write_text(text)
    run = python("-m", *shlex.split(line), cwd=tmp_path, check=False)
    assert run.stdout.count(" 100.0 (100.0 ") >= 2, run.stderr


@pytest.mark.skipif(not shutil.which("shuf"), reason="GNU's shuf is missing")
def test_the_shell_lines_that_cut_a_corpus_keep_its_pairs(tmp_path):
    page = (DOCS / "guides" / "corpus.md").read_text("utf-8")
    (script,) = (x for x in blocks(page, "") if "shuf " in x)
    for lang in "en", "fr":
        lines = [text and f"{text}{i}" for i, text in enumerate(AWKWARD * 200)]
        (tmp_path / f"all.{lang}").write_text("".join(f"{x}\n" for x in lines))
    (tmp_path / "my-text").mkdir()
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)
    for split, count in ("test", 1_000), ("train", 200):
        sides = [
            (tmp_path / "my-text" / f"{split}.{lang}").read_text().split("\n")
            for lang in ("en", "fr")
        ]
        assert sides[0] == sides[1] and len(sides[0]) == count + 1
    assert sides[0][:-1] != lines[1_000:]  # At random.


def test_there_are_commands_of_every_verb():
    verbs = {arguments[0] for page in PAGES for arguments in commands(page)}
    assert verbs >= {
        *("train", "translate", "score", "evaluate", "view", "export"),
        *("import", "serve", "shortlist", "distill", "backtranslate"),
    }


def test_every_name_of_ours_exists():
    for page in PAGES:
        text = page.read_text("utf-8")
        for name in re.findall(r"\bkt\.(?!layers\.)([A-Za-z]\w*)", text):
            assert name in kt.__all__, f"kt.{name} on {page.name}"
        for name in re.findall(r"\bkt\.layers\.([A-Za-z]\w*)", text):
            assert hasattr(layers, name), f"kt.layers.{name} on {page.name}"


def test_every_link_leads_to_what_a_clone_has():
    root = DOCS.parent
    folders = "benchmarks", "examples", "notebooks", "keras_transformer"
    others = [root.glob("*.md"), *(root.glob(f"{x}/**/*.md") for x in folders)]
    for page in itertools.chain(PAGES, *others):
        text = re.sub(
            r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S
        )
        for link in re.findall(r"\]\(([^()\s]+)\)", text):
            path = page.parent / link.partition("#")[0]
            where = os.path.relpath(path, DOCS)
            if "://" not in link:
                assert path.exists(), f"{link} on {page}"
                assert not MADE.match(where), f"{link} on {page}"


def test_python_on_the_pages_compiles():
    for page in PAGES:
        for block in blocks(page.read_text("utf-8"), "python"):
            if not block.startswith("%"):  # A notebook's magic.
                compile(block, page.name, "exec")


def test_the_architecture_is_drawn_by_its_program():
    program = runpy.run_path(str(DOCS.parent / "pictures" / "architecture.py"))
    kept = (DOCS.parent / "pictures" / "architecture.svg").read_text("utf-8")
    assert program["draw"]() == kept


def test_the_table_is_true_of_each_language():
    page = DOCS / "guides" / "languages.md"
    rows = re.findall(r"^\| `.*$", page.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        code = row.split("`")[1]
        language = language_of(code)
        spaces = "spaces" if language.has_spaces else "nothing"
        expected = (
            f"| `{code}` | {language.names[0]} | {language.direction} | "
            f"{spaces} | `{language.bleu_tokenizer}` |"
        )
        assert row == expected
