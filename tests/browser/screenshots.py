"""Pictures of the page, to be looked at: three widths, both themes, each of its parts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.pages import launched, new_context, open_page, press, run
from tests.browser.serving import page_url

WIDTHS = {390: 844, 820: 1180, 1440: 900}
"""Sizes of a window: a phone, a tablet, a desk."""


def start(page: Page) -> None:
    pass


def answered(page: Page) -> None:
    run(page)
    page.evaluate("scrollTo(0, 0)")


def raced(page: Page) -> None:
    press(page, "Race")
    expect(page.locator(".race-result")).to_contain_text("fewer passes")


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
    expect(page.get_by_role("alert").first).to_be_visible()


def code(page: Page) -> None:
    page.get_by_role("tab", name="Code").click()
    expect(page.get_by_text("response_format").first).to_be_visible()


def operations(page: Page) -> None:
    page.get_by_role("tab", name="Operations").click()
    page.wait_for_timeout(7000)  # plots of some points


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
    parser.add_argument("folder", type=Path, help="where SCENE-WIDTH-THEME.png are written")
    parser.add_argument("--url", help="a server that runs already, instead of one of its own")
    parser.add_argument("--only", nargs="+", choices=SCENES, default=list(SCENES))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = stack.enter_context(page_url(options.url))
        browser = stack.enter_context(launched())
        for theme in ("light", "dark"):
            for size in WIDTHS.items():
                for name in options.only:
                    with new_context(browser, size, theme) as context:
                        page = open_page(context, url)
                        SCENES[name](page)
                        path = options.folder / f"{name}-{size[0]}-{theme}.png"
                        page.screenshot(path=path, full_page=True)
                        print(path, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
