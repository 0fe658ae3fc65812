"""The playground: requests, answers in colours, races and links."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import jsonschema
import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import (
    answer,
    ask,
    colours,
    legend,
    press,
    run,
    write_regex,
    write_schema,
)
from tests.servers import running_server

RATING = {
    "type": "object",
    "properties": {
        "rating": {"type": "integer", "minimum": 1, "maximum": 5},
        "mood": {"enum": ["glad", "sad"]},
    },
    "required": ["rating", "mood"],
}
MARKUP = """<img src=x onerror="document.title='owned'"><b>"""


@pytest.mark.parametrize("size", [(1280, 720), (390, 844)])
def test_one_press_of_the_main_button_shows_an_answer(
    opened: Callable[..., Page], size: tuple[int, int]
) -> None:
    page = opened(size=size)
    button = page.locator("button.primary:visible")
    expect(button).to_have_count(1)
    expect(button).to_be_in_viewport(ratio=1)
    assert page.evaluate("scrollY") == 0
    schema = json.loads("\n".join(page.locator(".cm-line").all_inner_texts()))
    button.click()
    expect(page.locator(".answer-tools .state")).to_have_class("state done")
    expect(page.locator("#answer .token").first).to_be_in_viewport()
    expect(page.locator(".headline")).to_be_in_viewport()
    written = json.loads(answer(page))
    jsonschema.validate(written, schema)
    assert written["company"] == "Northwind Traders"


def test_a_schema_that_is_typed_holds_the_answer(page: Page) -> None:
    page.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type(json.dumps(RATING))  # the editor closes brackets and quotes by itself
    lines = page.locator(".cm-line").all_inner_texts()
    assert json.loads("".join(lines)) == RATING
    ask(page, "Extract the review from: Bad. 2 stars.")
    run(page)
    jsonschema.validate(json.loads(answer(page)), RATING)


def test_colours_bar_and_legend_add_up_to_what_the_server_counted(page: Page) -> None:
    usage = run(page)
    details = usage["completion_tokens_details"]
    seen = colours(page)
    assert seen == legend(page)
    assert seen.total() == usage["completion_tokens"]
    assert seen["leapt"] == details["leapt_tokens"] > 0
    assert seen["drafted"] == details["drafted_tokens"]
    passes = details["forward_passes"]
    free = round(100 * (seen.total() - passes) / seen.total())
    expect(page.locator(".headline")).to_contain_text(f"{free} %")
    expect(page.locator(".headline")).to_contain_text(f"{seen.total()} tokens, {passes} pass")
    said = page.locator(".origin-bar").get_attribute("aria-label") or ""
    assert sum(map(int, re.findall(r"\d+", said))) == seen.total()
    # Each part of the bar begins at the end of the previous ones, and covers those behind it.
    begins = page.locator(".origin-bar .swatch").evaluate_all(
        """parts => Promise.all(parts.map(async (part) => {
             await Promise.all(part.getAnimations().map((each) => each.finished));
             const bar = part.parentElement.getBoundingClientRect();
             return (part.getBoundingClientRect().left - bar.left) / bar.width;
           }))"""
    )
    before = [0, *accumulate(seen[source] for source in ("sampled", "drafted", "held"))]
    assert begins == pytest.approx([tokens / seen.total() for tokens in before], abs=0.01)


def test_every_example_gets_a_whole_answer(page: Page) -> None:
    examples = page.get_by_label("Example")
    for name in examples.locator("option").all_inner_texts():
        examples.select_option(label=name)
        usage = run(page)
        assert colours(page).total() == usage["completion_tokens"] > 0, name
        expect(page.locator(".answer-text .failure")).to_have_count(0)


def test_a_model_that_takes_any_question_is_offered_others(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    # Only the name differs: it is the demo model, whose answers to these examples are poor.
    with running_server(None, tmp_path / "log", {"SERVED_MODEL_NAME": "smollm2"}) as server:
        page = opened(url=server.url)
        examples = page.get_by_label("Example")
        names = examples.locator("option").all_inner_texts()
        assert names[0] == "Contact from a note"
        assert "A question, answered in prose" in names
        assert "Invoice with its items" not in names
        for name in names:
            examples.select_option(label=name)
            assert run(page)["completion_tokens"] > 0, name
            expect(page.locator(".answer-text .failure")).to_have_count(0)


def test_the_tooltip_of_a_token_shows_its_origin_and_alternatives(page: Page) -> None:
    run(page)
    inspector = page.get_by_role("tooltip")
    expect(inspector).to_be_hidden()
    page.locator("#answer .token.sampled").first.hover()
    expect(inspector).to_be_visible()
    expect(inspector).to_contain_text("sampled by the model")
    assert 1 <= inspector.locator("tbody tr").count() <= 5
    expect(inspector.locator("tr.chosen")).to_have_count(1)
    page.locator("#answer .token.leapt").first.hover()
    expect(inspector).to_contain_text("forced by the schema")
    expect(inspector).to_contain_text("so it has no probability")
    page.mouse.move(0, 0)
    expect(inspector).to_be_hidden()


def test_a_race_shows_the_same_answer_with_leaps_and_without(page: Page) -> None:
    press(page, "Race")
    result = page.locator(".race-result")
    expect(result).to_contain_text("times fewer passes")
    expect(result).to_contain_text("Both texts are equal.")
    fast, plain = colours(page), colours(page, "plain")
    assert answer(page) == answer(page, "plain")
    assert set(plain) == {"sampled"}
    assert fast["leapt"] > 0
    passes = [int(text) for text in re.findall(r"tokens, (\d+) pass", page.inner_text(".lanes"))]
    assert passes[0] < passes[1] == plain.total()
    expect(result).to_contain_text(f"{passes[1] / passes[0]:.1f} times fewer passes")


HOLD = """
() => {
  const ask = window.fetch;
  window.fetch = async (url, options) => {
    const response = await ask(url, options);
    if (!url.endsWith("/v1/chat/completions")) return response;
    window.fetch = ask;
    const reader = response.body.getReader();
    let room = 50_000;
    return new Response(new ReadableStream({
      start: (stream) => options.signal.onabort = () => stream.error(options.signal.reason),
      pull: async (stream) => {
        if (room <= 0) await new Promise(() => {});
        const { value } = await reader.read();
        stream.enqueue(value.slice(0, room));
        room -= value.length;
      },
    }), response);
  };
}
"""
"""Holds the next answer of the page after its first 50,000 bytes."""


def test_stop_ends_the_answer_and_keeps_what_came(page: Page) -> None:
    page.get_by_role("radio", name="Regex").check()
    write_regex(page, "[a-z ]{1500}")
    page.evaluate(HOLD)
    press(page, "Run")
    expect(page.locator("#answer .token").nth(3)).to_be_attached()
    press(page, "Stop")
    expect(page.locator(".answer-tools .state")).to_have_text("stopped")
    kept = answer(page)
    assert 0 < len(kept) < 1500
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    page.get_by_label("Example").select_option(index=0)
    run(page)
    assert answer(page).startswith('{"name"')


def test_a_number_that_is_not_whole_is_refused_and_not_erased(page: Page) -> None:
    field = page.get_by_label("Max tokens")
    field.press_sequentially("1.5")
    expect(field).to_have_value("1.5")
    press(page, "Run")
    expect(page.locator(".failure").first).to_contain_text("max_tokens")


def test_markup_in_an_answer_stays_text_wherever_it_is_shown(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    write_regex(page, re.escape(MARKUP).replace("/", r"\/"))
    ask(page, f"Write {MARKUP}")
    run(page)
    assert answer(page) == MARKUP
    page.locator("#answer .token").first.hover()
    page.get_by_label("plain text").check()
    expect(page.locator("pre.tokens")).to_have_text(MARKUP)
    page.get_by_role("tab", name="Code").click()
    expect(page.get_by_role("tabpanel", name="Code")).to_contain_text("onerror")
    assert page.locator("main img, main b").count() == 0
    assert page.title() == "Leapjson"
    assert not [url for url in asked if url.endswith("/x")]


def test_markup_in_a_schema_and_in_the_servers_words_stays_text(page: Page) -> None:
    schema = {"title": MARKUP, "type": "object", "properties": {MARKUP: {"type": MARKUP}}}
    write_schema(page, schema)
    press(page, "Run")
    expect(page.locator(".answer-text .failure")).to_contain_text("onerror")
    page.get_by_role("tab", name="Code").click()
    expect(page.get_by_role("tabpanel", name="Code")).to_contain_text("onerror")
    assert page.locator("main img, main b").count() == 0
    assert page.title() == "Leapjson"


def test_a_link_brings_the_whole_request_back_and_nothing_of_it_is_sent(
    opened: Callable[..., Page],
) -> None:
    page = opened()
    ask(page, "Zoë’s “note” – ✓")
    write_schema(page, RATING)
    page.get_by_label("Temperature").fill("0.7")
    page.get_by_label("Seed").fill("41")
    page.get_by_label("Max tokens").fill("64")
    press(page, "Link")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    assert "#" in link
    run(page)
    before = answer(page)

    sent: list[str] = []
    other = opened("/" + link.split("/", 3)[3], theme="dark")  # in a new context
    other.on("request", lambda request: sent.append(request.url + (request.post_data or "")))
    expect(other.get_by_label("Prompt", exact=True)).to_have_value("Zoë’s “note” – ✓")
    expect(other.get_by_label("Temperature")).to_have_value("0.7")
    expect(other.get_by_label("Seed")).to_have_value("41")
    expect(other.get_by_label("Max tokens")).to_have_value("64")
    assert json.loads("\n".join(other.locator(".cm-line").all_inner_texts())) == RATING
    assert not [text for text in sent if "Zo" in text]
    run(other)
    assert answer(other) == before  # the link has the seed


def test_a_broken_link_leaves_the_page_as_it_is(opened: Callable[..., Page]) -> None:
    for fragment in ("#r=", "#r=%%%", "#r=AAAA", "#r=q1YqU7JSUKoFAA"):
        page = opened("/" + fragment)
        expect(page.get_by_label("Prompt", exact=True)).to_have_value(re.compile("Daniel Okafor"))
        page.close()
