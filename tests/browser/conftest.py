"""Fixtures: a browser, a server, and pages that are watched for errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, Page

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


@pytest.fixture
def opened(browser: Browser, server: Server) -> Iterator[Callable[..., Page]]:
    """Opens the page in a new browser context; the test fails if ``Watch`` finds anything wrong.

    Arguments: ``path`` after the server's address, ``url`` of another server, and arguments of
    ``new_context`` and ``open_page``.
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
            context = stack.enter_context(new_context(browser, size, theme))
            watch = Watch(url)
            watches.append(watch)
            context.on("page", watch.follow)
            return open_page(context, url + path, model=model)

        yield open_one
        for watch in watches:
            assert watch.wrong == []


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    return opened()
