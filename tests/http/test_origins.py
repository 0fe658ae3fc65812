"""``stream_options.origins``: the origin of each token, in every API and OpenAI's SDK."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    HI,
    MESSAGES,
    RESPONSES,
    client_of,
    sdk_of,
    streamed,
    writing,
)
from tests.http.responses import CALL, CITY, WITH_TOOLS, events_of

ANSWER = '{"name": "Zoë", "note": "café au lait"}'
ORIGINS: dict[str, Any] = {"stream_options": {"origins": True}}
LOGPROBS: dict[str, dict[str, Any]] = {
    CHAT: {"logprobs": True, "top_logprobs": 1},
    COMPLETIONS: {"logprobs": 1},
    RESPONSES: {"include": ["message.output_text.logprobs"], "top_logprobs": 1},
}


def tokens_of(events: list[Any], choice: int = 0) -> list[Any]:
    """The tokens that a client has after it applied all ``origins`` of one choice."""
    tokens: list[Any] = []
    for event in events:
        parts = [each for each in event.get("choices", ()) if each["index"] == choice] or [event]
        for part in parts:
            if origins := part.get("origins"):
                assert origins["index"] <= len(tokens)
                assert all(set(each) >= {"token", "bytes", "source"} for each in origins["tokens"])
                tokens[origins["index"] :] = origins["tokens"]
    return tokens


def text_of(tokens: list[Any]) -> str:
    return b"".join([bytes(each["bytes"]) for each in tokens]).decode()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("size", [1, 3, 200])
async def test_every_api_tells_the_tokens_of_its_answer(path: str, size: int) -> None:
    most = {} if path in (CHAT, RESPONSES) else {"max_tokens": 99}
    events = await streamed(writing(ANSWER, size=size), path, **ORIGINS, **most)
    tokens = tokens_of(events)
    assert text_of(tokens) == ANSWER
    assert len(tokens) == -(-len(ANSWER.encode()) // size)
    assert {each["source"] for each in tokens} <= {"sampled", "held"}
    assert not any("logprob" in each for each in tokens)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
async def test_log_probabilities_come_with_them_where_they_are_asked_for(path: str) -> None:
    most = {"max_tokens": 99} if path == COMPLETIONS else {}
    events = await streamed(writing(ANSWER), path, **ORIGINS, **LOGPROBS[path], **most)
    for token in tokens_of(events):
        if token["source"] == "sampled":
            assert token["logprob"] == -0.25
            assert token["top_logprobs"] == [{"token": "H", "bytes": [72], "logprob": -0.5}]
        else:
            assert (token["logprob"], token["top_logprobs"]) == (None, [])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_each_of_several_choices_has_its_own(path: str) -> None:
    most = {"max_tokens": 99} if path == COMPLETIONS else {}
    events = await streamed(writing(ANSWER), path, **ORIGINS, n=2, **most)
    for choice in range(2):
        assert text_of(tokens_of(events, choice)) == ANSWER


async def test_the_marks_of_calls_are_tokens_of_the_answer() -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
    events = await streamed(writing(CALL, WITH_TOOLS), CHAT, **ORIGINS, tools=[tool])
    assert text_of(tokens_of(events)) == CALL
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    anthropic = {"name": "weather", "input_schema": CITY}
    events = await streamed(
        writing(CALL, WITH_TOOLS), MESSAGES, **ORIGINS, tools=[anthropic], max_tokens=99
    )
    assert text_of(tokens_of(events)) == CALL
    function = {"type": "function", "name": "weather", "parameters": CITY}
    got = await events_of(
        writing(CALL, WITH_TOOLS), tools=[function], stream_options={"origins": True}
    )
    assert text_of(tokens_of(got)) == CALL
    assert [each["sequence_number"] for each in got] == list(range(len(got)))


@pytest.mark.parametrize("path", BODIES)
async def test_origins_are_only_reported_in_streams_and_on_request(path: str) -> None:
    most = {"max_tokens": 99} if path in (COMPLETIONS, MESSAGES) else {}
    async with client_of(writing(ANSWER)) as client:
        unasked = await client.post(path, json={**BODIES[path], **most, "stream": True})
        whole = await client.post(
            path, json={**BODIES[path], **most, "stream_options": {"origins": True}}
        )
    assert "origins" not in unasked.text
    assert (whole.status_code, whole.json()["error"]["param"]) == (400, "stream_options")


async def test_openais_client_hands_them_on() -> None:
    async with sdk_of(writing(ANSWER)) as sdk:
        stream = await sdk.chat.completions.create(
            model="demo",
            messages=[HI],
            stream=True,
            extra_body={"stream_options": {"origins": True}},
        )
        events = [chunk.model_dump() async for chunk in stream]
    assert text_of(tokens_of(events)) == ANSWER
