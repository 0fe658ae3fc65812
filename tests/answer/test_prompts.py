from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jinja2
import pytest

from app.answer.formats import ChatFormat, detect
from app.answer.formats.families import PLAIN
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.prompt import Conversation, TemplateInput, opening, template_input, text_length
from app.answer.tools import FunctionTool
from tests.answer import templates
from tests.answer.rendered import render

WEATHER = FunctionTool(
    "weather",
    "Tells the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}}},
)
Message = dict[str, Any]


def call(identity: str = "call_1", city: str = "Ulm") -> Message:
    function = {"name": "weather", "arguments": {"city": city}}
    return {"id": identity, "type": "function", "function": function}


def exchange(*calls: Message) -> list[Message]:
    """A question, calls, their results, an answer, and another question."""
    results = [
        {"role": "tool", "tool_call_id": each["id"], "content": f"rain {number}"}
        for number, each in enumerate(calls)
    ]
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": list(calls)},
        *results,
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Thanks"},
    ]


def prepared(
    template: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[FunctionTool] = (WEATHER,)
) -> TemplateInput:
    return template_input(Conversation(messages, tools), detect(template, ()))


def rendered(template: str, given: TemplateInput) -> str:
    return render(template, given.messages, given.tools)


def test_arguments_are_objects_for_the_template_and_the_request_stays_as_it_was() -> None:
    messages = exchange(call())
    given = prepared(templates.QWEN3, messages)
    assert given.messages[2]["tool_calls"][0]["function"]["arguments"] == {"city": "Ulm"}
    assert given.messages[2]["content"] == ""
    assert messages == exchange(call())
    assert '"arguments": {"city": "Ulm"}}' in rendered(templates.QWEN3, given)


def test_a_result_gets_the_name_of_its_function_where_it_has_none() -> None:
    messages = exchange(call())
    assert '"name": "weather", "content": "rain 0"' in rendered(
        templates.HERMES_2_PRO, prepared(templates.HERMES_2_PRO, messages)
    )
    messages[3]["name"] = "own"
    assert prepared(templates.HERMES_2_PRO, messages).messages[3]["name"] == "own"


def test_fields_that_say_nothing_are_left_out() -> None:
    messages: list[Message] = [
        {"role": "assistant", "content": "a", "tool_calls": [], "name": None}
    ]
    for template in (templates.QWEN3, templates.CHATML):
        assert prepared(template, messages, ()).messages == [{"role": "assistant", "content": "a"}]


def test_templates_that_write_descriptions_without_asking_get_them() -> None:
    given = prepared(templates.HERMES_2_PRO, [], [FunctionTool("bare"), FunctionTool("b", "", {})])
    assert "bare - " in rendered(templates.HERMES_2_PRO, given)


def test_mistral_gets_ids_that_it_takes_the_same_for_call_and_result() -> None:
    given = prepared(templates.MISTRAL_LIST, exchange(call("call_abcdefghijkl"), call("A23456789")))
    first, second = (each["id"] for each in given.messages[2]["tool_calls"])
    assert second == "A23456789"
    assert [message["tool_call_id"] for message in given.messages[3:5]] == [first, second]
    assert f'"id": "{first}"' in rendered(templates.MISTRAL_LIST, given)
    again = prepared(templates.MISTRAL_LIST, exchange(call("call_abcdefghijkl")))
    assert again.messages[2]["tool_calls"][0]["id"] == first
    other = prepared(templates.MISTRAL_LIST, exchange(call("call_abcdefghijkm")))
    assert other.messages[2]["tool_calls"][0]["id"] != first


def test_the_system_message_lists_tools_if_the_template_does_not() -> None:
    given = prepared(templates.CHATML, exchange(call()))
    assert given.tools is None
    system = given.messages[0]["content"]
    assert system.startswith("Be brief.\n\n")
    assert '{"name":"weather","description":"Tells the weather.","parameters":{' in system
    assert PLAIN.heads()[0] in system
    assert prepared(templates.CHATML, exchange(call())[1:]).messages[0]["role"] == "system"
    assert prepared(templates.CHATML, [{"role": "user", "content": "?"}], ()).messages == [
        {"role": "user", "content": "?"}
    ]


def test_functions_are_listed_without_keywords_that_the_mask_enforces() -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "title": "City", "description": "In German."}},
        "required": ["city"],
        "additionalProperties": False,
    }
    asked = Conversation(exchange(), [FunctionTool("weather", "Sun, rain.", parameters)])
    format = detect(templates.CHATML, ())
    system = template_input(asked, format).messages[0]["content"]
    assert system.splitlines()[3] == (
        '{"name":"weather","description":"Sun, rain.","parameters":{"type":"object",'
        '"properties":{"city":{"type":"string","description":"In German."}}}}'
    )
    trained = replace(format, reads_schemas=False)
    whole = {"name": "weather", "description": "Sun, rain.", "parameters": parameters}
    assert template_input(asked, trained).messages[0]["content"].splitlines()[3] == json.dumps(
        whole
    )


def test_calls_in_the_history_are_written_as_the_answer_would_write_them() -> None:
    given = prepared(templates.CHATML, exchange(call(), call("2", "Köln")))
    written = given.messages[2]["content"]
    assert json.loads(written) == {
        "tool_calls": [
            {"name": "weather", "arguments": {"city": "Ulm"}},
            {"name": "weather", "arguments": {"city": "Köln"}},
        ]
    }
    assert "Köln" in written
    assert "tool_calls" not in given.messages[2]


def test_roles_still_alternate_where_results_are_the_users_text() -> None:
    messages = exchange(call(), call("2"))
    del messages[5]  # the answer to the results: the user speaks next
    given = prepared(templates.USER_AND_ASSISTANT, messages)
    assert [each["role"] for each in given.messages] == ["system", "user", "assistant", "user"]
    said = given.messages[-1]["content"]
    assert said == "Result of weather:\nrain 0\n\nResult of weather:\nrain 1\n\nThanks"
    assert "Thanks" in rendered(templates.USER_AND_ASSISTANT, given)


def test_two_messages_of_the_user_stay_two_where_no_result_is_between() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert prepared(templates.CHATML, messages, ()).messages == messages


@pytest.mark.parametrize("name", templates.REAL)
def test_the_real_templates_take_what_is_prepared(name: str) -> None:
    template = templates.REAL[name]
    text = rendered(template, prepared(template, exchange(call())))
    assert '{"city": "Ulm"}' in text
    assert "Tells the weather." in text
    assert "rain 0" in text
    if "llama" in name:
        with pytest.raises(jinja2.TemplateError, match="single tool-calls"):
            rendered(template, prepared(template, exchange(call("1"), call("2"))))


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("<|Assistant|><think>\n", "open"),
        ("<think>\n\n</think>\n\n", "closed"),
        ("<|im_start|>assistant\n", "possible"),
        ("what does <think> mean?<|im_end|>\n<|im_start|>assistant\n", "possible"),
    ],
)
def test_the_end_of_the_prompt_tells_where_the_answer_begins(tail: str, expected: str) -> None:
    assert opening(tail, ReasoningFormat("<think>", "</think>")) == expected


def test_options_reach_the_template_as_they_are() -> None:
    conversation = Conversation([], (), {"enable_thinking": False})
    assert template_input(conversation, ChatFormat(PLAIN)).options == {"enable_thinking": False}


def test_the_length_counts_messages_calls_and_tools() -> None:
    long = Conversation(exchange(call(city="x" * 1000)), [WEATHER])
    short = Conversation(exchange(call()), [FunctionTool("f", "d" * 500, True)])
    assert text_length(long, 10**6) - text_length(Conversation(exchange(call())), 10**6) > 1000
    assert 500 < text_length(short, 10**6) < 1500
    assert text_length(Conversation([]), 10**6) == 0


@pytest.mark.parametrize(
    "conversation",
    [
        Conversation([{"role": "user", "content": ""}] * 500),
        Conversation(exchange(*[call(city="")] * 200)),
        Conversation([*exchange(call()), {"role": "user", "content": "", "name": "n" * 5000}]),
        Conversation([], [FunctionTool("f", None, {"enum": [[]] * 1000})]),
    ],
)
def test_many_short_parts_count_as_a_long_conversation(conversation: Conversation) -> None:
    assert text_length(conversation, 4096) >= 4096


def test_a_length_is_counted_no_further_than_is_asked() -> None:
    messages = [{"role": "user", "content": "x" * 10}] * 1000
    assert text_length(Conversation(messages), 100) < 200
