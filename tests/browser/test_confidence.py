"""How sure the model was, as bars, and where quotes stand in the prompt."""

from __future__ import annotations

import json

from playwright.sync_api import Page, expect

from tests.browser.pages import answer, run, show_tab


def review(page: Page) -> None:
    page.get_by_label("Example").select_option("review")
    run(page)
    show_tab(page, "Confidence")


def test_each_value_has_its_bar_and_figure(page: Page) -> None:
    review(page)
    written = json.loads(answer(page))
    for name in ("product", "rating", "sentiment", "verified"):
        value = page.locator("li.value").filter(has_text=f"/{name}")
        expect(value).to_contain_text(json.dumps(written[name]))
        expect(value.locator("strong")).to_contain_text("%")
    values = page.locator("li.value")
    shares = values.locator(".value-head strong").all_inner_texts()
    page.get_by_label("least sure first").check()
    again = values.locator(".value-head strong").all_inner_texts()
    assert sorted(again) == sorted(shares)
    figures = [float(text.strip("<> %").replace(",", "")) for text in again]
    assert figures == sorted(figures)


def test_a_quote_is_marked_in_the_prompt_and_led_to(page: Page) -> None:
    review(page)
    product = json.loads(answer(page))["product"]
    marks = page.locator(".prompt-marks mark")
    assert product in marks.all_inner_texts()
    page.get_by_role("button", name="Show the quote in the prompt").first.click()
    prompt = page.get_by_label("Prompt", exact=True)
    chosen = prompt.evaluate(
        "area => area.value.slice(area.selectionStart, area.selectionEnd) || null"
    )
    assert chosen in (None, product)
    expect(prompt).to_be_in_viewport()
    prompt.press_sequentially("x")
    expect(marks).to_have_count(0)  # it is another text now


def test_a_value_leads_to_its_place_in_the_schema(page: Page) -> None:
    review(page)
    page.get_by_role("button", name="/sentiment: show its place in the schema").click()
    page.wait_for_function("getSelection().toString().includes('sentiment')")


def test_it_can_be_asked_for_from_its_own_tab(page: Page) -> None:
    show_tab(page, "Confidence")
    page.get_by_role("button", name="Ask for it with the next run").click()
    expect(page.get_by_label("confidence and sources")).to_be_checked()
    run(page)
    expect(page.locator("li.value").first).to_be_visible()
