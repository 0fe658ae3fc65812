"""``confidence`` and ``choices``: probabilities of an answer's values, and exact choices."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from app.core.request import ChoiceOptions
from tests.http.harness import (
    CHAT,
    COMPLETIONS,
    HI,
    RESPONSES,
    chat,
    error_of,
    events,
    post,
    sdk_of,
)
from tests.serving.fakes import Bench, FakeEngine

SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"a": {}}}},
}
ANSWER = b'{"a": "xy"}'
TEXT = {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}}


def answering() -> Bench:
    return Bench(FakeEngine(lambda request: [b'{"a"', b': "x', b'y"}']))


async def test_a_whole_answer_has_the_list_of_its_values() -> None:
    response = await post(answering(), CHAT, chat(response_format=SCHEMA, confidence=True))
    (choice,) = response.json()["choices"]
    assert choice["message"]["content"] == ANSWER.decode()
    assert choice["logprobs"] is None, "log-probabilities were not requested"
    root, value = choice["confidence"]
    assert root == {"pointer": "", "probability": value["probability"]}
    assert value == {
        "pointer": "/a",
        "value": "xy",
        "probability": pytest.approx(0.6065, abs=1e-4),  # two tokens of exp(-0.25) each
        "tokens": 2,
        "least_likely": {"token": ': "x', "probability": pytest.approx(0.7788, abs=1e-4)},
    }


async def test_a_stream_has_the_confidence_in_the_last_chunk_of_a_choice() -> None:
    body = chat(response_format=SCHEMA, confidence=True, stream=True, n=2)
    response = await post(answering(), CHAT, body)
    choices = [each for event in events(response.text)[:-1] for each in event["choices"]]
    told = [each for each in choices if "confidence" in each]
    assert [each["index"] for each in told] == [0, 1]
    assert all(each["finish_reason"] == "stop" for each in told)
    assert [each["pointer"] for each in told[0]["confidence"]] == ["", "/a"]


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_have_it_beside_their_output(stream: bool) -> None:
    body = {"model": "demo", "input": "hi", "text": TEXT, "confidence": True, "stream": stream}
    response = await post(answering(), RESPONSES, body)
    answer = response.json() if not stream else json.loads(response.text.rsplit("data: ", 1)[1])
    if stream:
        answer = answer["response"]
    assert [each["pointer"] for each in answer["confidence"]] == ["", "/a"]


async def test_confidence_is_only_reported_on_request() -> None:
    bench = answering()
    response = await post(bench, CHAT, chat(response_format=SCHEMA))
    assert "confidence" not in response.json()["choices"][0]
    assert bench.engine.added[0].choices == ChoiceOptions()
    assert bench.engine.added[0].options.sampling.logprobs is None


async def test_the_engine_is_told_what_to_do_about_choices() -> None:
    bench = answering()
    await post(bench, CHAT, chat(response_format=SCHEMA, confidence=True, choices="exact"))
    assert bench.engine.added[0].choices == ChoiceOptions(report=True, exact=True)
    assert bench.engine.added[0].options.sampling.logprobs == 0


async def test_a_server_may_draw_exactly_where_a_request_does_not_say() -> None:
    bench = answering()
    bench.service.config = replace(bench.service.config, exact_choices=True)
    await post(bench, CHAT, chat(response_format=SCHEMA))
    await post(bench, CHAT, chat(response_format=SCHEMA, choices="tokens"))
    await post(bench, CHAT, chat())
    options = [each.choices for each in bench.engine.added]
    assert options == [ChoiceOptions(exact=True), ChoiceOptions(), None]


@pytest.mark.parametrize(
    "fields",
    [
        {"confidence": True},
        {"choices": "exact"},
        {"spans": True, "response_format": {"type": "choice", "choices": ["a"]}},
    ],
)
async def test_answers_without_json_have_no_values_to_ask_about(fields: dict[str, Any]) -> None:
    error = error_of(await post(Bench(), CHAT, chat(**fields), 400))
    assert error["param"] == next(iter(fields))
    assert "json_schema" in error["message"]


@pytest.mark.parametrize("fields", [{"confidence": False}, {"choices": "tokens"}])
async def test_neutral_values_are_accepted_with_any_answer(fields: dict[str, Any]) -> None:
    await post(Bench(), CHAT, chat(**fields))


async def test_other_ways_to_choose_are_refused() -> None:
    body = chat(response_format=SCHEMA, choices="best")
    assert error_of(await post(Bench(), CHAT, body, 400))["param"] == "choices"


CHOICE = {"type": "choice", "choices": ["good", "bad"]}


async def test_a_text_that_is_no_json_is_one_value() -> None:
    bench = Bench(FakeEngine(lambda request: [b"go", b"od"]))
    response = await post(bench, CHAT, chat(response_format=CHOICE, confidence=True))
    (value,) = response.json()["choices"][0]["confidence"]
    assert (value["pointer"], value["value"], value["tokens"]) == ("", "good", 2)
    assert bench.engine.added[0].choices == ChoiceOptions(report=True, is_text=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_completions_have_it_in_each_choice(stream: bool) -> None:
    bench = Bench(FakeEngine(lambda request: [b"go", b"od"]))
    body = {"model": "demo", "prompt": ["a", "b"], "n": 2, "guided_choice": ["good", "bad"]}
    asked = body | {"confidence": True, "choices": "exact", "stream": stream}
    response = await post(bench, COMPLETIONS, asked)
    if stream:
        choices = [each for event in events(response.text)[:-1] for each in event["choices"]]
        choices = [each for each in choices if each["finish_reason"]]
    else:
        choices = response.json()["choices"]
    assert [each["index"] for each in choices] == [0, 1, 2, 3]
    assert [each["confidence"][0]["value"] for each in choices] == ["good"] * 4
    assert bench.engine.added[0].choices == ChoiceOptions(report=True, exact=True, is_text=True)


async def test_the_sdk_hands_it_on() -> None:
    async with sdk_of(answering()) as client:
        completion = await client.chat.completions.create(
            model="demo",
            messages=[HI],
            response_format=cast(Any, SCHEMA),
            extra_body={"confidence": True, "choices": "exact"},
        )
    told = completion.choices[0].model_extra
    assert told is not None
    assert [each["pointer"] for each in told["confidence"]] == ["", "/a"]
