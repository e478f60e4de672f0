"""Makes the pictures of the README from a run: `make demo`, then this.

    python pictures/make.py runs/demo

curve.png is the run's learning curve, viewer.png the page that explains a
translation, page.png the page of the server; the last two in Chromium.
"""

import argparse
import contextlib
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from playwright.sync_api import Browser, sync_playwright

import keras_transformer as kt
from keras_transformer.machine import files

FOLDER = pathlib.Path(__file__).resolve().parent
SENTENCE = "The lamp costs two hundred and twelve euros and seven cents."
TEXT = f"{SENTENCE} The train leaves at 9:15 AM.\n\nMay 7, 2031"
SIZE = {"width": 1_000, "height": 1_050}  # Pixels.


def main() -> None:
    """Write all three beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=pathlib.Path)
    args = parser.parse_args()
    chromium = shutil.which("chromium")
    if not chromium:
        sys.exit("No browser was found; install one with: make programs")
    run = kt.Run(args.run_dir)
    with files.whole(FOLDER / "curve.png") as path:
        run.plot().savefig(path, format="png", dpi=80)
    explained = run.translator().explain(SENTENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            explained.save_html(page)
            tab = browser.new_page(viewport=SIZE)
            tab.goto(page.as_uri())
            tab.wait_for_timeout(1_000)  # The views draw themselves.
            keep("viewer.png", tab.screenshot())
        with served(args.run_dir) as address:
            keep("page.png", page_of(address, browser))
        browser.close()


def keep(name: str, picture: bytes) -> None:
    """Write a picture whole."""
    with files.open_whole(FOLDER / name) as file:
        file.write(picture)


@contextlib.contextmanager
def served(run_dir: pathlib.Path) -> Iterator[str]:
    """The address of a server of a run."""
    command = [sys.executable, "-m", "keras_transformer", "serve"]
    server = subprocess.Popen(
        [*command, "--run-dir", str(run_dir), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr
    for line in server.stderr:
        if found := re.search(r"Serving at (http:\S+)", line):
            yield found[1]
            break
    server.send_signal(signal.SIGTERM)
    server.communicate()


def page_of(address: str, browser: Browser) -> bytes:
    """The page of the server, a word of its translation looked at."""
    tab = browser.new_page(viewport={**SIZE, "height": 800})
    tab.goto(address)
    tab.locator("#text").fill(TEXT)
    tab.locator("#closer").wait_for()
    tab.locator("#text").focus()
    tab.keyboard.press("Control+Home")
    tab.wait_for_timeout(1_500)  # Words and other translations come apart.
    tab.locator("#target-words .word").nth(3).focus()
    return tab.screenshot()


if __name__ == "__main__":
    main()
