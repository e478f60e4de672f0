"""The page of the embedded server in a real browser, and a plain client."""

import functools
import json

import httpx
import pytest
from real_browser import new_page


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine may need more than the five seconds that httpx waits.

    This is for `httpx.get` and `httpx.post`; an `httpx.Client` has a timeout of
    its own.
    """
    for name in ("get", "post"):
        patient = functools.partial(getattr(httpx, name), timeout=60)
        monkeypatch.setattr(httpx, name, patient)


@pytest.fixture
def anyio_backend():
    """The loop that the server has, for tests that are coroutines."""
    return "asyncio"


@pytest.fixture(scope="session")
def served_page():
    """A server whose model is quick and predictable."""
    from running_server import running
    from word_by_word_model import WordByWord

    with running(
        WordByWord(), explain=lambda text, version: f"<p>{text}</p>"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


class Visit:
    """A page that is open."""

    def __init__(self, page):
        self.page = page
        self.field = page.locator("#text")
        self.output = page.locator("#translation")
        self.status = page.locator("#status")

    def wait_for(self, translation):
        """Wait until the page shows exactly that."""
        self.page.wait_for_function(
            "wanted => document.querySelector('#translation').textContent"
            " === wanted",
            arg=translation,
        )

    def look_closer(self):
        """Wait until the page shows the details of the chosen sentence."""
        self.page.locator("#closer:not(.stale)").wait_for()

    def questions(self):
        """Texts asked for as a whole from now on."""
        texts = []

        def remember(request):
            if request.url.endswith("/api/translate"):
                body = json.loads(request.post_data)
                if not body["alignment"]:
                    texts.append(body["text"])

        self.page.on("request", remember)
        return texts


@pytest.fixture
def visit(browser, served_page):
    """Opens the page; checks afterwards that it asked no other server.

    `prepare` gets the page before it is opened; `expected` is part of the
    browser's complaint when a test provokes one.
    """
    pages, asked, complaints = [], [], []
    inside, allowed = ["data:"], []

    def open_page(prepare=None, expected=None, server=served_page, **options):
        page = new_page(browser, asked, complaints, **options)
        pages.append(page)
        inside.append(f"{server.url}/")
        allowed.extend([expected] if expected else [])
        if prepare:
            prepare(page)
        page.goto(f"{server.url}/")
        page.locator("#card").wait_for()
        return Visit(page)

    yield open_page
    for page in pages:
        page.context.close()
    assert [url for url in asked if not url.startswith(tuple(inside))] == []
    assert [x for x in complaints if not any(y in x for y in allowed)] == []
