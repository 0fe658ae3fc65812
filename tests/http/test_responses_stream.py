"""The Responses API: events of a stream."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, cast

import httpx
import openai
import pytest
from pydantic import BaseModel

from app.core.errors import BudgetTooSmall
from tests.http.harness import RESPONSES, application, listening, sdk_of, writing
from tests.http.responses import (
    CALL,
    CLOCK,
    PARIS,
    REASONER,
    WEATHER,
    WITH_TOOLS,
    asking,
    events_of,
    parsed_events,
    response_of,
    without_ids,
)
from tests.serving.fakes import Bench, FakeEngine

WHOLE = f"<think>\nA lamp.\n</think>\n\nLet me see.\n{CALL}"


class Person(BaseModel):
    name: str
    age: int


def steps(events: list[dict[str, Any]]) -> Iterator[str]:
    """The types of the events, consecutive repeats once."""
    before = ""
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind != before:
            yield kind
        before = kind


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output that a client assembles from the events alone."""
    items: list[dict[str, Any]] = []
    for event in events:
        match event["type"]:
            case "response.output_item.added":
                assert event["output_index"] == len(items)
                items.append(event["item"])
            case "response.content_part.added":
                item = items[event["output_index"]]
                assert item["id"] == event["item_id"]
                assert event["content_index"] == len(item["content"]) == 0
                item["content"].append(event["part"])
            case "response.output_text.delta" | "response.reasoning_text.delta":
                part = items[event["output_index"]]["content"][event["content_index"]]
                part["text"] += event["delta"]
                if "logprobs" in part:
                    part["logprobs"] += event["logprobs"]
            case "response.function_call_arguments.delta":
                items[event["output_index"]]["arguments"] += event["delta"]
            case "response.output_item.done":
                items[event["output_index"]]["status"] = event["item"]["status"]
    return items


async def test_a_message_comes_in_this_order() -> None:
    events = await events_of(Bench())
    assert list(steps(events)) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert "".join(event["delta"] for event in events if "delta" in event) == "Hello"
    begun, ended = events[0]["response"], events[-1]["response"]
    assert (begun["status"], begun["output"], begun["usage"]) == ("in_progress", [], None)
    assert begun["id"] == ended["id"]


async def test_reasoning_text_and_calls_come_one_after_the_other() -> None:
    events = await events_of(writing(WHOLE, REASONER), tools=[WEATHER])
    assert list(steps(events)) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    done = {event["type"]: event for event in events}
    assert done["response.reasoning_text.done"]["text"] == "A lamp."
    assert done["response.output_text.done"]["text"] == "Let me see."
    assert done["response.function_call_arguments.done"]["arguments"] == PARIS
    assert done["response.function_call_arguments.done"]["name"] == "weather"


async def test_an_answer_that_is_cut_ends_as_incomplete() -> None:
    events = await events_of(writing("one two"), max_output_tokens=2)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert events[-2]["item"]["status"] == "incomplete"


SAMPLES = ["", "a", "Grüße 🦊", "two\n\nlines ", "<tool", " {}"]


def random_answer(draw: random.Random) -> tuple[bytes, list[bytes]]:
    text = ""
    if draw.random() < 0.5:
        text = f"<think>\n{draw.choice(SAMPLES)} lamp\n</think>\n\n"
    text += draw.choice(SAMPLES) + draw.choice(SAMPLES)
    text += "\n".join([CALL] * draw.randrange(3))
    data = text.encode()
    cuts = sorted(draw.sample(range(len(data) + 1), min(len(data), draw.randrange(12))))
    bounds = zip([0, *cuts], [*cuts, len(data)], strict=True)
    return data, [data[start:end] for start, end in bounds]


@pytest.mark.parametrize("seed", range(60))
async def test_the_deltas_join_to_the_whole_response(seed: int) -> None:
    draw = random.Random(seed)
    data, pieces = random_answer(draw)
    limit = draw.choice([None, None, draw.randrange(1, len(pieces) + 1)])
    asked = {
        "tools": draw.choice([[WEATHER], [WEATHER, CLOCK]]),
        "include": draw.choice([[], ["message.output_text.logprobs"]]),
        "max_output_tokens": limit,
    }

    def bench() -> Bench:
        return Bench(FakeEngine(lambda request: pieces), chat_format=REASONER)

    whole = await response_of(bench(), **asked)
    events = await events_of(bench(), **asked)
    last = events[-1]["response"]
    assert events[-1]["type"] == f"response.{whole['status']}"
    assert without_ids(last) == without_ids(whole)
    assert joined(events) == last["output"]
    for event in events:
        if event["type"] == "response.output_item.done":
            assert event["item"] == last["output"][event["output_index"]]
    if limit is None and asked["tools"] == [WEATHER]:
        calls = [item for item in last["output"] if item["type"] == "function_call"]
        assert len(calls) == data.count(CALL.encode())


async def test_the_sdk_streams_and_accumulates() -> None:
    bench = writing('{"name": "Ada", "age": 36}')
    async with (
        sdk_of(bench) as client,
        client.responses.stream(model="demo", input="hi", text_format=Person) as stream,
    ):
        snapshots = [
            event.snapshot async for event in stream if event.type == "response.output_text.delta"
        ]
        final = await stream.get_final_response()
    assert snapshots[-1] == '{"name": "Ada", "age": 36}'
    assert final.output_parsed == Person(name="Ada", age=36)
    assert final.usage is not None
    assert final.usage.output_tokens > 0


async def test_the_sdk_streams_reasoning_and_calls() -> None:
    async with (
        sdk_of(writing(WHOLE, REASONER)) as client,
        client.responses.stream(
            model="demo", input="hi", tools=[cast(Any, WEATHER)], tool_choice="auto"
        ) as stream,
    ):
        arguments = ""
        async for event in stream:
            if event.type == "response.function_call_arguments.delta":
                arguments = event.snapshot
        final = await stream.get_final_response()
    assert arguments == PARIS
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "Let me see."


async def test_the_sdk_iterates_over_raw_events() -> None:
    async with sdk_of(Bench()) as client:
        stream = await client.responses.create(model="demo", input="hi", stream=True)
        texts = [
            event.delta async for event in stream if event.type == "response.output_text.delta"
        ]
    assert "".join(texts) == "Hello"


async def test_a_failure_is_told_in_both_forms_that_clients_look_for() -> None:
    bench = writing("Hello", size=2)
    bench.engine.finish_with = "error"
    events = await events_of(bench)
    item, error, failed = events[-3:]
    assert (item["type"], item["item"]["status"]) == ("response.output_item.done", "incomplete")
    assert error["type"] == "error"
    assert "engine abandoned this answer" in error["message"]
    assert error["error"]["message"] == error["message"]
    assert error["error"]["code"] == error["code"] == "internal_error"
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == "server_error"
    assert failed["response"]["output"] == [item["item"]]


async def test_a_failure_that_is_the_caller_s_names_the_field() -> None:
    bench = writing("Hello", size=2)
    bench.engine.finish_with = "error"
    bench.engine.error = BudgetTooSmall(max_tokens=1, needed=5)
    error, failed = (await events_of(bench))[-2:]
    assert error["param"] == "max_output_tokens"
    assert "max_output_tokens is 1" in error["message"]
    assert failed["response"]["error"]["code"] == "invalid_prompt"


async def test_the_sdk_raises_on_a_failure_in_a_stream() -> None:
    bench = writing("Hello", size=2)
    bench.engine.finish_with = "error"
    async with sdk_of(bench) as client:
        stream = await client.responses.create(model="demo", input="hi", stream=True)
        with pytest.raises(openai.APIError, match="engine abandoned this answer"):
            async for _ in stream:
                pass


async def test_what_is_refused_is_refused_before_the_stream() -> None:
    async with sdk_of(Bench()) as client:
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(
                model="demo", input="hi", stream=True, previous_response_id="resp_1"
            )


async def test_a_stream_does_not_end_with_done() -> None:
    bench = writing(CALL, WITH_TOOLS)
    async with (
        bench.running(),
        listening(application(bench)) as url,
        httpx.AsyncClient(base_url=url, timeout=300) as client,
    ):
        answer = await client.post(RESPONSES, json=asking(stream=True, tools=[WEATHER]))
    assert "[DONE]" not in answer.text
    assert parsed_events(answer.text)[-1]["type"] == "response.completed"
