"""Makes the pictures of the README from a run: `make demo`, then this.

    python pictures/make.py runs/demo

curve.png is the run's learning curve, beam.svg the beam of one sentence as a
tree, viewer.png the page that shows the rest of it, in Chromium.
"""

import argparse
import pathlib
import shutil
import tempfile

from playwright.sync_api import sync_playwright

import keras_transformer as kt
from keras_transformer import files

FOLDER = pathlib.Path(__file__).resolve().parent
TEXT = "The lamp costs two hundred and twelve euros and seven cents."
WIDTH, HEIGHT = 1_000, 1_050  # Pixels of viewer.png, the top of the page.


def main() -> None:
    """Write all three beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--text", default=TEXT)
    args = parser.parse_args()
    run = kt.Run(args.run_dir)
    with files.whole(FOLDER / "curve.png") as path:
        run.plot().savefig(path, format="png", dpi=80)
    explained = run.translator().explain(args.text)
    files.write_text(FOLDER / "beam.svg", explained.tree_svg())
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.html"
        explained.save_html(page)
        with files.whole(FOLDER / "viewer.png") as path:
            path.write_bytes(photograph(page))


def photograph(page: pathlib.Path) -> bytes:
    """The top of a page as PNG."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(page.as_uri())
        tab.wait_for_timeout(1_000)  # The views draw themselves.
        picture = tab.screenshot()
        browser.close()
    return picture


if __name__ == "__main__":
    main()
