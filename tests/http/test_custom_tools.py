"""OpenAI's custom tools in chat completions and responses."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from app.core.composite import Composite
from tests.http.harness import (
    CHAT,
    HI,
    RESPONSES,
    chat,
    error_of,
    events,
    post,
    sdk_of,
    writing,
)
from tests.http.responses import asking, parsed_events
from tests.serving.fakes import Bench

INPUT = 'SELECT "a"\nFROM t\\b — ü'
CALL = json.dumps(
    {"tool_calls": [{"name": "query", "arguments": {"input": INPUT}}]}, ensure_ascii=False
)
BOTH = json.dumps(
    {
        "tool_calls": [
            {"name": "clock", "arguments": {}},
            {"name": "query", "arguments": {"input": INPUT}},
        ]
    },
    ensure_ascii=False,
)
LARK = {"syntax": "lark", "definition": 'start: "SELECT " /.+/s'}
QUERY = {
    "type": "custom",
    "custom": {
        "name": "query",
        "description": "Asks the database.",
        "format": {"type": "grammar", "grammar": LARK},
    },
}
FLAT_QUERY = {"type": "custom", "name": "query", "format": {"type": "grammar", **LARK}}
CLOCK = {"type": "function", "function": {"name": "clock"}}


async def test_a_call_has_an_input_beside_calls_with_arguments() -> None:
    response = await post(writing(BOTH), CHAT, chat(tools=[CLOCK, QUERY]))
    clock, query = response.json()["choices"][0]["message"]["tool_calls"]
    assert clock["function"] == {"name": "clock", "arguments": "{}"}
    assert query.pop("id").startswith("call_")
    assert query == {"type": "custom", "custom": {"name": "query", "input": INPUT}}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_a_stream_gives_the_input_in_parts(size: int) -> None:
    response = await post(writing(BOTH, size=size), CHAT, chat(tools=[CLOCK, QUERY], stream=True))
    deltas = [event["choices"][0]["delta"] for event in events(response.text)[:-1]]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    first, *others = [part for part in parts if part["index"] == 1]
    assert first.pop("id")
    assert first == {"index": 1, "type": "custom", "custom": {"name": "query", "input": ""}}
    assert "".join(part["custom"]["input"] for part in others) == INPUT
    assert all(part["custom"]["input"] for part in others)


async def test_a_grammar_is_enforced_and_shown_in_the_prompt() -> None:
    bench = writing(CALL)
    await post(bench, CHAT, chat(tools=[QUERY], tool_choice="required"))
    compiled = str(cast("Composite", bench.compiled[0]).root)
    assert "'x-grammar': {'syntax': 'lark'" in compiled
    shown = json.dumps(bench.tokenizer.seen[0], default=str)
    assert "Asks the database." in shown
    assert "SELECT" in shown
    assert "x-grammar" not in shown


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "custom", "custom": {"name": "query"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "custom", "custom": {"name": "query"}}],
            },
        },
    ],
)
async def test_a_custom_tool_can_be_chosen(choice: dict[str, Any]) -> None:
    bench = writing(CALL)
    await post(bench, CHAT, chat(tools=[CLOCK, QUERY], tool_choice=choice))
    assert "clock" not in str(cast("Composite", bench.compiled[0]).root)


async def test_calls_come_back_as_history() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "query", "input": INPUT}}
    messages = [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3 rows"},
    ]
    bench = writing("Done.")
    response = await post(bench, CHAT, chat(messages=messages, tools=[QUERY]))
    assert response.json()["choices"][0]["message"]["content"] == "Done."
    written = bench.tokenizer.seen[0][2]["content"]
    assert json.dumps({"input": INPUT}, ensure_ascii=False) in written


@pytest.mark.parametrize("format", [None, {"type": "text"}])
async def test_without_a_grammar_any_text_is_an_input(format: dict[str, Any] | None) -> None:
    custom = {"name": "query"} | ({} if format is None else {"format": format})
    bench = writing(CALL)
    body = chat(tools=[{"type": "custom", "custom": custom}])
    response = await post(bench, CHAT, body)
    (call,) = response.json()["choices"][0]["message"]["tool_calls"]
    assert call["custom"]["input"] == INPUT
    assert "x-grammar" not in str(bench.compiled[0])


async def test_two_tools_of_one_name_are_refused() -> None:
    other = {"type": "function", "function": {"name": "query"}}
    error = error_of(await post(Bench(), CHAT, chat(tools=[other, QUERY]), 400))
    assert error["param"] == "tools[1].custom.name"
    assert "two tools" in error["message"]


@pytest.mark.parametrize("syntax", ["gbnf", "ebnf"])
async def test_other_notations_are_refused(syntax: str) -> None:
    grammar = {"syntax": syntax, "definition": "x"}
    custom = {"name": "query", "format": {"type": "grammar", "grammar": grammar}}
    body = chat(tools=[{"type": "custom", "custom": custom}])
    error = error_of(await post(Bench(), CHAT, body, 400))
    assert error["param"] == "tools[0].custom.format.grammar.syntax"


async def test_openai_s_package_reads_the_call() -> None:
    async with sdk_of(writing(CALL)) as sdk:
        completion = await sdk.chat.completions.create(
            model="demo",
            messages=[HI],
            tools=[cast("Any", QUERY)],
        )
    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "custom"
    assert calls[0].custom.input == INPUT


async def test_responses_have_items_of_their_own() -> None:
    response = await post(writing(CALL), RESPONSES, asking(tools=[FLAT_QUERY]))
    body = response.json()
    (item,) = body["output"]
    assert item.pop("id").startswith("ctc_")
    assert item.pop("call_id").startswith("call_")
    assert item == {
        "type": "custom_tool_call",
        "status": "completed",
        "name": "query",
        "input": INPUT,
    }
    (told,) = body["tools"]
    assert told == {**FLAT_QUERY, "description": None}


async def test_responses_stream_the_input() -> None:
    response = await post(writing(CALL, size=2), RESPONSES, asking(tools=[FLAT_QUERY], stream=True))
    told = parsed_events(response.text)
    deltas = [each for each in told if each["type"] == "response.custom_tool_call_input.delta"]
    (done,) = [each for each in told if each["type"] == "response.custom_tool_call_input.done"]
    assert "".join(each["delta"] for each in deltas) == done["input"] == INPUT
    assert all(each["delta"] for each in deltas)


async def test_responses_take_calls_and_outputs_back() -> None:
    items = [
        HI,
        {"type": "custom_tool_call", "call_id": "c1", "name": "query", "input": INPUT},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "3 rows"},
    ]
    bench = writing("Done.")
    choice = {"type": "custom", "name": "query"}
    await post(bench, RESPONSES, asking(input=items, tools=[FLAT_QUERY], tool_choice="auto"))
    assert "3 rows" in str(bench.tokenizer.seen[0])
    await post(writing(CALL), RESPONSES, asking(tools=[FLAT_QUERY], tool_choice=choice))
    refused = await post(Bench(), RESPONSES, asking(input=[items[0], items[2]]), 400)
    assert error_of(refused)["param"] == "input[1].call_id"
