"""The browser of this machine."""

import contextlib
import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = """
    --no-sandbox --disable-gpu --no-first-run --disable-sync
    --disable-background-networking --disable-component-update
""".split()


@contextlib.contextmanager
def launched():
    """A browser while it is needed; without one the test is skipped.

    In CI it fails instead.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        missing = "No browser was found; install one with: make programs"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=ARGUMENTS, timeout=120_000
        )
        yield browser
        browser.close()


def new_page(browser, asked, complaints, **options):
    """Open a page; note what it asks for, and what it complains of."""
    context = browser.new_context(**options)
    context.set_default_timeout(60_000)
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on(
        "console",
        lambda message: (
            message.type in ("error", "warning")
            and complaints.append(message.text)
        ),
    )
    return context.new_page()
