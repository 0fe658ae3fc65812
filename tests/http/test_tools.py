"""Tools in chat completions: constraints, and calls in answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES, MISTRAL
from app.answer.language import answer
from app.answer.schema_prompt import schema_text
from app.answer.tools import FunctionTool, ToolUse
from app.core.specs import JsonSchema
from tests.http.harness import (
    CHAT,
    CONFIG,
    HI,
    chat,
    error_of,
    events,
    post,
    sdk_of,
    writing,
)
from tests.serving.fakes import PLAIN, Bench

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "What time it is."}}
WEATHER_TOOL = FunctionTool("weather", None, CITY)
CLOCK_TOOL = FunctionTool("clock", "What time it is.")

PARIS = '{"city": "Paris"}'
PLAIN_CALL = '{"tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}]}'
TWO_CALLS = (
    '{"tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}, '
    '{"name": "clock", "arguments": {}}]}'
)
HERMES_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'

HERMES_FORMAT = ChatFormat(tools=HERMES)


async def asked(bench: Bench, **fields: Any) -> dict[str, Any]:
    return dict((await post(bench, CHAT, chat(**fields))).json())


async def test_a_call_comes_out_as_a_tool_call() -> None:
    body = await asked(writing(PLAIN_CALL), tools=[WEATHER])
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "weather", "arguments": PARIS}}


async def test_an_answer_in_words_has_no_calls() -> None:
    body = await asked(writing("It rains."), tools=[WEATHER])
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "It rains."
    assert "tool_calls" not in choice["message"]


async def test_several_calls_have_ids_of_their_own() -> None:
    body = await asked(writing(TWO_CALLS), tools=[WEATHER, CLOCK])
    calls = body["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["weather", "clock"]
    assert [call["function"]["arguments"] for call in calls] == [PARIS, "{}"]
    assert len({call["id"] for call in calls}) == 2


async def test_words_before_a_call_are_content() -> None:
    body = await asked(writing(f"Let me see.\n{HERMES_CALL}", HERMES_FORMAT), tools=[WEATHER])
    message = body["choices"][0]["message"]
    assert message["content"] == "Let me see."
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == [PARIS]


async def test_call_ids_are_what_the_chat_template_takes_back() -> None:
    bench = writing(f"[TOOL_CALLS]weather[ARGS]{PARIS}", ChatFormat(tools=MISTRAL))
    body = await asked(bench, tools=[WEATHER])
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert len(call["id"]) == 9
    assert call["id"].isalnum()


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
async def test_a_stream_gives_id_and_name_once_and_the_arguments_in_parts(size: int) -> None:
    bench = writing(f"Well.\n{HERMES_CALL}\n{HERMES_CALL}", HERMES_FORMAT, size)
    response = await post(bench, CHAT, chat(tools=[WEATHER], stream=True))
    deltas = [event["choices"][0]["delta"] for event in events(response.text)[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Well."
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    for index in (0, 1):
        first, *others = [part for part in parts if part["index"] == index]
        assert first["id"].startswith("call_")
        assert first["type"] == "function"
        assert first["function"] == {"name": "weather", "arguments": ""}
        assert "".join(part["function"]["arguments"] for part in others) == PARIS
        assert all(set(part) == {"index", "function"} for part in others)
        assert all(set(part["function"]) == {"arguments"} for part in others)
    assert events(response.text)[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_each_choice_has_calls_of_its_own() -> None:
    body = await asked(writing(PLAIN_CALL), tools=[WEATHER], n=3)
    ids = [choice["message"]["tool_calls"][0]["id"] for choice in body["choices"]]
    assert len(set(ids)) == 3


async def test_a_call_that_max_tokens_cuts_is_no_finished_call() -> None:
    bench = writing(PLAIN_CALL)
    body = await asked(bench, tools=[WEATHER], max_tokens=18, on_budget="truncate")
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert PARIS.startswith(call["function"]["arguments"])


async def test_logprobs_are_of_the_content_alone() -> None:
    bench = writing(f"Let me see.\n{HERMES_CALL}", HERMES_FORMAT, 1)
    body = await asked(bench, tools=[WEATHER], logprobs=True)
    entries = body["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == "Let me see."


@pytest.mark.parametrize(
    ("choice", "use"),
    [
        (None, ToolUse((WEATHER_TOOL, CLOCK_TOOL))),
        ("auto", ToolUse((WEATHER_TOOL, CLOCK_TOOL))),
        ("required", ToolUse((WEATHER_TOOL, CLOCK_TOOL), "required")),
        ("none", None),
        (
            {"type": "function", "function": {"name": "clock"}},
            ToolUse((CLOCK_TOOL,), "required", most_calls=1),
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "weather"}}],
                },
            },
            ToolUse((WEATHER_TOOL,), "auto"),
        ),
    ],
)
async def test_the_choice_of_tools_is_the_constraint(choice: Any, use: ToolUse | None) -> None:
    bench = writing("x")
    await asked(bench, tools=[WEATHER, CLOCK], tool_choice=choice)
    expected = answer(None, use, PLAIN.tools)
    assert bench.compiled == ([] if expected is None else [expected])


async def test_one_call_alone_where_parallel_calls_are_off() -> None:
    bench = writing("x")
    await asked(bench, tools=[WEATHER], parallel_tool_calls=False)
    assert bench.compiled == [answer(None, ToolUse((WEATHER_TOOL,), most_calls=1), PLAIN.tools)]


async def test_how_many_calls_an_answer_may_have_is_a_setting() -> None:
    bench = writing("x")
    config = replace(CONFIG, max_tool_calls=40)
    await post(bench, CHAT, chat(tools=[WEATHER]), config=config)
    use = ToolUse((WEATHER_TOOL,), most_calls=40)
    assert bench.compiled == [answer(None, use, PLAIN.tools)]


async def test_tools_beside_a_response_format_admit_either() -> None:
    bench = writing(PARIS)
    format = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    body = await asked(bench, tools=[CLOCK], response_format=format)
    assert body["choices"][0]["message"]["content"] == PARIS
    content = JsonSchema(CITY, close_objects=True)
    assert bench.compiled == [answer(content, ToolUse((CLOCK_TOOL,)), PLAIN.tools)]


async def test_the_prompt_shows_the_tools_in_the_templates_own_way() -> None:
    native = writing("x", HERMES_FORMAT)
    await asked(native, tools=[WEATHER])
    (shown,) = native.tokenizer.tools
    assert shown is not None
    assert shown[0]["function"]["parameters"] == CITY
    written = writing("x")
    await asked(written, tools=[WEATHER])
    assert written.tokenizer.tools == [None]
    assert schema_text(CITY) in written.tokenizer.seen[0][0]["content"]
    hidden = writing("x", HERMES_FORMAT)
    await asked(hidden, tools=[WEATHER], tool_choice="none")
    assert hidden.tokenizer.tools == [None]


async def test_a_conversation_with_calls_goes_back_to_the_template() -> None:
    bench = writing("It rains.", HERMES_FORMAT)
    call = {"id": "call_1", "type": "function"}
    messages = [
        HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**call, "function": {"name": "weather", "arguments": PARIS}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]},
    ]
    await asked(bench, messages=messages, tools=[WEATHER])
    _, assistant, tool = bench.tokenizer.seen[0]
    assert assistant["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
    assert tool["content"] == "rain"
    assert tool["tool_call_id"] == "call_1"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "clock"}},
            },
            "tool_choice",
        ),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}
                ]
            },
            "tools",
        ),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"messages": [HI, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
        (
            {"messages": [HI, {"role": "tool", "content": "x", "tool_call_id": "a"}]},
            "messages[1].tool_call_id",
        ),
        ({"messages": [{**HI, "tool_calls": []}, {"role": "assistant"}]}, "messages[1].content"),
    ],
)
async def test_errors_of_tools_and_calls_name_the_field(fields: dict[str, Any], param: str) -> None:
    assert error_of(await post(Bench(), CHAT, chat(**fields), 400))["param"] == param


class Place(BaseModel):
    city: str


async def test_the_sdk_parses_the_arguments_of_a_strict_tool() -> None:
    call = PLAIN_CALL.replace("weather", "Place")
    async with sdk_of(writing(call)) as client:
        completion = await client.chat.completions.parse(
            model="demo",
            messages=[HI],
            tools=[openai.pydantic_function_tool(Place)],
            tool_choice="required",
        )
        async with client.chat.completions.stream(
            model="demo",
            messages=[HI],
            tools=[openai.pydantic_function_tool(Place)],
        ) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()
    for each in (completion, final):
        type(each).model_validate(each.to_dict(), strict=True)
        assert each.choices[0].message.tool_calls is not None
        (parsed,) = each.choices[0].message.tool_calls
        assert parsed.function.parsed_arguments == Place(city="Paris")
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
