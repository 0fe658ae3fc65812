"""Fixtures: a browser, a server, and pages that are watched for errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from loadtest.server import Server
from tests.browser.pages import BROWSERS, WIDE, Watch, launched, new_context, open_page
from tests.servers import running_server


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.needs(*BROWSERS))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the demo model. Tests share it, so none of them may assume that it is new."""
    settings = {"COMPILE_WORKERS": "2"}  # the page requests the answer and the graph together
    with running_server(None, tmp_path_factory.mktemp("server") / "log", settings) as server:
        yield server


@pytest.fixture(scope="package")
def shared(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    """A context with an open page, which keeps the browser's process of the server's pages."""
    with new_context(browser) as context:
        context.new_page().goto(f"{server.url}/version")
        yield context


@pytest.fixture
def opened(
    browser: Browser, server: Server, shared: BrowserContext
) -> Iterator[Callable[..., Page]]:
    """Opens the page; the test fails if ``Watch`` finds anything wrong.

    Arguments: ``path`` after the server's address, ``url`` of another server, and arguments of
    ``new_context`` and ``open_page``. With another URL, size or theme, the context is new.
    """
    watches: list[Watch] = []
    with ExitStack() as stack:

        def open_one(
            path: str = "/",
            *,
            url: str = server.url,
            size: tuple[int, int] = WIDE,
            theme: str = "light",
            model: bool = True,
        ) -> Page:
            context = shared
            if (url, size, theme) != (server.url, WIDE, "light"):
                context = stack.enter_context(new_context(browser, size, theme))
            watch = Watch(url)
            watches.append(watch)
            context.on("page", watch.follow)
            stack.callback(context.remove_listener, "page", watch.follow)
            page = open_page(context, url + path, model=model)
            stack.callback(page.close)
            return page

        yield open_one
        for watch in watches:
            assert watch.wrong == []


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    return opened()
