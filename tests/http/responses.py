"""Helpers for tests of responses: requests, models that write a text, and checked events."""

from __future__ import annotations

from functools import cache
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES
from app.answer.formats.reasoning import ReasoningFormat
from tests.http.harness import BODIES, RESPONSES, events, post
from tests.serving.fakes import Bench

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}
CLOCK = {"type": "function", "name": "clock", "description": "What time it is."}
PARIS = '{"city": "Paris"}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>'

THINK = ReasoningFormat("<think>", "</think>")
WITH_TOOLS = ChatFormat(tools=HERMES)
REASONER = ChatFormat(
    tools=HERMES, reasoning=THINK, variables=frozenset({"enable_thinking", "messages"})
)


def asking(**fields: Any) -> dict[str, Any]:
    """The body of a request that says ``hi``."""
    return {**BODIES[RESPONSES], **fields}


async def response_of(bench: Bench, **fields: Any) -> dict[str, Any]:
    """The response object, checked by the SDK's types."""
    response: dict[str, Any] = (await post(bench, RESPONSES, asking(**fields))).json()
    Response.model_validate(response, strict=True)
    return response


async def events_of(bench: Bench, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream, checked by the SDK's types."""
    answer = await post(bench, RESPONSES, asking(stream=True, **fields))
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parsed_events(answer.text)


@cache
def _event_type() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseStreamEvent)


def parsed_events(text: str) -> list[dict[str, Any]]:
    """The data of server-sent events; their names and numbers are checked."""
    found = events(text)
    assert text.startswith("event: ")
    for number, value in enumerate(found):
        assert value["sequence_number"] == number
        assert _event_type().validate_python(value, strict=True).type == value["type"]
    return found


def without_ids(value: Any) -> Any:
    """``value`` without ids and times, which differ from one answer to the next."""
    if isinstance(value, dict):
        return {
            name: without_ids(each)
            for name, each in value.items()
            if name not in ("id", "call_id", "created_at", "completed_at")
        }
    return [without_ids(each) for each in value] if isinstance(value, list) else value
