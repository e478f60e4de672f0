"""Pages in a browser that are held to ask for nothing."""

import pytest
from random_explanations import make_explanation
from real_browser import new_page


@pytest.fixture(scope="session")
def explanation():
    return make_explanation()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens HTML; afterwards no page has asked or complained of anything."""
    pages, asked, complaints = [], [], []

    def open_html(html, **options):
        path = tmp_path / f"page-{len(pages)}.html"
        path.write_text(html, encoding="utf-8")
        page = new_page(browser, asked, complaints, **options)
        pages.append(page)
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.locator(".viewer .grid button").first.wait_for()
        return page

    yield open_html
    for page in pages:
        page.context.close()
    inside = ("data:", "blob:")
    others = [url for url in asked if not url.startswith(inside)]
    assert len(others) == len(pages), others
    assert not complaints


@pytest.fixture
def page(opened, explanation):
    return opened(explanation.to_html())
