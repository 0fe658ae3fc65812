"""The operations tab: the server's metrics as plots."""

from __future__ import annotations

import httpx
from playwright.sync_api import Locator, Page, expect

from loadtest.server import Server
from tests.browser.pages import show_tab


def total(page: Page, plot: str, line: str) -> Locator:
    """The figure of all the time that is shown."""
    table = page.get_by_role("region", name=plot).get_by_role("table")
    return (
        table.get_by_role("row")
        .filter(has=page.get_by_role("rowheader", name=line))
        .locator("td")
        .last
    )


def test_what_the_server_does_appears_without_a_prometheus(page: Page, server: Server) -> None:
    show_tab(page, "Operations")
    expect(page.get_by_text("leapjson-demo")).to_be_visible()
    leapt = total(page, "Answer tokens by origin", "leapt")
    expect(leapt).to_have_text("0")
    spec = {"type": "regex", "regex": "what is written here is decided [0-9]"}
    body = {
        "model": "leapjson-demo",
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": spec,
    }
    answered = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    details = answered["usage"]["completion_tokens_details"]
    expect(leapt).to_have_text(str(details["leapt_tokens"]))
    expect(total(page, "Requests by status", "200")).to_have_text("1")
    expect(total(page, "Forward passes", "passes")).not_to_have_text("0")


def test_nothing_is_asked_while_the_tab_is_out_of_sight_or_paused(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert not [url for url in asked if url.endswith("/metrics")]
    show_tab(page, "Operations")
    page.wait_for_timeout(2500)
    assert [url for url in asked if url.endswith("/metrics")]
    page.get_by_role("button", name="Pause").click()
    asked.clear()
    page.wait_for_timeout(2500)
    assert not [url for url in asked if url.endswith("/metrics")]


def test_plots_are_drawn(page: Page) -> None:
    show_tab(page, "Operations")
    canvases = page.locator(".plot canvas")
    expect(canvases.first).to_be_visible()
    page.wait_for_timeout(4500)
    for number in range(3):
        colours = canvases.nth(number).evaluate(
            """canvas => {
                 const pen = canvas.getContext("2d");
                 const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
                 const found = new Set();
                 for (let at = 0; at < data.length; at += 4)
                   if (data[at + 3] > 200) found.add(data.slice(at, at + 3).join());
                 return found.size;
               }"""
        )
        assert colours >= 2  # the grid, and at least one line
