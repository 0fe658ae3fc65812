"""The Responses API: input, the messages made of it, and fields that are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.harness import RESPONSES, error_of, post, writing
from tests.http.responses import CITY, PARIS, REASONER, WEATHER, WITH_TOOLS, asking, response_of
from tests.serving.fakes import Bench

USER = {"role": "user", "content": "hi"}
CALLING = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": PARIS}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "Rain."}


def call(call_id: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": {"city": "Paris"}}
    return {"id": call_id, "type": "function", "function": function}


async def seen(*items: Any, **fields: Any) -> Any:
    """The messages that the chat template is given."""
    bench = writing("ok", REASONER)
    await response_of(bench, input=list(items), **fields)
    return bench.tokenizer.seen[0]


async def test_a_text_is_the_user_s() -> None:
    bench = Bench()
    await response_of(bench, input="hi", instructions="Be brief.")
    assert bench.tokenizer.seen == [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    ]


async def test_instructions_and_a_system_message_are_one() -> None:
    system = {"role": "developer", "content": "Be kind."}
    assert await seen(system, USER, instructions="Be brief.") == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        USER,
    ]


@pytest.mark.parametrize(
    ("item", "role", "text"),
    [
        ({"role": "user", "content": "hi"}, "user", "hi"),
        ({"role": "system", "content": "hi"}, "system", "hi"),
        ({"role": "developer", "content": "hi"}, "system", "hi"),
        ({"role": "assistant", "content": "hi"}, "assistant", "hi"),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            "user",
            "hi",
        ),
        (
            {
                "type": "message",
                "role": "user",
                "status": "completed",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_text", "text": "b"},
                ],
            },
            "user",
            "a\nb",
        ),
        (
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": None,
                "content": [
                    {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}
                ],
            },
            "assistant",
            "hi",
        ),
        (
            {"role": "assistant", "content": [{"type": "output_text", "text": "hi"}], "id": "m"},
            "assistant",
            "hi",
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            "assistant",
            "No.",
        ),
    ],
)
async def test_every_form_of_a_message(item: Any, role: str, text: str) -> None:
    assert await seen(item) == [{"role": role, "content": text}]


async def test_items_of_one_answer_become_one_message() -> None:
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "A lamp."}],
        "encrypted_content": None,
    }
    said = {"role": "assistant", "content": "Let me see."}
    second = {**CALLING, "call_id": "c2"}
    messages = await seen(
        USER, reasoning, said, CALLING, second, OUTPUT, {**OUTPUT, "call_id": "c2"}, said
    )
    assert messages == [
        USER,
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "A lamp.",
            "tool_calls": [call("c1"), call("c2")],
        },
        {"role": "tool", "content": "Rain.", "tool_call_id": "c1", "name": "weather"},
        {"role": "tool", "content": "Rain.", "tool_call_id": "c2", "name": "weather"},
        said,
    ]


async def test_two_messages_stay_two() -> None:
    said = {"role": "assistant", "content": "Yes."}
    assert await seen(USER, said, said) == [USER, said, said]


async def test_calls_in_turn_are_messages_of_their_own() -> None:
    messages = await seen(USER, CALLING, OUTPUT, {**CALLING, "call_id": "c2"})
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[3]["tool_calls"] == [call("c2")]


async def test_an_output_may_have_parts() -> None:
    parts = [{"type": "input_text", "text": "Rain"}, {"type": "input_text", "text": "and wind"}]
    messages = await seen(USER, CALLING, {**OUTPUT, "output": parts, "id": None})
    assert messages[-1]["content"] == "Rain\nand wind"


async def test_a_summary_stands_for_the_reasoning() -> None:
    summary = [{"type": "summary_text", "text": "A lamp"}, {"type": "summary_text", "text": "or"}]
    thought = {"type": "reasoning", "id": "rs_1", "summary": summary}
    messages = await seen(USER, thought, thought, {"role": "assistant", "content": "Yes."})
    assert messages[1:] == [
        {
            "role": "assistant",
            "content": "Yes.",
            "reasoning_content": "A lamp\nor\nA lamp\nor",
        }
    ]


async def test_reasoning_without_text_is_nothing() -> None:
    empty: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": None,
    }
    assert await seen(USER, empty) == [USER]


def items(*found: Any) -> dict[str, Any]:
    return {"input": list(found)}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        # Fields that need stored state.
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True}, "background"),
        (items({"type": "item_reference", "id": "msg_1"}), "input[0]"),
        # Unsupported fields and items.
        ({"moderation": {"model": "x"}}, "moderation"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"effort": "low", "enabled": False}}, "reasoning"),
        ({"tools": [WEATHER], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        (items({"type": "hologram", "id": "x"}), "input[0]"),
        (
            items({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}),
            "input[0].content[0]",
        ),
        (
            items(USER, CALLING, {**OUTPUT, "output": [{"type": "input_file", "file_id": "x"}]}),
            "input[2].output[0]",
        ),
        # Fields of chat completions.
        ({"messages": [USER]}, "messages"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 2}, "n"),
        # Invalid values.
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [{"type": 5}]}, "input[0].type"),
        ({"input": [{"type": ["message"]}]}, "input[0].type"),
        (items({"role": "user"}), "input[0].content"),
        (items({"content": "hi"}), "input[0].role"),
        (items({"role": "tool", "content": "hi"}), "input[0].role"),
        (items({"role": "user", "content": [{"type": "input_text"}]}), "input[0].content[0].text"),
        (items({"role": "user", "content": ["hi"]}), "input[0].content[0]"),
        (items({**CALLING, "arguments": {}}), "input[0].arguments"),
        (items(OUTPUT), "input[0].call_id"),
        (items(*[USER] * 9), "input"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a" * 65: "b"}}, None),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{**WEATHER, "parameters": {"type": "string"}}]}, "tools"),
        ({"text": {"format": {"type": "json_schema", "schema": CITY}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema_id": "x"}}}, "text.format.schema_id"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.grammar"),
        # A field may have the same name as the type.
        (
            {"text": {"format": {"type": "grammar", "grammar": "start: /a/", "syntax": "x"}}},
            "text.format.syntax",
        ),
        ({"text": {"format": {"type": "choice", "choice": {}}}}, "text.format.choices"),
        (
            {"text": {"format": {"type": "choice", "choice": [], "choices": ["a", 1]}}},
            "text.format.choices[1]",
        ),
    ],
)
async def test_the_error_names_the_refused_field(fields: dict[str, Any], param: str | None) -> None:
    bench = writing("ok", WITH_TOOLS)
    error = error_of(await post(bench, RESPONSES, asking(**fields), 400))
    if param is not None:
        assert error["param"] == param, error
    assert error["message"]


async def test_the_input_is_needed() -> None:
    answer = await post(Bench(), RESPONSES, {"model": "demo"}, 400)
    assert answer.json()["error"]["message"] == "Missing required parameter: 'input'."


async def test_neutral_values_ask_for_nothing() -> None:
    neutral = {
        "background": None,
        "context_management": None,
        "conversation": None,
        "include": None,
        "prompt": None,
        "prompt_cache_retention": "24h",
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "auto",
        "stream_options": None,
        "text": {"verbosity": "medium"},
        "tool_choice": "auto",
    }
    await post(Bench(), RESPONSES, asking(**neutral))
