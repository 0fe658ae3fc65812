"""Accessibility: screen readers, keyboards, small windows, and no layout shifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.pages import press, run, show_tab, write_schema

AXE = Axe()

FOCUSED = """
() => {
  let element = document.activeElement;
  while (element.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  const box = element.getBoundingClientRect();
  const label = element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent;
  const name = label ?? element.textContent;
  window.focused = element;
  return {
    name: `${element.localName} ${element.id || (name ?? "").trim().slice(0, 40)}`,
    top: document.activeElement === document.body,
    editor: element.matches(".cm-content"),
    known: Number(element.dataset.known ?? -1),
    box: { x: box.x, y: box.y, width: box.width, height: box.height },
    covered: !element.contains(element.getRootNode().elementFromPoint(
      box.x + box.width / 2, Math.min(box.y + box.height / 2, innerHeight - 1))),
  };
}
"""
CONTROLS = """
() => {
  const all = [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0'], [contenteditable='true']")];
  for (const host of document.querySelectorAll(".editor"))
    all.push(...host.shadowRoot.querySelectorAll(".cm-content"));
  const radios = (each) => each.type === "radio" && !each.checked;
  const found = all.filter((each) =>
    !each.disabled && each.tabIndex >= 0 && !radios(each) && each.checkVisibility());
  found.forEach((each, index) => (each.dataset.known = index));
  return found.map((each) => each.outerHTML.slice(0, 120));
}
"""
"""All controls; of radio buttons and tabs only one, since arrow keys reach the others."""
SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries())
    window.shifts.push([entry.startTime, entry.value,
      entry.sources.map(({ node }) => node?.className ?? node?.nodeName ?? "")]);
}).observe({ type: "layout-shift", buffered: true });
"""


AT_REST = """() => document.getAnimations().every(
    each => each.playState !== "running" || each.effect.getTiming().iterations === Infinity
)"""


def assert_no_violations(page: Page, where: str, within: str | None = None) -> None:
    """``within``: a selector; the rest of the page is not examined."""
    page.wait_for_function(AT_REST)  # colours that fade in have too little contrast for a while
    results = AXE.run(page, within)
    found = [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in results.response["violations"]
        for node in each["nodes"]
    ]
    assert not found, f"{where}:\n" + "\n".join(found)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 720), (390, 844)], ids=["wide", "narrow"])
def test_axe_finds_no_violation_anywhere(
    opened: Callable[..., Page], theme: str, size: tuple[int, int]
) -> None:
    page = opened(theme=theme, size=size)
    assert_no_violations(page, "at the start")
    page.get_by_label("Example").select_option("review")
    press(page, "Race")
    expect(page.locator(".race-result")).to_contain_text("fewer passes")
    page.locator("#answer").focus()  # shows the tooltip of a token
    show_tab(page, "Graph")
    page.wait_for_timeout(300)
    assert_no_violations(page, "after an answer")
    for tab in ("Explain", "Confidence", "Code", "Operations"):
        show_tab(page, tab)
        page.wait_for_timeout(300)
        panel = page.get_by_role("tabpanel", name=tab).get_attribute("id")
        assert_no_violations(page, tab, f"#{panel}")
    show_tab(page, "Playground")
    for kind in ("Regex", "Grammar", "Free text", "JSON Schema"):
        page.get_by_role("radio", name=kind).check()
    page.get_by_label("as a pydantic model").check()
    page.get_by_label("plain text").first.check()
    page.get_by_label("Max tokens").fill("3")
    press(page, "Run")
    expect(page.locator(".answer-text .failure")).to_be_visible()
    assert_no_violations(page, "with an error")
    press(page, "Key")
    assert_no_violations(page, "asking for a key", "dialog[open]")


def controls_passed(page: Page) -> tuple[list[dict[str, Any]], list[str]]:
    """The elements focused by Tab from top to end, and those that should have been focused."""
    wanted = page.evaluate(CONTROLS)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.locator("h1").click()  # the tab order begins here
    passed: list[dict[str, Any]] = []
    for _ in range(2 * len(wanted)):
        if passed and passed[-1]["editor"]:
            page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused["top"]:
            break
        passed.append(focused)
        focused["visible"] = focus_is_seen(page, focused)
    return passed, wanted


def focus_is_seen(page: Page, focused: dict[str, Any]) -> bool:
    """Whether the element looks different without the focus."""
    box, window = focused["box"], page.viewport_size
    assert window is not None
    left, top = max(0, box["x"] - 6), max(0, box["y"] - 6)
    clip = {
        "x": left,
        "y": top,
        "width": min(box["width"] + 12, window["width"] - left),
        "height": min(box["height"] + 12, window["height"] - top),
    }
    if clip["height"] <= 0 or clip["width"] <= 0:
        return False
    with_focus = page.screenshot(clip=clip)  # type: ignore[arg-type]
    page.evaluate("window.focused.blur()")
    without = page.screenshot(clip=clip)  # type: ignore[arg-type]
    page.evaluate("window.focused.focus({ focusVisible: true, preventScroll: true })")
    return with_focus != without


def test_the_keyboard_reaches_all_controls_and_the_focus_is_visible(page: Page) -> None:
    run(page)
    for tab in ("Confidence", "Explain", "Graph"):
        show_tab(page, tab)
    # The graph must not be redrawn while the focus moves through it.
    expect(page.locator(".graph-status")).to_contain_text("The answer is complete.")
    passed, wanted = controls_passed(page)
    reached = {each["known"] for each in passed}
    assert not [text for number, text in enumerate(wanted) if number not in reached]
    assert not [each["name"] for each in passed if not each["visible"]]
    assert not [each["name"] for each in passed if each["covered"]]


@pytest.mark.parametrize("tab", ["Code", "Operations"])
def test_the_keyboard_reaches_all_of_the_other_tabs(page: Page, tab: str) -> None:
    show_tab(page, tab)
    there = {"Code": ".program", "Operations": ".plot canvas"}[tab]
    expect(page.locator(there).first).to_be_visible()
    passed, wanted = controls_passed(page)
    reached = {each["known"] for each in passed}
    assert not [text for number, text in enumerate(wanted) if number not in reached]
    assert not [each["name"] for each in passed if not each["visible"]]


def test_an_answer_needs_no_mouse(page: Page) -> None:
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.focus()
    page.keyboard.press("ControlOrMeta+Enter")
    expect(page.locator(".answer-tools .state")).to_have_class("state done")
    page.locator("#answer").focus()
    page.keyboard.press("End")
    tooltip = page.get_by_role("tooltip")
    count = page.locator("#answer .token").count()
    expect(tooltip).to_contain_text(f"token {count} of {count}")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(tooltip).to_contain_text(f"token 2 of {count}")
    active = page.locator("#answer").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Playground").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Code")).to_be_visible()
    expect(page.get_by_role("tab", name="Code")).to_be_focused()


@pytest.mark.parametrize("width", [320, 390])
def test_nothing_is_wider_than_a_small_window(opened: Callable[..., Page], width: int) -> None:
    page = opened(size=(width, 844))
    excess = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
    press(page, "Race")
    expect(page.locator(".race-result")).to_contain_text("fewer passes")
    for tab in ("Confidence", "Explain", "Graph", "Code", "Operations", "Playground"):
        show_tab(page, tab)
        page.wait_for_timeout(200)
        assert page.evaluate(excess) <= 0, tab
    number, words = page.locator(".headline strong"), page.locator(".headline span")
    first, second = number.first.bounding_box(), words.first.bounding_box()
    assert first is not None
    assert second is not None
    assert first["x"] + first["width"] <= second["x"]
    inside = number.first.evaluate("each => each.scrollWidth <= each.clientWidth + 1")
    assert inside, "the number is wider than its place"


@pytest.mark.parametrize("size", [(1280, 720), (390, 844)], ids=["wide", "narrow"])
def test_nothing_moves_while_an_answer_streams(
    opened: Callable[..., Page], size: tuple[int, int]
) -> None:
    page = opened(size=size)
    texts = {"type": "string", "minLength": 60, "maxLength": 60}
    names = ("first", "second", "third")
    schema = {"type": "object", "properties": dict.fromkeys(names, texts), "required": list(names)}
    write_schema(page, schema)
    page.evaluate(SHIFTS)
    page.evaluate(
        """() => {
          const watch = new MutationObserver(() => {
            if (!document.querySelector("#plain .token")) return;
            window.began = performance.now();
            watch.disconnect();
          });
          watch.observe(document.body, { childList: true, subtree: true });
        }"""
    )
    press(page, "Race")
    expect(page.locator(".race-result")).to_contain_text("fewer passes")
    ended = page.evaluate("performance.now()")
    began = page.evaluate("window.began")
    assert ended > began
    shifts = [shift for shift in page.evaluate("window.shifts") if began < shift[0] < ended]
    assert sum(shift[1] for shift in shifts) < 0.001, shifts
