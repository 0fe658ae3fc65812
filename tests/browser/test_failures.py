"""Failures and their messages on the page: keys, refusals, a server that dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from loadtest.server import Server
from tests.browser.pages import answer, press, run, write_regex
from tests.browser.wires import Wire
from tests.servers import running_server

KEY = "a-key-for-the-tests"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that needs an API key; the last test of this file kills it."""
    log = tmp_path_factory.mktemp("guarded") / "log"
    with running_server(None, log, {"API_KEYS": KEY, "COMPILE_WORKERS": "1"}) as server:
        yield server


def give(page: Page, key: str) -> None:
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    dialog.get_by_label("API key").fill(key)
    dialog.get_by_role("button", name="Use").click()


def test_the_page_asks_for_a_key_and_takes_it_no_further_than_the_server(
    opened: Callable[..., Page], guarded: Server
) -> None:
    page = opened(url=guarded.url, model=False)
    sent: list[str | None] = []
    page.on("request", lambda request: sent.append(request.headers.get("authorization")))
    give(page, "a wrong key")
    give(page, f" {KEY} ")  # the dialog opens again; spaces around the key are removed
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#model")).to_have_value("leapjson-demo")
    run(page)
    assert json.loads(answer(page))["company"] == "Northwind Traders"
    assert f"Bearer {KEY}" in sent
    press(page, "Link")
    page.get_by_role("tab", name="Code").click()
    expect(page.get_by_role("tabpanel", name="Code")).to_contain_text("import openai")
    kept = page.evaluate("[document.documentElement.outerHTML, location.href, document.cookie]")
    assert not [text for text in kept if KEY in text]
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    page.reload()
    expect(page.get_by_role("dialog")).to_be_visible()  # the key was only in the tab's memory


def test_a_request_that_wanted_a_key_is_sent_again_with_the_one_that_is_given(
    opened: Callable[..., Page], guarded: Server
) -> None:
    page = opened(url=guarded.url, model=False)
    page.get_by_role("button", name="Cancel").click()
    with page.expect_response(lambda response: "v1/schemas" in response.url) as registered:
        write_regex(page, "[ab]")  # automatic requests do not open the dialog again
    assert registered.value.status == 401
    expect(page.get_by_role("dialog")).to_be_hidden()
    press(page, "Run")
    expect(page.locator(".answer-text .failure")).to_be_attached()
    give(page, KEY)
    expect(page.locator(".answer-tools .state")).to_have_class("state done")
    expect(page.locator(".answer-text .failure")).to_have_count(0)
    assert answer(page) in ("a", "b")


def test_a_refusal_is_told_in_the_servers_words_and_the_next_answer_clears_it(page: Page) -> None:
    page.get_by_label("Max tokens").fill("3")
    press(page, "Run")
    alert = page.locator(".answer-text .failure")
    expect(alert).to_have_attribute("role", "alert")
    expect(alert).to_contain_text("raise max_tokens to at least")
    expect(alert).to_contain_text("budget_too_small")
    page.get_by_label("Max tokens").fill("")
    run(page)
    expect(alert).to_have_count(0)


def test_a_page_whose_server_is_gone_says_so(page: Page) -> None:
    page.route("**/v1/**", lambda route: route.abort("internetdisconnected"))
    press(page, "Run")
    expect(page.locator(".answer-text .failure")).to_contain_text("The server cannot be reached")
    write_regex(page, "[ab]")
    expect(page.locator(".graph .failure")).to_contain_text("The server cannot be reached")
    page.unroute("**/v1/**")
    press(page, "Try again")
    expect(page.locator(".graph .failure")).to_have_count(0)
    run(page)
    expect(page.locator(".answer-text .failure")).to_have_count(0)


def test_a_partial_answer_stays_with_an_error_if_the_server_dies(
    opened: Callable[..., Page], guarded: Server
) -> None:
    with Wire(guarded.url) as wire:
        page = opened(url=wire.url, model=False)
        give(page, KEY)
        expect(page.locator("#model")).to_have_value("leapjson-demo")
        write_regex(page, "[a-z ]{1500}")
        press(page, "Run")
        expect(page.locator("#answer .token").nth(5)).to_be_attached()
        guarded.process.kill()
        assert_the_failure_is_shown(page)


def assert_the_failure_is_shown(page: Page) -> None:
    expect(page.locator(".answer-text .failure")).to_contain_text(
        "The connection closed before the end of the answer."
    )
    expect(page.locator(".answer-tools .state")).to_have_text("failed")
    kept = answer(page)
    assert 5 < len(kept) < 1500
    button = page.get_by_role("button", name="Run", exact=True)
    expect(button).to_be_enabled()
    button.click()
    expect(page.locator(".answer-text .failure")).to_contain_text("The server cannot be reached")
