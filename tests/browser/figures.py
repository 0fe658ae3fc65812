"""Size and loading times of the page, and its frame rate, as measured by the browser."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from playwright.sync_api import Browser, Page, expect

from tests.browser.pages import launched, new_context, press
from tests.browser.serving import page_url
from tests.browser.streams import feed
from tests.browser.tasks import CATEGORIES, Frames, frames_of

WATCH = """
window.told = { shift: 0, longest: 0 };
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) told.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) told.longest = Math.max(told.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });
"""
LOADED = """
() => {
  const paint = (name) => performance.getEntriesByName(name)[0]?.startTime ?? NaN;
  const all = ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type));
  const files = all.filter((each) => !each.name.includes("/v1/"));
  return {
    "first paint, ms": paint("first-paint"),
    "first contentful paint, ms": paint("first-contentful-paint"),
    "ready to be used, ms": performance.now(),
    "files": files.length,
    "over the wire, KB": files.reduce((sum, each) => sum + each.transferSize, 0) / 1000,
    "longest task while it loads, ms": told.longest,
    "layout shift while it loads": told.shift,
  };
}
"""
STREAMED = """
() => ({
  "longest task in a race, ms": told.longest,
  "layout shift in a race": told.shift,
})
"""


def measured(browser: Browser, url: str) -> Mapping[str, float]:
    """Measurements of a first visit and of a race, by name."""
    with new_context(browser) as context:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(url)
        expect(page.locator(".cm-content")).to_be_visible()
        expect(page.locator("#model")).not_to_have_value("")
        figures: dict[str, float] = page.evaluate(LOADED)
        press(page, "Race")
        expect(page.locator("#plain .token").first).to_be_attached()
        page.evaluate("told.shift = told.longest = 0")
        expect(page.locator(".race-result")).to_contain_text("fewer passes")
        figures.update(page.evaluate(STREAMED))
        frames = streamed(browser, page)
        figures["frames a second, at 200 tokens a second"] = frames.a_second
        figures["of the main thread for a frame, ms"] = frames.work
        return figures


def streamed(browser: Browser, page: Page) -> Frames:
    """The frames of an answer of three seconds."""
    feed(page, tokens=600, rate=200)
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.evaluate("performance.mark('began')")
    press(page, "Run")
    page.wait_for_function("() => document.querySelector('.state.done')")
    page.evaluate("performance.mark('ended')")
    return frames_of(browser.stop_tracing(), "began", "ended")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.figures", description=__doc__)
    parser.add_argument("--url", help="address of a running server; by default one is started")
    parser.add_argument("--visits", type=int, default=5, help="visits; medians are printed")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        url = stack.enter_context(page_url(options.url))
        browser = stack.enter_context(launched())
        visits = [measured(browser, url) for _ in range(options.visits)]
    for name in visits[0]:
        print(f"{name:40} {statistics.median(visit[name] for visit in visits):10.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
