"""The operations tab: its numbers are the server's, and gaps in them are reported."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.pages import run

NARROW = (390, 844)


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def begin(page: Page) -> None:
    """Opens the tab and waits for the first metrics."""
    tab(page, "Operations")
    expect(page.get_by_text("Updated every 2 seconds")).to_be_visible()


def status(page: Page) -> Locator:
    return page.locator(".operations .status")


def totals(page: Page, title: str) -> dict[str, int]:
    """Totals of the time shown, by line."""
    rows = page.get_by_role("table", name=title).locator("tbody tr")
    return {
        row.locator("th").inner_text().strip(): int(row.locator("td").last.inner_text())
        for row in rows.all()
    }


def test_what_was_answered_while_the_tab_was_away_is_in_its_totals(page: Page) -> None:
    begin(page)
    tab(page, "Playground")
    usage = run(page)
    tab(page, "Operations")
    expect(page.get_by_text("this tab was hidden")).to_be_visible()
    details = usage["completion_tokens_details"]
    tokens = totals(page, "Answer tokens by origin")
    assert sum(tokens.values()) == usage["completion_tokens"] > 0
    assert tokens["drafted, held back"] == details["drafted_tokens"] + details["held_tokens"]
    assert tokens["leapt"] == details["leapt_tokens"]
    passes = totals(page, "Forward passes")
    assert passes["passes"] == details["forward_passes"]
    assert totals(page, "Requests by status")["200"] >= 1
    expect(page.locator(".plot .canvas canvas")).to_have_count(12)
    expect(page.locator(".vitals")).to_contain_text("leapjson-demo")


def test_a_lost_connection_is_shown_and_metrics_come_back(page: Page) -> None:
    begin(page)
    page.route("**/metrics", lambda route: route.abort())
    expect(status(page)).to_contain_text("No connection to the server")
    page.unroute("**/metrics")
    page.get_by_role("button", name="Retry now").click()
    expect(status(page)).to_contain_text("Updated every 2 seconds")
    expect(page.get_by_text("the server returned no metrics")).to_be_visible()


def test_the_error_of_a_server_without_metrics_is_shown(page: Page) -> None:
    body = '{"error": {"message": "<b>Not</b> here"}}'
    page.route("**/metrics", lambda route: route.fulfill(status=404, body=body))
    tab(page, "Operations")
    expect(status(page)).to_contain_text("<b>Not</b> here")
    page.unroute("**/metrics")
    page.route("**/metrics", lambda route: route.fulfill(body="<html>"))
    page.get_by_role("button", name="Retry now").click()
    expect(status(page)).to_contain_text("Line 1 is not in Prometheus' text format")


def test_a_key_is_asked_for_by_a_button_and_not_by_a_dialog_that_comes_again(page: Page) -> None:
    asked: list[str | None] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.headers.get("authorization"))
        if asked[-1] == "Bearer right":
            route.continue_()
        else:
            route.fulfill(status=401, body='{"error": {"message": "no"}}')

    page.route("**/metrics", refuse)
    tab(page, "Operations")
    expect(status(page)).to_contain_text("The server needs an API key")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for key, said in (("wrong", "refuses this API key"), ("right", "Updated every 2 seconds")):
        page.get_by_role("button", name="Enter a key").click()
        page.get_by_role("dialog").get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        expect(status(page)).to_contain_text(said)
    assert asked[0] is None
    assert asked[-1] == "Bearer right"


def test_the_keyboard_goes_back_in_time_pauses_and_chooses_the_window(page: Page) -> None:
    begin(page)
    look = page.get_by_role("slider", name="Values at")
    expect(look).not_to_have_attribute("max", "0")
    heads = page.locator(".figures thead th:nth-child(2)")
    expect(heads.first).to_have_text("now")
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(status(page)).to_contain_text("Paused")
    page.keyboard.press("Tab")
    expect(look).to_be_focused()
    page.keyboard.press("Home")
    time = look.get_attribute("aria-valuetext")
    assert time is not None
    assert time.count(":") == 2
    assert set(heads.all_inner_texts()) == {time}
    page.keyboard.press("End")
    expect(look).to_have_attribute("aria-valuetext", "now")
    page.get_by_role("radio", name="5 min", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="15 min")).to_be_checked()
    page.get_by_role("button", name="Resume").press("Enter")
    expect(page.get_by_text(": paused.")).to_be_visible()


def test_the_pointer_over_a_plot_tells_the_figures_of_that_time_in_all_tables(page: Page) -> None:
    begin(page)
    expect(page.get_by_role("slider")).not_to_have_attribute("max", "0")
    page.locator(".plot .u-over").first.hover(position={"x": 5, "y": 20})
    heads = page.locator(".figures thead th:nth-child(2)")
    expect(heads.last).not_to_have_text("now")
    page.locator(".vitals").hover()
    expect(heads.last).to_have_text("now")


def test_on_a_telephone_plots_fit_and_follow_the_width(opened: Callable[..., Page]) -> None:
    page = opened(size=NARROW)
    begin(page)
    canvas = page.locator(".plot canvas").first
    for width in (NARROW[0], 700, NARROW[0]):
        page.set_viewport_size({"width": width, "height": NARROW[1]})
        place = page.locator(".plot .canvas").first
        inside = place.evaluate("place => place.clientWidth")
        expect(canvas).to_have_css("width", f"{inside}px")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_only_a_tab_in_sight_asks_the_server(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    ended: list[str] = []
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda request: ended.append(request.url))

    def scrapes(seconds: int) -> int:
        before = len(asked)
        for _ in range(2 * seconds):
            page.clock.run_for(500)
            while len(ended) < len(asked):  # the page's clock does not advance meanwhile
                page.wait_for_timeout(10)
        return sum(url.endswith("/metrics") for url in asked[before:])

    page.clock.install()
    assert scrapes(10) == 0
    tab(page, "Operations")
    assert scrapes(10) >= 3
    tab(page, "Playground")
    assert scrapes(10) == 0
    tab(page, "Operations")
    assert scrapes(4) >= 1
    for state, some in (("hidden", False), ("visible", True)):
        page.evaluate(
            """state => {
              const get = () => state;
              Object.defineProperty(document, "visibilityState", { get, configurable: true });
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            state,
        )
        assert bool(scrapes(6)) is some


def test_plots_are_drawn(page: Page) -> None:
    begin(page)
    canvases = page.locator(".plot canvas")
    expect(canvases.first).to_be_visible()
    look = page.get_by_role("slider", name="Values at")
    expect(look).to_have_attribute("max", re.compile(r"^([2-9]|\d\d+)$"))
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
