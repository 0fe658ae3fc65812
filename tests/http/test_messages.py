"""Anthropic's Messages API: input of the chat template, whole messages, streams, errors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.answer.tools import MOST_CALLS
from app.core.request import ThinkingBudget
from app.core.specs import JsonSchema
from app.http.keys import ApiKeys
from tests.http.harness import CONFIG, HI, client_of, events, post, writing
from tests.http.responses import CALL, CITY, PARIS, REASONER, WITH_TOOLS
from tests.http.test_openapi import fits
from tests.serving.fakes import Bench, FakeEngine

PATH = "/v1/messages"
COUNT = f"{PATH}/count_tokens"
WEATHER = {"name": "weather", "input_schema": CITY, "strict": True}


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "demo", "max_tokens": 100, "messages": [HI], **fields}


async def message_of(bench: Bench, **fields: Any) -> dict[str, Any]:
    """The message; it and the request are valid by ``/openapi.json``."""
    body = asking(**fields)
    answer = await post(bench, PATH, body)
    message: dict[str, Any] = answer.json()
    assert fits(body, PATH)
    assert fits(message, PATH, status=200)
    return message


async def events_of(bench: Bench, **fields: Any) -> list[dict[str, Any]]:
    answer = await post(bench, PATH, asking(stream=True, **fields))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("event: ")
    return events(answer.text)


async def refusal_of(bench: Bench, **fields: Any) -> tuple[str | None, str]:
    answer = await post(bench, PATH, asking(**fields), 400)
    assert answer.json()["type"] == "error"
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error["param"], error["message"]


async def rendered(messages: list[Any], **fields: Any) -> list[dict[str, Any]]:
    """The messages that the chat template was given."""
    bench = writing("ok", WITH_TOOLS)
    await message_of(bench, messages=messages, **fields)
    [given] = bench.tokenizer.seen
    return [dict(each) for each in given]


def put_together(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client assembles from a stream's events."""
    assert events[0]["type"] == "message_start"
    assert events[-1] == {"type": "message_stop"}
    message = events[0]["message"]
    texts: list[str] = []
    for event in events[1:-1]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
                texts = []
            case "content_block_delta":
                assert event["index"] == len(message["content"]) - 1
                kind, text = (value for name, value in event["delta"].items())
                assert kind in ("text_delta", "thinking_delta", "input_json_delta")
                texts.append(text)
            case "content_block_stop":
                block = message["content"][event["index"]]
                name = {"text": "text", "thinking": "thinking"}.get(block["type"])
                if name is None:
                    block["input"] = json.loads("".join(texts))
                else:
                    block[name] = "".join(texts)
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    return dict(message)


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]
    return {**message, "id": "", "content": content}


async def test_a_message_has_its_text_its_reason_and_its_usage() -> None:
    message = await message_of(writing("Hello"))
    assert message["id"].startswith("msg_")
    assert message["content"] == [{"type": "text", "text": "Hello"}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    usage = message["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] > 0
    assert usage["output_tokens"] == 2


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_the_events_of_a_stream_make_the_whole_message(size: int) -> None:
    text = f"<think>\nA lamp.\n</think>\n\nLet me see.\n{CALL}\n{CALL}"
    fields: dict[str, Any] = {"tools": [WEATHER], "max_tokens": 500}
    whole = await message_of(writing(text, REASONER, size), **fields)
    streamed = put_together(await events_of(writing(text, REASONER, size), **fields))
    assert without_ids(streamed) == without_ids(whole)
    thought, said, *calls = whole["content"]
    assert thought["type"] == "thinking"
    assert "A lamp." in thought["thinking"]
    assert said["text"].strip() == "Let me see."
    assert [(call["name"], call["input"]) for call in calls] == [("weather", {"city": "Paris"})] * 2
    assert whole["stop_reason"] == "tool_use"


async def test_omitted_thinking_is_not_shown() -> None:
    fields = {"thinking": {"type": "adaptive", "display": "omitted"}}
    for make in (message_of, events_of):
        found = await make(writing("<think>A lamp.</think>Yes.", REASONER), **fields)
        message = put_together(found) if isinstance(found, list) else found
        assert [block["type"] for block in message["content"]] == ["thinking", "text"]
        assert "lamp" not in json.dumps(found)


async def test_an_answer_that_was_cut_says_so_with_the_arguments_as_far_as_they_came() -> None:
    engine = FakeEngine(lambda _: [CALL[:-16].encode()])
    engine.finish_with = "length"
    message = await message_of(Bench(engine, chat_format=WITH_TOOLS), tools=[WEATHER])
    assert message["stop_reason"] == "max_tokens"
    [call] = message["content"]
    assert call["input"] in ({}, {"city": "Par"}, {"city": "Paris"})


async def test_the_system_prompt_and_adjacent_messages_are_put_together() -> None:
    blocks = [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
              {"type": "text", "text": "brief."}]  # fmt: skip
    messages = [HI, {"role": "user", "content": [{"type": "text", "text": "there"}]}]
    assert await rendered(messages, system=blocks) == [
        {"role": "system", "content": "Be\nbrief."},
        {"role": "user", "content": "hi\nthere"},
    ]


async def test_calls_thoughts_and_results_are_the_templates() -> None:
    used = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True,
              "content": [{"type": "text", "text": "no such city"}]}  # fmt: skip
    source = {"type": "text", "media_type": "text/plain", "data": "Here."}
    document = {"type": "document", "title": "Map", "source": source}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    empty = {"type": "thinking", "thinking": "", "signature": "x"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    messages = [
        HI,
        {"role": "assistant", "content": [empty, thought, hidden, thought, used]},
        {"role": "user", "content": [result, document]},
    ]
    function = {"name": "weather", "arguments": {"city": "Paris"}}
    assert await rendered(messages, tools=[WEATHER]) == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.\nHm.",
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
        },
        {
            "role": "tool",
            "content": "Error: no such city",
            "tool_call_id": "toolu_1",
            "name": "weather",
        },
        {"role": "user", "content": "Map\nHere."},
    ]


async def test_tool_choice_bounds_the_calls() -> None:
    for choice, text, several in (
        ({"type": "auto"}, True, True),
        ({"type": "any", "disable_parallel_tool_use": True}, False, False),
        ({"type": "tool", "name": "weather"}, False, True),
    ):
        bench = writing(CALL, WITH_TOOLS)
        await message_of(bench, tools=[WEATHER], tool_choice=choice)
        [spec] = map(repr, bench.compiled)
        assert ("FreeText" in spec, f"at_most={MOST_CALLS}" in spec) == (text, several)
    bench = writing("ok", WITH_TOOLS)
    await message_of(bench, tools=[WEATHER], tool_choice={"type": "none"})
    assert not bench.compiled
    assert bench.tokenizer.tools == [None]


@pytest.mark.parametrize("older", [False, True])
async def test_a_schema_constrains_the_content(older: bool) -> None:
    format = {"type": "json_schema", "schema": CITY}
    fields = {"output_format": format} if older else {"output_config": {"format": format}}
    bench = writing(PARIS)
    message = await message_of(bench, **fields)
    assert json.loads(message["content"][0]["text"]) == {"city": "Paris"}
    [spec] = bench.compiled
    assert isinstance(spec, JsonSchema)
    assert spec.schema == CITY


async def test_thinking_is_switched_and_bounded() -> None:
    bench = writing("<think>A lamp.</think>Yes.", REASONER)
    await message_of(bench, thinking={"type": "enabled", "budget_tokens": 30})
    assert bench.tokenizer.options == [{"enable_thinking": True}]
    budget = bench.engine.added[0].thinking
    assert budget == ThinkingBudget(70, b"</think>", b"<think>")
    bench = writing("Yes.", REASONER)
    await message_of(bench, thinking={"type": "disabled"})
    assert bench.tokenizer.options == [{"enable_thinking": False}]


async def test_tokens_are_counted_without_an_answer() -> None:
    bench = writing("x")
    body = asking(system="Be brief.")
    del body["max_tokens"]
    async with client_of(bench) as client:
        counted = await client.post(COUNT, json=body)
        assert counted.status_code == 200, counted.text
        answer = (await client.post(PATH, json=asking(system="Be brief."))).json()
    assert fits(body, COUNT)
    usage = answer["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert counted.json() == {"input_tokens": read}
    assert len(bench.engine.added) == 1


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
PDF = {"type": "document", "source": {"type": "url", "url": "http://x"}}


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]", "'image'"),
        (
            {"messages": [{"role": "user", "content": [PDF]}]},
            "messages[0].content[0].source",
            "url",
        ),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "one block"),
        ({"messages": [HI, {"role": "assistant", "content": ""}]}, "messages[1]", "prefill"),
        (
            {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]},
            "messages[0].content[0]",
            "belong to the assistant",
        ),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": "y"}]}]},
            "messages[0].content[0].tool_use_id",
            "no tool_use before",
        ),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name", "two tools"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice", "requires tools"),
        ({"stop": ["x"]}, "stop", "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences", "stop_sequences has an empty string"),
        ({"container": "x"}, "container", "not supported"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
    ],
    ids=str,
)  # fmt: skip
async def test_an_unsupported_request_is_refused_with_its_field(
    fields: dict[str, Any], param: str, says: str
) -> None:
    found, message = await refusal_of(writing("x"), **fields)
    assert found == param
    assert says in message


async def test_errors_have_anthropics_types() -> None:
    async with client_of(writing("x")) as client:
        unknown = await client.post(PATH, json=asking(model="other"))
        large = await client.post(PATH, json=asking(system="x" * 30_000))
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")


async def test_a_key_may_come_in_anthropics_header() -> None:
    config = replace(CONFIG, api_keys=ApiKeys(["secret"]))
    async with client_of(writing("x"), config) as client:
        for headers, status in (
            ({}, 401),
            ({"x-api-key": "wrong"}, 401),
            ({"x-api-key": "secret", "authorization": "Bearer secret"}, 401),
            ({"x-api-key": "secret"}, 200),
            ({"authorization": "Bearer secret"}, 200),
        ):
            answer = await client.post(PATH, json=asking(), headers=headers)
            assert answer.status_code == status
            if status == 401:
                assert answer.json()["error"]["type"] == "authentication_error"


async def test_an_answer_that_fails_in_a_stream_ends_with_an_error() -> None:
    engine = FakeEngine(lambda _: [b"a", b"b"])
    engine.finish_with = "error"
    events = await events_of(Bench(engine))
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] in ("invalid_request_error", "api_error")
