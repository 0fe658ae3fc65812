"""The code tab: its programs get the same answers as the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import answer, run, show_tab, write_schema


def copied(page: Page, language: str) -> str:
    """The program in ``language``, copied with its button."""
    show_tab(page, "Code")
    show_tab(page, language)
    panel = page.get_by_role("tabpanel", name=language)
    panel.get_by_role("button", name="Copy").click()
    expect(panel.get_by_role("button", name="Copied")).to_be_visible()
    text: str = page.evaluate("navigator.clipboard.readText()")
    assert text.strip() == (panel.locator("pre").text_content() or "").strip()
    return text


def printed(command: list[str], text: str | None = None) -> str:
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, timeout=600
    ).stdout


def test_the_python_program_gets_the_answer_that_the_page_got(page: Page) -> None:
    run(page)
    written = json.loads(answer(page))
    model = printed([sys.executable, "-"], copied(page, "Python"))
    for name, value in written.items():
        assert f"{name}={value!r}" in model


def test_a_long_program_can_be_selected_and_copied_by_hand(page: Page) -> None:
    names = [f"property_{number}" for number in range(500)]
    properties = {name: {"type": "string"} for name in names}
    write_schema(page, {"type": "object", "properties": properties, "required": names})
    whole = copied(page, "Python")
    assert all(name in whole for name in names)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.program'))")
    page.keyboard.press("ControlOrMeta+C")
    page.wait_for_function("async () => (await navigator.clipboard.readText()).length > 10_000")
    assert page.evaluate("navigator.clipboard.readText()").strip() == whole.strip()


@pytest.mark.needs("curl")
def test_the_curl_command_gets_the_answer_that_the_page_got(page: Page) -> None:
    run(page)
    whole = json.loads(printed(["sh", "-c", copied(page, "curl")]))
    assert whole["choices"][0]["message"]["content"] == answer(page)


def test_the_typescript_program_follows_the_schema_on_screen(page: Page) -> None:
    text = copied(page, "TypeScript")
    assert re.search(r"z\.(strictObject|object)\(", text)
    assert "company" in text
    show_tab(page, "Playground")
    page.get_by_label("Example").select_option("review")
    assert "sentiment" in copied(page, "TypeScript")
