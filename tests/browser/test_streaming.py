"""Cost of a stream to the page, in counts: frame rates would depend on the machine."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import answer, press
from tests.browser.streams import feed

COUNT = """
() => {
  const seen = (window.seen = { frames: 0, writes: 0, nodes: 0 });
  const count = () => {
    seen.frames++;
    requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
  new MutationObserver((records) => {
    const added = records.flatMap(({ addedNodes }) => [...addedNodes]);
    const tokens = added.filter((node) => node.classList?.contains("token"));
    seen.writes += tokens.length > 0;
    seen.nodes += tokens.length;
  }).observe(document.querySelector(".answer-side"), { childList: true, subtree: true });
}
"""


@pytest.mark.parametrize(("tokens", "rate"), [(400, 200.0), (2000, 1e6)], ids=["steady", "a burst"])
def test_however_many_tokens_come_the_page_is_written_once_a_frame(
    page: Page, tokens: int, rate: float
) -> None:
    feed(page, tokens=tokens, rate=rate)
    page.evaluate(COUNT)
    press(page, "Run")
    expect(page.locator(".answer-tools .state")).to_have_class("state done")
    expect(page.locator("#answer .token")).to_have_count(tokens)
    seen: dict[str, Any] = page.evaluate("window.seen")
    assert answer(page).startswith("word0 word1 ")
    # The end of the answer does not wait for a frame; nor does its first rendering.
    assert seen["writes"] <= seen["frames"] + 2
    assert seen["nodes"] == tokens  # no token is rendered again for later ones


def test_tokens_are_shown_though_their_text_was_painted_before_they_came(page: Page) -> None:
    feed(page, tokens=1, rate=1e6, frames=2)
    press(page, "Run")
    expect(page.locator(".answer-tools .state")).to_have_class("state done")
    expect(page.locator("#answer .token")).to_have_count(1)
    assert answer(page) == "word0 "
