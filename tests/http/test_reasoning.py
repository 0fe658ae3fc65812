"""Models that reason before they answer."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES, PLAIN
from app.answer.formats.reasoning import FALLBACK_REASONING, INSTRUCTION, ReasoningFormat
from app.answer.language import with_reasoning
from app.core.request import ThinkingBudget
from app.core.specs import JsonObject
from tests.http.harness import (
    CHAT,
    HI,
    MESSAGES,
    RESPONSES,
    application,
    chat,
    client_of,
    error_of,
    events,
    post,
    writing,
)
from tests.serving.fakes import Bench

THINK = ReasoningFormat("<think>", "</think>")
REASONER = ChatFormat(
    tools=PLAIN, reasoning=THINK, variables=frozenset({"enable_thinking", "messages"})
)
UNTAUGHT_MODEL = ChatFormat(PLAIN)
"""A model whose chat template has no reasoning."""
OBJECT = {"response_format": {"type": "json_object"}}
DOCUMENT = application(Bench()).openapi()


def documented(value: Any, name: str) -> None:
    """Raises ``ValidationError`` if ``value`` is not a valid ``name`` of /openapi.json."""
    schema = {**DOCUMENT, "$ref": f"#/components/schemas/{name}"}
    jsonschema.validate(value, schema, jsonschema.Draft202012Validator)


def thinking(text: str, generation_prompt: str = "", format: ChatFormat = REASONER) -> Bench:
    return writing(text, format, 2, generation_prompt=generation_prompt)


async def message(bench: Bench, **fields: Any) -> dict[str, Any]:
    (choice,) = (await post(bench, CHAT, chat(**fields))).json()["choices"]
    found: dict[str, Any] = choice["message"]
    documented(found, "AssistantMessage")
    return found


@pytest.mark.parametrize(
    ("prompt", "text", "reasoning", "content"),
    [
        ("", "<think>\nA lamp.\n</think>\n\n{}", "A lamp.", "{}"),
        ("<think>\n", "A lamp.\n</think>\n\n{}", "A lamp.", "{}"),
        ("<think>\n\n</think>\n\n", "{}", None, "{}"),
        ("", "{}", None, "{}"),
    ],
)
async def test_reasoning_comes_apart_from_content(
    prompt: str, text: str, reasoning: str | None, content: str
) -> None:
    found = await message(thinking(text, prompt), **OBJECT)
    assert found["content"] == content
    assert found.get("reasoning_content") == reasoning


async def test_the_constraint_starts_after_the_reasoning() -> None:
    bench = thinking("A lamp.\n</think>\n\n{}", "<think>\n")
    await message(bench, **OBJECT)
    assert bench.compiled == [with_reasoning(JsonObject(), THINK, "open")]
    closed = thinking("{}", "<think>\n\n</think>\n\n")
    await message(closed, **OBJECT)
    assert closed.compiled == [JsonObject()]


async def test_the_budget_keeps_room_for_the_answer() -> None:
    bench = thinking("A lamp.</think>{}", "<think>\n")
    await message(bench, max_tokens=100, **OBJECT)
    assert bench.engine.added[0].thinking == ThinkingBudget(25, b"</think>")
    possible = thinking("<think>A lamp.</think>{}")
    await message(possible, max_tokens=100, **OBJECT)
    assert possible.engine.added[0].thinking == ThinkingBudget(25, b"</think>", b"<think>")
    free = thinking("A lamp.</think>Yes.", "<think>\n")
    await message(free, max_tokens=100)
    assert free.engine.added[0].thinking is None


async def test_a_stream_tells_reasoning_from_content() -> None:
    bench = thinking("<think>A lamp.</think>\n\nYes.")
    body = chat(stream=True, stream_options={"include_usage": True})
    response = await post(bench, CHAT, body)
    *chunks, usage, _ = events(response.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "A lamp."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Yes."
    details = usage["usage"]["completion_tokens_details"]
    assert 4 <= details["reasoning_tokens"] <= 8


async def test_reasoning_may_end_in_a_call() -> None:
    text = '<think>A lamp.</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    format = ChatFormat(tools=HERMES, reasoning=THINK)
    tool = {"type": "function", "function": {"name": "f"}}
    found = await message(thinking(text, format=format), tools=[tool])
    assert found["reasoning_content"] == "A lamp."
    assert found["content"] is None
    assert found["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(("effort", "thinks"), [("none", False), ("low", True)])
async def test_effort_is_told_to_the_template_in_its_own_words(effort: str, thinks: bool) -> None:
    bench = thinking("x")
    await message(bench, reasoning_effort=effort)
    assert bench.tokenizer.options == [{"enable_thinking": thinks}]


EFFORTS = {"reasoning_effort": {"none": "no_think", "low": "low", "medium": "high", "high": "high"}}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"reasoning_effort": "medium"}, {"reasoning_effort": "high"}),
        ({"reasoning": {"enabled": True}}, {"reasoning_effort": "high"}),
        ({"reasoning": {"max_tokens": 9}}, {"reasoning_effort": "high", "thinking_budget": 9}),
        ({"reasoning": {"enabled": False}}, {"reasoning_effort": "no_think", "thinking_budget": 0}),
        ({}, {}),
    ],
    ids=str,
)
async def test_a_template_is_told_in_the_words_it_takes(fields: Any, told: Any) -> None:
    variables = frozenset({"reasoning_effort", "thinking_budget"})
    format = ChatFormat(PLAIN, THINK, variables=variables, efforts=EFFORTS)
    bench = thinking("<think>x</think>x", format=format)
    await message(bench, max_tokens=100, **fields)
    assert bench.tokenizer.options == [told]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}},
         "chat_template_kwargs.add_generation_prompt"),
        ({"chat_template_kwargs": {"enable_thinking": "x" * 5000}}, "chat_template_kwargs"),
    ],
)  # fmt: skip
async def test_a_request_cannot_set_variables_that_the_server_sets_in_the_template(
    fields: Any, param: str
) -> None:
    response = await post(thinking("x"), CHAT, chat(**fields), 400)
    assert error_of(response)["param"] == param


UNTAUGHT_TEXT = "<think>\nA lamp.\n</think>\n\n{}"


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"reasoning": {"max_tokens": 40}}, 60),
        ({"reasoning": {"max_tokens": 400}}, 0),
        ({"reasoning": {"enabled": True}}, 25),
        ({"reasoning": {"effort": "low"}}, 80),
        ({"reasoning_effort": "medium"}, 50),
        ({"reasoning_effort": "high", "reasoning": {"effort": "high"}}, 25),
    ],
    ids=str,
)
async def test_a_model_that_was_not_taught_to_is_told_to_reason_and_has_to(
    fields: Any, kept: int
) -> None:
    bench = thinking(UNTAUGHT_TEXT, format=UNTAUGHT_MODEL)
    found = await message(bench, max_tokens=100, **OBJECT, **fields)
    assert found["content"] == "{}"
    assert found["reasoning_content"] == "A lamp."
    assert found.get("reasoning") == ("A lamp." if "reasoning" in fields else None)
    assert bench.tokenizer.seen[0][0] == {"role": "system", "content": INSTRUCTION}
    assert bench.engine.added[0].thinking == ThinkingBudget(kept, b"</think>", b"<think>\n")
    assert bench.compiled == [with_reasoning(JsonObject(), FALLBACK_REASONING, "needed")]


async def test_free_text_may_be_reasoned_about_as_well() -> None:
    bench = thinking("<think>\nA lamp.</think>\n\nYes.", format=UNTAUGHT_MODEL)
    found = await message(bench, max_tokens=100, reasoning={"max_tokens": 40})
    assert (found["reasoning_content"], found["content"]) == ("A lamp.", "Yes.")
    assert bench.engine.added[0].thinking == ThinkingBudget(60, b"</think>", b"<think>\n")


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_effort": "none"},
        {"reasoning_effort": "minimal"},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"max_tokens": 0}},
        {"reasoning": {}},
    ],
    ids=str,
)
async def test_without_reasoning_nothing_changes_for_such_a_model(fields: Any) -> None:
    bench = thinking("{}", format=UNTAUGHT_MODEL)
    await message(bench, **OBJECT, **fields)
    assert bench.compiled == [JsonObject()]
    assert bench.tokenizer.seen[0][0]["role"] == "user"


@pytest.mark.parametrize(
    ("prompt", "text", "admitted"),
    [
        ("<think>\n", "</think>\n\n{}", with_reasoning(JsonObject(), THINK, "open", barred=True)),
        ("", "{}", JsonObject()),
        ("<think></think>", "{}", JsonObject()),
    ],
)
async def test_a_model_that_reasons_can_be_told_not_to(
    prompt: str, text: str, admitted: Any
) -> None:
    bench = thinking(text, prompt, ChatFormat(PLAIN, THINK))
    found = await message(bench, reasoning={"enabled": False}, **OBJECT)
    assert found["content"] == "{}"
    assert "reasoning_content" not in found
    assert bench.compiled == [admitted]


async def test_reasoning_that_is_excluded_is_counted_and_not_shown() -> None:
    for fields in ({"reasoning": {"exclude": True}}, {"include_reasoning": False}):
        bench = thinking("<think>A lamp.</think>{}")
        async with client_of(bench) as client:
            answer = (await client.post(CHAT, json=chat(**OBJECT, **fields))).json()
            stream = await client.post(CHAT, json=chat(stream=True, **OBJECT, **fields))
        assert not {"reasoning", "reasoning_content"} & answer["choices"][0]["message"].keys()
        assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] >= 3
        assert "lamp" not in stream.text
        assert '"reasoning' not in stream.text.replace("reasoning_tokens", "")


async def test_a_stream_has_the_reasoning_under_openrouters_name_on_request() -> None:
    bench = thinking("<think>A lamp.</think>Yes.")
    response = await post(bench, CHAT, chat(stream=True, reasoning={}))
    deltas = [chunk["choices"][0]["delta"] for chunk in events(response.text)[:-1]]
    for name in ("reasoning", "reasoning_content"):
        assert "".join(delta.get(name, "") for delta in deltas) == "A lamp."
    for delta in deltas:
        documented(delta, "Delta")


async def test_responses_have_such_reasoning_as_an_item() -> None:
    bench = thinking(UNTAUGHT_TEXT, format=UNTAUGHT_MODEL)
    body = {"model": "demo", "input": "Hi", "text": {"format": {"type": "json_object"}}}
    more = {"store": False, "reasoning": {"max_tokens": 40}}
    answer = await post(bench, RESPONSES, body | more)
    reasoning, said = answer.json()["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "A lamp."}]
    assert said["content"][0]["text"] == "{}"


async def test_messages_have_it_as_thinking() -> None:
    bench = thinking(UNTAUGHT_TEXT, format=UNTAUGHT_MODEL)
    body = {"model": "demo", "messages": [HI], "max_tokens": 100}
    thinks = {"type": "enabled", "budget_tokens": 40}
    answer = await post(bench, MESSAGES, body | {"thinking": thinks})
    thought, said = answer.json()["content"]
    assert (thought["thinking"], said["text"]) == ("A lamp.", "{}")
    assert bench.engine.added[0].thinking == ThinkingBudget(60, b"</think>", b"<think>\n")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning": {"enabled": False, "effort": "high"}}, "reasoning"),
        ({"reasoning": {"enabled": True, "effort": "none"}}, "reasoning"),
        ({"reasoning": {"enabled": True, "max_tokens": 0}}, "reasoning"),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "reasoning"),
        ({"reasoning": {"max_tokens": -1}}, "reasoning.max_tokens"),
        ({"reasoning": {"exclude": False}, "include_reasoning": False}, "include_reasoning"),
    ],
    ids=str,
)
async def test_fields_that_say_the_contrary_of_each_other_are_refused(
    fields: Any, param: str
) -> None:
    response = await post(thinking("x"), CHAT, chat(**fields), 400)
    assert error_of(response)["param"] == param
