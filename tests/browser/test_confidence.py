"""The confidence panel: the confidence of each value, and the quotations in the prompt."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.pages import ask, press, run

QUOTE = 'the "Nordlicht" <b>kettle</b>'
ENTRIES: list[dict[str, Any]] = [
    {
        "pointer": "/name",
        "value": QUOTE,
        "probability": 0.87,
        "tokens": 4,
        "least_likely": {"token": "<img src=x>", "probability": 0.5},
    },
    {
        "pointer": "/phone",
        "value": "<script>alert(1)</script>",
        "probability": 0.4,
        "mass": 0.003,
        "alternatives": [
            {"value": "<i>", "probability": 0.3},
            {"type": "string", "probability": 0.2},
            {"other": 61, "probability": 0.1},
            {"value": None, "probability": 0.0001},
        ],
    },
    {"pointer": "", "next": "company", "probability": 0.75},
]


def panel(page: Page) -> Locator:
    page.get_by_role("tab", name="Confidence").click()
    return page.get_by_role("tabpanel", name="Confidence")


def marks(page: Page) -> list[str]:
    return page.locator(".prompt-marks mark").all_inner_texts()


def answer_with(page: Page, prompt: str) -> None:
    """Shows a made-up answer with markup in its values and a quotation from ``prompt``."""
    start = prompt.index(QUOTE)
    span = {"part": "messages[0]", "start": start, "end": start + len(QUOTE)}
    choice = {"index": 0, "delta": {"content": "{}"}, "finish_reason": "stop"}
    reported = {"confidence": ENTRIES, "spans": [{"pointer": "/name", **span}]}
    body = f"data: {json.dumps({'choices': [choice | reported]})}\n\ndata: [DONE]\n\n"
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(content_type="text/event-stream", body=body),
    )
    ask(page, prompt)
    press(page, "Run")
    expect(panel(page).locator(".value")).to_have_count(len(ENTRIES))


def test_every_value_in_the_confidence_has_a_bar_and_alternatives(page: Page) -> None:
    page.get_by_label("Example").select_option("review")
    run(page)
    reported: dict[str, Any] = page.evaluate(
        """streams[0].text.split("\\n\\n")
           .filter((event) => event.startsWith("data: {"))
           .flatMap((event) => JSON.parse(event.slice(6)).choices ?? [])
           .findLast((choice) => choice.confidence)"""
    )
    boxes = panel(page).locator(".value")
    expect(boxes).to_have_count(len(reported["confidence"]))
    for box, entry in zip(boxes.all(), reported["confidence"], strict=True):
        expect(box.locator(".where")).to_have_text(entry["pointer"] or "the answer")
        if "value" in entry:
            text = json.dumps(entry["value"], ensure_ascii=False)
            expect(box.locator(".value-head code")).to_have_text(text)
        others = box.locator(".alternatives li")
        expect(others).to_have_count(len(entry.get("alternatives", ())))
        width = box.locator(".share-bar span").first.evaluate("bar => parseFloat(bar.style.width)")
        assert abs(width - 100 * entry["probability"]) < 0.01
    [quote] = reported["spans"]
    prompt = page.get_by_label("Prompt", exact=True).input_value()
    assert marks(page) == [prompt[quote["start"] : quote["end"]]]


def test_a_values_name_leads_to_its_place_in_the_schema(page: Page) -> None:
    page.get_by_label("Example").select_option("review")
    run(page)
    panel(page).get_by_role("button", name="/sentiment: show its place").click()
    expect(page.locator(".cm-content")).to_be_focused()
    assert page.evaluate("getSelection().toString()").startswith('"sentiment": {')


def test_a_quote_is_brought_into_sight_selected_and_let_go_when_the_prompt_changes(
    page: Page,
) -> None:
    lines = "😀 A line with more text than fits into the field beside it, so that it wraps.\n"
    answer_with(page, f"{lines * 20}Here is {QUOTE}.\n")
    assert marks(page) == [QUOTE]
    area = page.get_by_label("Prompt", exact=True)
    area.evaluate("area => area.scrollTop = 0")
    top = page.evaluate("scrollY")
    panel(page).get_by_text(f'"{QUOTE}"'.replace('"N', '\\"N').replace('t"', 't\\"')).hover()
    page.wait_for_function(  # visible in its field, and only the field scrolls
        """() => {
             const of = (name) => document.querySelector(name).getBoundingClientRect();
             const [mark, field] = [of(".prompt-marks mark"), of(".prompt-marks")];
             return field.top <= mark.top && mark.bottom <= field.bottom;
           }""",
    )
    tops = "[...document.querySelectorAll('.prompt > *')].slice(0, 2).map(each => each.scrollTop)"
    ours, theirs = page.evaluate(tops)
    assert ours == theirs > 0
    assert page.evaluate("scrollY") >= top
    page.get_by_role("button", name="Show the quote in the prompt").click()
    selected = "area => area.value.slice(area.selectionStart, area.selectionEnd)"
    assert area.evaluate(selected) == QUOTE
    area.press("End")
    page.keyboard.type("!")
    assert marks(page) == []
    expect(panel(page)).to_contain_text("The prompt has changed")
    expect(page.get_by_role("button", name="Show the quote")).to_have_count(0)


def test_markup_in_values_stays_text_and_a_low_mass_is_told(page: Page) -> None:
    answer_with(page, f"Here is {QUOTE}.")
    box = panel(page)
    expect(box).to_contain_text("<script>alert(1)</script>")
    expect(box).to_contain_text("<img src=x>")
    expect(box.locator("img, script, i, b")).to_have_count(0)
    expect(page.locator(".prompt-marks b")).to_have_count(0)
    expect(box).to_contain_text("The model gave only 0.3 % to everything that the schema allows")
    expect(box).to_contain_text("another string")
    expect(box).to_contain_text("61 others")
    expect(box).to_contain_text('goes on with "company"')
    expect(box.get_by_text("null", exact=True)).to_be_hidden()
    box.get_by_text("1 more alternative").click()
    expect(box.get_by_text("null", exact=True)).to_be_visible()
    box.get_by_label("least sure first").check()
    expect(box.locator(".value strong")).to_have_text(["40 %", "75 %", "87 %"])


def test_where_nothing_is_known_the_panel_says_why_and_how_to_ask(page: Page) -> None:
    box = panel(page)
    expect(box).to_contain_text("This request did not ask for it")
    box.get_by_role("button", name="Ask for it").click()
    expect(page.get_by_label("confidence and sources")).to_be_checked()
    expect(box).to_contain_text("Available at the end of an answer")
    run(page)
    expect(box.locator(".value").first).to_be_visible()
    page.get_by_role("radio", name="Free text").check()
    run(page)
    expect(box).to_contain_text("Free text has no values")
