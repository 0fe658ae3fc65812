"""The page in a real browser: opened, filled in, and watched for errors."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
"""Names of browsers; the first one that is installed is used."""
WIDE: Final = (1280, 720)
LISTEN: Final = """
const ask = window.fetch;
window.streams = [];
window.fetch = async (...request) => {
  const response = await ask(...request);
  const stream = { text: "", ended: false };
  if (String(request[0]).endsWith("/v1/chat/completions")) window.streams.push(stream);
  response.clone().text().then((text) => Object.assign(stream, { text, ended: true }), () => {});
  return response;
};
"""
"""Records the streams of the server: the browser itself drops a stream once it was read."""
PATIENCE: Final = 300_000
"""Time-out of every wait, in milliseconds; no test measures time with it."""


@contextmanager
def launched() -> Iterator[Browser]:
    """Runs the installed browser during the block; none is downloaded."""
    expect.set_options(timeout=PATIENCE)
    program = next(path for name in BROWSERS if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        try:
            yield browser
        finally:
            browser.close()


def new_context(
    browser: Browser, size: tuple[int, int] = WIDE, theme: str = "light"
) -> BrowserContext:
    """A new browser context, with an empty cache and no storage."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(PATIENCE)
    context.add_init_script(LISTEN)
    return context


@dataclass
class Watch:
    """Records errors, warnings and requests to other origins while a page is used."""

    origin: str
    wrong: list[str] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"not caught: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # The browser logs every refused request; tests of refusals cause some on purpose.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.wrong.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.origin + "/", "data:", f"blob:{self.origin}/")):
            self.wrong.append(f"asked {request.url}")


def open_page(context: BrowserContext, url: str, *, model: bool = True) -> Page:
    """The page at ``url`` with its editor loaded and, if ``model``, the model's name known."""
    page = context.new_page()
    page.goto(url)
    expect(page.locator(".cm-content")).to_be_visible()
    if model:
        expect(page.locator("#model")).not_to_have_value("")
    return page


# --- The request ---


def write_schema(page: Page, schema: object) -> None:
    """Replaces the schema in the editor by pasting ``schema``."""
    text = schema if isinstance(schema, str) else json.dumps(schema, indent=2)
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    page.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.press("ControlOrMeta+V")


def write_regex(page: Page, regex: str) -> None:
    page.get_by_role("radio", name="Regex").check()
    page.get_by_label("Regular expression").fill(regex)


def ask(page: Page, prompt: str) -> None:
    page.get_by_label("Prompt", exact=True).fill(prompt)


def press(page: Page, button: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()


# --- The answer ---


def run(page: Page) -> dict[str, Any]:
    """Presses Run and waits for the end. Returns the last usage in the stream."""
    page.evaluate("window.streams = []")
    press(page, "Run")
    expect(page.locator(".answer-tools .state")).to_have_class("state done")
    page.wait_for_function("() => streams.every((stream) => stream.ended)")
    usage: dict[str, Any] = page.evaluate(
        """streams[0].text.split("\\n\\n")
           .filter((event) => event.startsWith("data: {"))
           .map((event) => JSON.parse(event.slice(6)).usage)
           .findLast((usage) => usage)"""
    )
    return usage


def answer(page: Page, lane: str = "answer") -> str:
    """The visible text of an answer."""
    return page.locator(f"#{lane}").evaluate("place => place.textContent")  # type: ignore[no-any-return]


def colours(page: Page, lane: str = "answer") -> Counter[str]:
    """Number of tokens of each origin, by their colours."""
    names = page.locator(f"#{lane} .token").evaluate_all(
        "tokens => tokens.map(token => token.className.replace('token ', ''))"
    )
    return Counter(names)


def legend(page: Page) -> Counter[str]:
    """The counts in the legend of the first lane."""
    pairs = (
        page.locator(".lane")
        .first.locator("[data-source]")
        .evaluate_all("cells => cells.map(cell => [cell.dataset.source, Number(cell.textContent)])")
    )
    return +Counter(dict(pairs))


def show_tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()
    expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
