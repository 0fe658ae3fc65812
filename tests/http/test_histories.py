"""Options and items of other servers in agents' requests: used, or ignored and named."""

from __future__ import annotations

import time
from typing import Any

import pytest

from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES, PLAIN
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.prompt import template_input
from app.core.specs import JsonSchema
from app.http.messages.parse import CountTokensRequest, read_conversation
from app.http.requests.wire import HEADER, Ignored
from tests.http.harness import CHAT, CONFIG, HI, RESPONSES, chat, client_of, post, writing
from tests.http.responses import CITY, REASONER, WITH_TOOLS, asking
from tests.serving.fakes import Bench

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
KEEP_ALL = {"type": "clear_thinking_20251015", "keep": "all"}
THINK = ReasoningFormat("<think>", "</think>")


def thought(number: int) -> dict[str, Any]:
    blocks = [
        {"type": "thinking", "thinking": f"Thought {number}.", "signature": ""},
        {"type": "text", "text": f"Answer {number}."},
    ]
    return {"role": "assistant", "content": blocks}


async def managed(*edits: Any) -> tuple[list[Any], str | None]:
    """The thoughts that the template was given, and the header with ignored fields."""
    bench = writing("ok", REASONER)
    messages = [HI, thought(1), HI, thought(2), HI, thought(3), HI]
    body = {"model": "demo", "messages": messages}
    async with client_of(bench) as client:
        for path, limit in ((COUNT, {}), (MESSAGES, {"max_tokens": 9})):
            asked = {**body, **limit, "context_management": {"edits": list(edits)}}
            answer = await client.post(path, json=asked)
            assert answer.status_code == 200, answer.text
    assert bench.tokenizer.seen[0] == bench.tokenizer.seen[1]
    kept = [each["reasoning_content"] for each in bench.tokenizer.seen[0] if len(each) > 2]
    return kept, answer.headers.get(HEADER)


ALL = ["Thought 1.", "Thought 2.", "Thought 3."]


@pytest.mark.parametrize(
    ("edit", "kept"),
    [
        (KEEP_ALL, ALL),
        ({**KEEP_ALL, "keep": {"type": "all"}}, ALL),
        ({**KEEP_ALL, "keep": {"type": "thinking_turns", "value": 2}}, ALL[1:]),
        ({**KEEP_ALL, "keep": {"type": "thinking_turns", "value": 9}}, ALL),
        ({"type": "clear_thinking_20251015"}, ALL[2:]),
    ],
)
async def test_thinking_is_cleared_as_claude_code_asks(edit: Any, kept: list[str]) -> None:
    assert await managed(edit) == (kept, None)


async def test_edits_of_long_prompts_are_left_out_by_name() -> None:
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 9}}
    named = "context_management.edits[].type=clear_tool_uses_20250919"
    assert await managed(KEEP_ALL, edit) == (ALL, named)


async def test_of_several_edits_the_one_that_keeps_the_fewest_counts() -> None:
    two = {**KEEP_ALL, "keep": {"type": "thinking_turns", "value": 2}}
    one = {"type": "clear_thinking_20251015"}
    assert await managed(two, one, KEEP_ALL, two) == (ALL[2:], None)


def test_many_blocks_and_edits_are_read_in_linear_time() -> None:
    """Each of these took from 3 s to a minute when work was quadratic."""
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    results = [{"type": "tool_result", "tool_use_id": "a", "content": "x"}] * 30_000
    edits = [{"type": "clear_thinking_20251015"}] * 20_000
    body = {
        "model": "demo",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "abcdefghijkl"}] * 50_000},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": results},
        ],
        "context_management": {"edits": edits},
    }
    wire = CountTokensRequest.read(body, Ignored())
    started = time.process_time()
    conversation, _ = read_conversation(wire, Ignored(), CONFIG)
    given = template_input(conversation, ChatFormat(tools=PLAIN))
    assert time.process_time() - started < 3
    assert [each["role"] for each in given.messages] == ["user", "assistant", "user"]
    assert given.messages[2]["content"].count("Result of f:") == len(results)


async def test_no_edit_is_none() -> None:
    assert await managed() == (ALL, None)


async def test_blocks_of_tools_that_another_server_ran_are_left_out_by_name() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Found."},
    ]
    bench = writing("ok", WITH_TOOLS)
    said = [HI, {"role": "assistant", "content": blocks}, HI]
    body = {"model": "demo", "max_tokens": 9, "messages": said}
    answer = await post(bench, MESSAGES, body)
    assert answer.headers[HEADER] == (
        "messages[].content[].type=server_tool_use, "
        "messages[].content[].type=web_search_tool_result"
    )
    assert bench.tokenizer.seen[0][1] == {"role": "assistant", "content": "Found."}


async def test_a_text_block_has_nothing_that_is_empty() -> None:
    async with client_of(writing("ok", WITH_TOOLS)) as client:
        body = {"model": "demo", "max_tokens": 9, "messages": [HI]}
        whole = (await client.post(MESSAGES, json=body)).json()
        events = (await client.post(MESSAGES, json={**body, "stream": True})).text
    assert whole["content"] == [{"type": "text", "text": "ok"}]
    assert '"content_block":{"type":"text","text":""}' in events
    assert "citations" not in events


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False}},
         "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"thinking": False, "custom": {"a": [1]}}},
         "chat_template_kwargs.thinking, chat_template_kwargs.custom"),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": {"type": "auto"}}, None),
    ],
)  # fmt: skip
async def test_disabled_thinking_is_accepted_by_a_model_that_does_not_reason(
    path: str, fields: dict[str, Any], named: str | None
) -> None:
    bench = Bench()
    async with client_of(bench) as client:
        body = chat(**fields) if path == CHAT else asking(**fields)
        answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get(HEADER) == named
    assert bench.tokenizer.options == [{}]


async def test_every_variable_that_the_template_reads_reaches_it() -> None:
    format = ChatFormat(PLAIN, variables=frozenset({"builtin_tools", "custom", "messages"}))
    bench = Bench(chat_format=format)
    options = {"builtin_tools": ["a", "b"], "custom": {"deep": [1, None]}}
    answer = await post(bench, CHAT, chat(chat_template_kwargs=options))
    assert bench.tokenizer.options == [options]
    assert HEADER not in answer.headers


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_the_thinking_switch_of_other_servers_is_accepted(path: str) -> None:
    bench = writing("ok", REASONER)
    off: dict[str, Any] = {"thinking": {"type": "disabled"}}
    async with client_of(bench) as client:
        body = chat(**off) if path == CHAT else asking(**off)
        assert (await client.post(path, json=body)).status_code == 200
        both = {**body, "reasoning": {"enabled": True}}
        refused = await client.post(path, json=both)
    assert bench.tokenizer.options[0] == {"enable_thinking": False}
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "thinking")


FLAT = {"type": "json_schema", "schema": CITY}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/schemas"])
async def test_a_schema_beside_the_type_is_one(path: str) -> None:
    bodies = {
        CHAT: chat(response_format=FLAT),
        "/v1/completions": {"model": "demo", "prompt": "hi", "response_format": FLAT},
        "/v1/schemas": {"response_format": FLAT},
    }
    bench = Bench()
    await post(bench, path, bodies[path])
    assert bench.compiled == [JsonSchema(CITY, close_objects=True)]


async def test_two_schemas_are_one_too_many() -> None:
    format = {**FLAT, "json_schema": {"name": "a", "schema": CITY}}
    async with client_of(Bench()) as client:
        answer = await client.post(CHAT, json=chat(response_format=format))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "response_format.json_schema")


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": ""},
        {"grammar": ""},
        {"ebnf": ""},
        {"guided_regex": ""},
        {"guided_grammar": ""},
        {"structured_outputs": {"regex": ""}},
        {"structured_outputs": {"grammar": ""}},
        {"response_format": {"type": "regex", "pattern": ""}},
        {"response_format": {"type": "grammar", "grammar": ""}},
    ],
    ids=str,
)
async def test_an_empty_constraint_is_a_400_in_every_form(fields: dict[str, Any]) -> None:
    answer = await post(Bench(), CHAT, chat(**fields), 400)
    assert "it is empty; write a constraint" in answer.json()["error"]["message"]


async def test_a_byte_order_mark_is_passed_over() -> None:
    body = b'\xef\xbb\xbf{"model": "demo", "messages": [{"role": "user", "content": "hi"}]}'
    async with client_of(Bench()) as client:
        json_type = {"content-type": "application/json"}
        answer = await client.post(CHAT, content=body, headers=json_type)
        twice = await client.post(CHAT, content=body[:3] + body, headers=json_type)
    assert (answer.status_code, twice.status_code) == (200, 400)


@pytest.mark.parametrize(
    ("path", "body", "takes"),
    [
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
         "use input_text"),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image",
                                                        "image_url": "data:,x"}]}]},
         "use input_text"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]},
         "use text"),
    ],
)  # fmt: skip
async def test_a_part_of_another_api_is_told_what_this_one_calls_it(
    path: str, body: dict[str, Any], takes: str
) -> None:
    answer = await post(Bench(), path, {"model": "demo", **body}, 400)
    assert takes in answer.json()["error"]["message"]


TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
OBJECT = {"type": "json_object"}


@pytest.mark.parametrize(
    ("format", "text", "fields", "reasoning"),
    [
        (ChatFormat(HERMES, THINK), "<thi", {}, None),
        (ChatFormat(HERMES, THINK), "<think>", {}, None),
        (ChatFormat(HERMES, THINK), "<think>\nA lamp.</thi", {}, "A lamp."),
        (ChatFormat(HERMES), "<tool_ca", {"tools": [TOOL]}, None),
        (ChatFormat(HERMES), '<tool_call>\n{"name": "we', {"tools": [TOOL]}, None),
        (ChatFormat(PLAIN), '{"tool_calls"', {"tools": [TOOL]}, None),
        (ChatFormat(PLAIN), '{"tool_calls": [{"name": "we', {"tools": [TOOL]}, None),
        (ChatFormat(PLAIN), '{"tool_ca', {"tools": [TOOL], "response_format": OBJECT}, None),
    ],
    ids=str,
)
async def test_a_mark_that_is_cut_off_is_not_content(
    format: ChatFormat, text: str, fields: dict[str, Any], reasoning: str | None
) -> None:
    bench = writing(text + "and more", format, size=1)
    async with client_of(bench) as client:
        body = chat(max_tokens=len(text), on_budget="truncate", **fields)
        (choice,) = (await client.post(CHAT, json=body)).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert (choice["message"]["content"] or "") == ""
    assert choice["message"].get("reasoning_content") == reasoning


async def test_half_a_mark_that_ends_an_answer_is_text() -> None:
    bench = writing("a <tool_", ChatFormat(HERMES))
    async with client_of(bench) as client:
        (choice,) = (await client.post(CHAT, json=chat(tools=[TOOL]))).json()["choices"]
    assert choice["message"]["content"] == "a <tool_"
