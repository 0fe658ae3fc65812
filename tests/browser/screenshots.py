"""Screenshots of the page for review: three widths, both themes, each of its parts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.pages import launched, new_context, open_page, press, run
from tests.browser.serving import page_url

THEMES = ("light", "dark")
HEIGHTS = {390: 844, 820: 1180, 1440: 900}
"""Window sizes of a phone, a tablet and a desktop: height by width."""


def start(page: Page) -> None:
    pass


def answered(page: Page) -> None:
    run(page)
    expect(page.locator(".graph-status")).to_contain_text("The answer is complete.")


def raced(page: Page) -> None:
    press(page, "Race")
    expect(page.locator(".race-result")).to_contain_text("fewer passes")
    expect(page.locator(".graph-status")).to_contain_text("The answer is complete.")


def explained(page: Page) -> None:
    page.get_by_role("tab", name="Explain").click()
    expect(page.locator(".explain")).to_be_visible()


def sure(page: Page) -> None:
    page.get_by_label("Example").select_option("review")
    run(page)
    page.get_by_role("tab", name="Confidence").click()


def refused(page: Page) -> None:
    page.locator(".cm-content").press("ControlOrMeta+A")
    page.keyboard.insert_text('{"type": "object", "properties": {"a": {"type": "nonsense"}}}')
    press(page, "Run")
    expect(page.locator(".answer-text .failure").first).to_be_visible()


def code(page: Page) -> None:
    page.get_by_role("tab", name="Code").click()
    expect(page.get_by_text("response_format").first).to_be_visible()


def operations(page: Page) -> None:
    page.get_by_role("tab", name="Operations").click()
    for _ in range(8):  # something to plot
        page.evaluate(
            """() => fetch("v1/chat/completions", {
                 method: "POST",
                 headers: { "content-type": "application/json" },
                 body: JSON.stringify({
                   model: "leapjson-demo",
                   messages: [{ role: "user", content: "Create a character sheet." }],
                   response_format: { type: "json_object" },
                   max_tokens: 200,
                 }),
               }).then((response) => response.text())"""
        )
        page.wait_for_timeout(1500)


def key(page: Page) -> None:
    press(page, "Key")
    expect(page.get_by_role("dialog")).to_be_visible()


SCENES: Mapping[str, Callable[[Page], None]] = {
    "start": start,
    "answer": answered,
    "race": raced,
    "explain": explained,
    "confidence": sure,
    "error": refused,
    "code": code,
    "operations": operations,
    "key": key,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.browser.screenshots", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="folder for files SCENE-WIDTH-THEME.png")
    parser.add_argument("--url", help="address of a running server; by default one is started")
    parser.add_argument("--only", nargs="+", choices=SCENES, default=list(SCENES))
    parser.add_argument("--themes", nargs="+", choices=THEMES, default=THEMES)
    parser.add_argument("--widths", nargs="+", type=int, choices=HEIGHTS, default=list(HEIGHTS))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = stack.enter_context(page_url(options.url))
        browser = stack.enter_context(launched())
        for theme, width, name in product(options.themes, options.widths, options.only):
            path = options.folder / f"{name}-{width}-{theme}.png"
            with new_context(browser, (width, HEIGHTS[width]), theme) as context:
                page = open_page(context, url)
                SCENES[name](page)
                shoot(page, path)
            print(path, flush=True)
    return 0


def shoot(page: Page, path: Path) -> None:
    """Saves the whole page, in a window of its height, so that sticky parts do not cover it."""
    height = page.evaluate("document.documentElement.scrollHeight")
    window = page.viewport_size
    assert window is not None
    page.set_viewport_size({"width": window["width"], "height": height})
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(500)
    page.screenshot(path=path)


if __name__ == "__main__":
    sys.exit(main())
