"""The Responses API: whole responses."""

from __future__ import annotations

from typing import Any, cast

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from app.answer.language import answer
from app.answer.tools import FunctionTool, ToolUse
from app.core.errors import UnsupportedSchema
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from tests.http.harness import RESPONSES, client_of, error_of, post, sdk_of, writing
from tests.http.responses import (
    CALL,
    CITY,
    CLOCK,
    PARIS,
    REASONER,
    WEATHER,
    WITH_TOOLS,
    asking,
    response_of,
)
from tests.serving.fakes import Bench


class Person(BaseModel):
    name: str
    age: int


class City(BaseModel):
    city: str


ADA = '{"name": "Ada", "age": 36}'


async def test_a_response_is_a_message_with_text() -> None:
    response = await response_of(Bench())
    assert response["id"].startswith("resp_")
    assert (response["object"], response["status"]) == ("response", "completed")
    assert (response["error"], response["incomplete_details"]) == (None, None)
    (message,) = response["output"]
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []},
        ],
    }
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (2, 2, 4)
    assert usage["input_tokens_details"]["cached_tokens"] == 2
    assert usage["output_tokens_details"]["reasoning_tokens"] == 0
    assert usage["output_tokens_details"]["leapt_tokens"] == 1


async def test_an_answer_that_is_cut_is_incomplete() -> None:
    response = await response_of(writing("one two three"), max_output_tokens=2)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    (message,) = response["output"]
    assert message["status"] == "incomplete"
    assert message["content"][0]["text"] == "one tw"
    assert (response["max_output_tokens"], response["completed_at"]) == (2, None)


async def test_an_answer_without_text_is_an_empty_message() -> None:
    (message,) = (await response_of(writing("")))["output"]
    assert message["content"][0]["text"] == ""


async def test_calls_are_items_beside_the_message() -> None:
    bench = writing(f"Let me see.\n{CALL}\n{CALL}", WITH_TOOLS)
    response = await response_of(bench, tools=[WEATHER, CLOCK])
    message, *calls = response["output"]
    assert message["content"][0]["text"] == "Let me see."
    assert response["status"] == "completed"
    assert len({call["call_id"] for call in calls}) == 2
    for call in calls:
        assert call.pop("id").startswith("fc_")
        assert call.pop("call_id").startswith("call_")
        assert call == {
            "type": "function_call",
            "status": "completed",
            "name": "weather",
            "arguments": PARIS,
        }


async def test_a_call_that_is_cut_is_incomplete() -> None:
    bench = writing(CALL, WITH_TOOLS, size=30)
    response = await response_of(bench, tools=[WEATHER], max_output_tokens=2)
    (call,) = response["output"]
    assert (call["type"], call["status"]) == ("function_call", "incomplete")
    assert PARIS.startswith(call["arguments"])
    assert response["status"] == "incomplete"


async def test_reasoning_is_an_item_before_the_message() -> None:
    bench = writing("<think>\nA lamp.\n</think>\n\nIt is a lamp.", REASONER)
    response = await response_of(bench, include=["reasoning.encrypted_content"])
    reasoning, message = response["output"]
    assert reasoning.pop("id").startswith("rs_")
    assert reasoning == {
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "A lamp."}],
        "encrypted_content": None,
    }
    assert message["content"][0]["text"] == "It is a lamp."
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


async def test_log_probabilities_are_those_of_the_text() -> None:
    bench = writing("<think>\nA lamp.\n</think>\n\nHéllo", REASONER, size=1)
    include = ["message.output_text.logprobs"]
    response = await response_of(bench, include=include, top_logprobs=2)
    part = response["output"][1]["content"][0]
    data = [byte for entry in part["logprobs"] for byte in entry["bytes"]]
    assert bytes(data).decode() == part["text"] == "Héllo"
    assert [len(entry["top_logprobs"]) for entry in part["logprobs"]] == [2] * 6
    assert bench.engine.added[0].options.sampling.logprobs == 2
    assert response["top_logprobs"] == 2


async def test_top_log_probabilities_ask_for_those_of_the_text_too() -> None:
    response = await response_of(Bench(), top_logprobs=1)
    entries = response["output"][0]["content"][0]["logprobs"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 2]  # two from the fake
    response = await response_of(Bench(), include=["message.output_text.logprobs"])
    entries = response["output"][0]["content"][0]["logprobs"]
    assert [entry["token"] for entry in entries] == ["Hel", "lo"]


async def test_a_response_says_what_was_asked() -> None:
    asked = {
        "instructions": "Be brief.",
        "max_output_tokens": 90,
        "max_tool_calls": 3,
        "metadata": {"who": "me"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "key",
        "safety_identifier": "someone",
        "temperature": 0.5,
        "tool_choice": {"type": "function", "name": "weather"},
        "tools": [{**WEATHER, "description": None}],
        "top_p": 0.25,
        "truncation": "disabled",
        "user": "me",
    }
    response = await response_of(writing(CALL, WITH_TOOLS), **asked)
    assert {name: response[name] for name in asked} == asked
    assert response["store"] is False
    assert response["model"] == "demo"


async def test_settings_that_were_not_asked_for_have_their_defaults() -> None:
    nothing: dict[str, Any] = {
        "store": None,
        "temperature": None,
        "tools": None,
        "stream": None,
        "metadata": None,
        "text": None,
        "background": False,
        "previous_response_id": None,
        "include": [],
        "max_tool_calls": None,
    }
    response = await response_of(Bench(), **nothing)
    assert (response["temperature"], response["top_p"]) == (1.0, 1.0)
    assert (response["tools"], response["tool_choice"]) == ([], "auto")
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert (response["store"], response["metadata"]) == (False, {})
    assert response["parallel_tool_calls"] is True


@pytest.mark.parametrize(
    ("fields", "spec"),
    [
        ({"text": {"format": {"type": "text"}}}, None),
        ({"text": {"format": {"type": "json_object"}}}, JsonObject()),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": CITY}}},
            JsonSchema(CITY, close_objects=True),
        ),
        (
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "x",
                        "schema": CITY,
                        "strict": False,
                        "whitespace": "compact",
                    }
                }
            },
            JsonSchema(CITY, close_objects=False, whitespace="compact", relax=True),
        ),
        ({"text": {"format": {"type": "regex", "pattern": "a+"}}}, Regex("a+")),
        ({"text": {"format": {"type": "choice", "choices": ["a", "b"]}}}, Choice(("a", "b"))),
        (
            {"text": {"format": {"type": "grammar", "grammar": "start: /a/"}}},
            Grammar("start: /a/", "auto"),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"guided_choice": ["a"]}, Choice(("a",))),
    ],
)
async def test_every_way_to_name_a_constraint(fields: dict[str, Any], spec: Any) -> None:
    bench = Bench()
    answer = await post(bench, RESPONSES, asking(**fields))
    assert bench.compiled == ([] if spec is None else [spec])
    asked = fields.get("text", {}).get("format", {"type": "text"})
    assert answer.json()["text"]["format"].items() >= asked.items()


async def test_tools_are_shown_to_the_model_and_constrain_it() -> None:
    bench = writing(CALL, WITH_TOOLS)
    await response_of(bench, tools=[WEATHER, CLOCK], tool_choice="required")
    (shown,) = bench.tokenizer.tools
    assert shown is not None
    assert [tool["function"]["name"] for tool in shown] == ["weather", "clock"]
    assert len(bench.compiled) == 1


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("auto", ["weather", "clock"]),
        ("none", None),
        ({"type": "function", "name": "clock"}, ["clock"]),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "weather"}],
            },
            ["weather"],
        ),
    ],
)
async def test_a_choice_of_tools_says_which_may_be_called(
    choice: Any, names: list[str] | None
) -> None:
    bench = writing("{}", WITH_TOOLS)
    response = await response_of(bench, tools=[WEATHER, CLOCK], tool_choice=choice)
    assert response["tool_choice"] == choice
    if names is None:
        assert bench.compiled == []
        return
    tools = {
        "weather": FunctionTool("weather", None, CITY, True),
        "clock": FunctionTool("clock", "What time it is.", None, None),
    }
    use = ToolUse(
        tuple(tools[name] for name in names),
        "auto" if choice == "auto" else "required",
        most_calls=1 if isinstance(choice, dict) and choice["type"] == "function" else 16,
    )
    assert bench.compiled == [answer(None, use, WITH_TOOLS.tools)]


async def test_the_effort_reaches_the_chat_template() -> None:
    bench = writing("<think>\nA lamp.\n</think>\n\nYes", REASONER)
    response = await response_of(bench, reasoning={"effort": "low", "summary": "auto"})
    assert bench.tokenizer.options == [{"enable_thinking": True}]
    assert response["reasoning"] == {"effort": "low", "summary": None}


async def test_the_sdk_creates_a_response() -> None:
    async with sdk_of(Bench()) as client:
        response = await client.responses.create(model="demo", input="hi", store=False)
    assert response.output_text == "Hello"
    Response.model_validate(response.to_dict(), strict=True)


async def test_the_sdk_parses_into_a_pydantic_model() -> None:
    bench = writing(ADA)
    async with sdk_of(bench) as client:
        response = await client.responses.parse(model="demo", input="hi", text_format=Person)
    assert response.output_parsed == Person(name="Ada", age=36)
    (spec,) = bench.compiled
    assert isinstance(spec, JsonSchema)
    assert spec.close_objects


async def test_the_sdk_parses_the_arguments_of_a_call() -> None:
    async with sdk_of(writing(CALL, WITH_TOOLS)) as client:
        response = await client.responses.parse(
            model="demo",
            input="hi",
            tools=[openai.pydantic_function_tool(City, name="weather")],
            tool_choice="required",
        )
    (call,) = response.output
    assert call.type == "function_call"
    assert call.parsed_arguments == City(city="Paris")


async def test_the_output_goes_back_as_history() -> None:
    text = f"<think>\nA lamp.\n</think>\n\nLet me see.\n{CALL}"
    bench = writing(text, REASONER)
    async with sdk_of(bench) as client:
        first = await client.responses.create(model="demo", input="hi", tools=[cast(Any, WEATHER)])
        call = first.output[-1]
        assert call.type == "function_call"
        await client.responses.create(
            model="demo",
            tools=[cast(Any, WEATHER)],
            input=[
                {"role": "user", "content": "hi"},
                *cast(Any, first.output),
                {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."},
            ],
        )
    user, answer, tool = bench.tokenizer.seen[1]
    assert user == {"role": "user", "content": "hi"}
    assert (answer["content"], answer["reasoning_content"]) == ("Let me see.", "A lamp.")
    (made,) = answer["tool_calls"]
    assert made["id"] == call.call_id == tool["tool_call_id"]
    assert (tool["role"], tool["content"]) == ("tool", "Rain.")


async def test_the_sdk_raises_its_own_errors() -> None:
    bench = Bench()
    async with sdk_of(bench) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.responses.create(model="x", input="hi")
        assert missing.value.code == "model_not_found"
        bench.compile_error = UnsupportedSchema("format", "/a")
        with pytest.raises(openai.BadRequestError) as bad:
            await client.responses.create(
                model="demo", input="hi", text={"format": {"type": "json_object"}}
            )
        assert (bad.value.code, bad.value.param) == ("unsupported_schema", "text.format")


async def test_a_name_of_the_schemas_own_is_not_taken_for_a_field() -> None:
    bench = Bench()
    bench.compile_error = UnsupportedSchema("format", "/properties/max_tokens")
    async with client_of(bench) as client:
        text = {"format": {"type": "json_object"}}
        refused = await client.post(RESPONSES, json={"model": "demo", "input": "hi", "text": text})
    error = refused.json()["error"]
    assert "at /properties/max_tokens cannot be enforced" in error["message"]
    assert error["param"] == "text.format"


async def test_a_server_without_a_store_keeps_no_response() -> None:
    async with sdk_of(Bench()) as client:
        made = await client.responses.create(model="demo", input="hi")
        for go_back in (
            client.responses.retrieve,
            client.responses.delete,
            client.responses.cancel,
            client.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError, match="there is no response"):
                await cast(Any, go_back)(made.id)


async def test_errors_name_the_fields_of_this_endpoint() -> None:
    async def refused(bench: Bench, **fields: Any) -> tuple[str | None, str]:
        error = error_of(await post(bench, RESPONSES, asking(**fields), 400))
        return error["param"], error["message"]

    bench = Bench(context=50, clip_max_tokens=False)
    param, message = await refused(bench, max_output_tokens=100)
    assert param == "max_output_tokens"
    assert "100 in max_output_tokens" in message
    assert "lower max_output_tokens" in message
    assert (await refused(Bench(context=1), input="long"))[0] == "input"
    fields = {"text": {"format": {"type": "json_object"}}, "regex": "a"}
    _, message = await refused(Bench(), **fields)
    assert message.startswith("text.format and regex are given")
