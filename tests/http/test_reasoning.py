"""Models that reason before they answer."""

from __future__ import annotations

from typing import Any

import pytest

from app.answer.formats import HERMES, PLAIN, ChatFormat, ReasoningFormat
from app.answer.plan import with_reasoning
from app.core.request import ThinkingBudget
from app.core.specs import JsonObject
from tests.http.harness import CHAT, chat, client_of, events
from tests.serving.fakes import Bench, FakeEngine

THINK = ReasoningFormat("<think>", "</think>")
REASONER = ChatFormat(
    tools=PLAIN, reasoning=THINK, variables=frozenset({"enable_thinking", "messages"})
)
OBJECT = {"response_format": {"type": "json_object"}}


def thinking(text: str, generation_prompt: str = "", format: ChatFormat = REASONER) -> Bench:
    data = text.encode()
    pieces = [data[start : start + 2] for start in range(0, len(data), 2)]
    return Bench(
        FakeEngine(lambda request: pieces),
        chat_format=format,
        generation_prompt=generation_prompt,
    )


async def message(bench: Bench, **fields: Any) -> dict[str, Any]:
    async with client_of(bench) as client:
        response = await client.post(CHAT, json=chat(**fields))
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    found: dict[str, Any] = choice["message"]
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
    async with client_of(bench) as client:
        response = await client.post(
            CHAT, json=chat(stream=True, stream_options={"include_usage": True})
        )
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


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"date_string": "x"}}, "chat_template_kwargs.date_string"),
        (
            {"chat_template_kwargs": {"enable_thinking": ["x"]}},
            "chat_template_kwargs.enable_thinking",
        ),
    ],
)
async def test_only_a_few_variables_reach_the_template(fields: Any, param: str) -> None:
    async with client_of(thinking("x")) as client:
        response = await client.post(CHAT, json=chat(**fields))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_a_model_that_does_not_reason_says_so() -> None:
    async with client_of(Bench()) as client:
        response = await client.post(CHAT, json=chat(reasoning_effort="high"))
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "reasoning_effort"
        response = await client.post(CHAT, json=chat(reasoning_effort="none"))
        assert response.status_code == 200
