"""Another project's package of the same name is reported, with the remedy."""

import pytest
from project_table import PROJECT

from keras_transformer.__main__ import main
from keras_transformer.machine import extras


def install(folder, name, version, *files):
    """A distribution as pip records it."""
    information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    (information / "RECORD").write_text("".join(f"{x},,\n" for x in files))


def test_the_name_is_the_one_that_pip_is_told():
    assert extras.NAME == PROJECT["name"]


def test_a_strangers_package_in_the_same_folder_is_one_sentence_with_the_cure(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(tmp_path)
    files = ("keras_transformer/gelu.py", "keras_transformer/__init__.py")
    install(tmp_path, "keras-transformer", "0.40.0", *files)

    assert main(["evaluate", "--run-dir", str(tmp_path)]) == 2

    assert capsys.readouterr().err == (
        "error: Expected keras-transformer-mt to have the package "
        "keras_transformer to itself, found another project's "
        "keras-transformer 0.40.0, which overwrites it; run pip uninstall "
        "--yes keras-transformer, then install keras-transformer-mt again with "
        "--force-reinstall --no-deps.\n"
    )


@pytest.mark.parametrize(
    "name, file",
    [
        ("keras-transformer-mt", "keras_transformer/__init__.py"),
        # For example a clone that was installed before it had its name.
        ("keras-transformer", "__editable__.keras_transformer-0.1.0.pth"),
    ],
)
def test_what_is_no_stranger_or_leaves_the_folder_alone_is_passed_over(
    tmp_path, monkeypatch, capsys, name, file
):
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, name, "0.1.0", file)

    assert main(["evaluate", "--run-dir", str(tmp_path)]) == 2
    assert "Expected a run directory" in capsys.readouterr().err
