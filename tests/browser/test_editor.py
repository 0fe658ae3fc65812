"""The schema editor: errors at their place, completion, and schemas of any size."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import press, run, write_schema
from tests.browser.tasks import Tasks, watched_tasks, weigh

MOST = 2.75
"""Maximum time of a task of the page, in units of the fixed work."""
ROUNDS = 3
"""Maximum attempts: a page that freezes does so in each, a busy machine does not."""


def large(properties: int) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {
            f"property_{number}": {"type": "string", "maxLength": 20, "description": f"{number}"}
            for number in range(properties)
        },
    }


def shown(page: Page) -> str:
    """The visible text of the editor."""
    return "\n".join(page.locator(".cm-line").all_inner_texts())


def test_a_refused_keyword_is_marked_at_its_line_and_linked(page: Page) -> None:
    fields = {f"field_{number}": {"type": "string"} for number in range(40)}
    fields["a/b"] = {"type": "nonsense"}
    write_schema(page, {"type": "object", "properties": fields})
    press(page, "Run")
    alert = page.locator(".answer-text .failure")
    expect(alert).to_contain_text("type must be the name of a type")
    page.locator(".cm-content").press("ControlOrMeta+Home")
    marked = page.locator(".cm-line:has(.cm-lintRange-error)")
    expect(marked).to_have_count(0)  # it is far below the visible part
    alert.get_by_role("button", name="Show /properties/a~1b/type").click()
    expect(marked).to_contain_text('"type": "nonsense"')
    expect(marked).to_be_in_viewport()
    assert page.evaluate("getSelection().toString()") == '"type": "nonsense"'
    marked.locator(".cm-lintRange-error").hover()
    expect(page.locator(".cm-tooltip-lint")).to_contain_text("type must be the name of a type")


def test_a_mark_goes_when_the_schema_is_mended(page: Page) -> None:
    write_schema(page, {"type": "nonsense"})
    press(page, "Run")
    expect(page.locator(".cm-lintRange-error")).to_have_count(1)
    write_schema(page, {"type": "boolean"})
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)
    run(page)
    expect(page.locator(".answer-text .failure")).to_have_count(0)


def test_the_reason_for_a_refusal_is_shown_once(page: Page) -> None:
    said = page.get_by_text("type must be the name of a type").locator("visible=true")
    write_schema(page, {"type": "nonsense"})
    expect(page.locator(".graph .failure")).to_be_visible()
    expect(said).to_have_count(1)
    press(page, "Run")
    expect(page.locator(".answer-text .failure")).to_be_visible()
    expect(page.locator(".graph .failure")).to_have_count(0)
    expect(said).to_have_count(1)
    write_schema(page, {"type": "boolean"})
    expect(page.locator(".graph-body.old")).to_have_count(0)
    write_schema(page, {"minLength": "nonsense"})
    expect(page.locator(".graph .failure")).to_be_visible()  # a different reason is shown


def test_invalid_json_is_marked_and_not_sent(page: Page) -> None:
    write_schema(page, '{\n  "type": "object",\n  "properties": {"a" {}}\n}')
    expect(page.locator(".cm-line:has(.cm-lintPoint-error)")).to_contain_text('"a" {}')
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    expect(page.get_by_text("The schema is not valid JSON yet.")).to_be_visible()


def test_keywords_and_their_values_are_completed(page: Page) -> None:
    write_schema(page, "{}")
    page.locator(".cm-content").click()
    page.keyboard.press("ArrowLeft")
    page.keyboard.type('"addi')
    options = page.locator(".cm-tooltip-autocomplete li")
    expect(options.filter(has_text="additionalProperties")).to_be_visible()
    page.wait_for_timeout(100)  # the editor ignores Enter right after the list has opened
    page.keyboard.press("Enter")
    expect(page.locator(".cm-line").first).to_contain_text('"additionalProperties":')
    write_schema(page, '{"type": }')
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+Space")
    expect(options.filter(has_text="integer")).to_be_visible()


def test_format_lays_out_and_keeps_every_digit(page: Page) -> None:
    write_schema(page, '{"type":"number","maximum":123456789012345678901234567890.5}')
    press(page, "Format")
    expect(page.locator(".cm-line")).to_have_count(4)
    assert "123456789012345678901234567890.5" in shown(page)


def test_undo_brings_back_what_was_typed_over(page: Page) -> None:
    before = shown(page)
    page.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("x")
    assert shown(page) == "x"
    page.keyboard.press("ControlOrMeta+Z")
    assert shown(page) == before


@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "many lines"])
def test_a_schema_of_5000_properties_does_not_freeze_the_page(
    opened: Callable[..., Page], indent: int | None
) -> None:
    rounds: list[Tasks] = []
    while not rounds or (rounds[-1].weight > MOST and len(rounds) < ROUNDS):
        rounds.append(tasks_of_a_large_schema(opened(), indent))
    assert rounds[-1].weight <= MOST, rounds


def tasks_of_a_large_schema(page: Page, indent: int | None) -> Tasks:
    page.get_by_label("Max tokens").fill("200")
    with watched_tasks(page) as tasks:
        write_schema(page, json.dumps(large(5000), indent=indent))
        expect(page.locator(".cm-line").filter(has_text="property_4999")).to_be_visible()
        page.keyboard.press("ControlOrMeta+Home")
        expect(page.locator(".cm-line").filter(has_text='"property_0"')).to_be_visible()
        page.keyboard.press("ArrowRight")
        page.keyboard.type(" ")
        weigh(page)
        press(page, "Format")
        run(page)
        weigh(page)
        # Cheap checks: the work of the driver in the page is measured, too.
        page.locator("#page-tab-code").click()
        written = "() => document.querySelector('.program')?.textContent.includes('property_4999')"
        page.wait_for_function(written)
    return tasks
