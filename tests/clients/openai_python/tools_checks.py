"""Chat completions with tools."""

from __future__ import annotations

import json
from typing import Any

from features import MODEL, Contact, Review
from openai.types.chat import ChatCompletion
from shared import CONTACT, RATE, REVIEW, SAVE, chat, check, only_call, validate_type


@check("tools", "strict, tool_choice required")
def _() -> None:
    completion = chat.create(
        model=MODEL, messages=CONTACT, tools=[SAVE], tool_choice="required", temperature=0
    )
    choice = completion.choices[0]
    function = only_call(choice.message)
    assert function.name == "save_contact"
    Contact.model_validate_json(function.arguments)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content in (None, "")


@check("tools", "tool_choice by name, two tools")
def _() -> None:
    completion = chat.create(
        model=MODEL,
        messages=REVIEW,
        tools=[SAVE, RATE],
        tool_choice={"type": "function", "function": {"name": "rate"}},
        temperature=0,
    )
    function = only_call(completion.choices[0].message)
    assert function.name == "rate"
    Review.model_validate_json(function.arguments)


@check("tools", "not strict")
def _() -> None:
    tool: Any = {
        "type": "function",
        "function": {
            "name": "save_contact",
            "description": "Saves a contact.",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "email": {"type": "string"}},
                "required": ["name"],
            },
        },
    }
    completion = chat.create(
        model=MODEL, messages=CONTACT, tools=[tool], tool_choice="required", temperature=0
    )
    arguments = json.loads(only_call(completion.choices[0].message).arguments)
    assert isinstance(arguments["name"], str)


@check("tools", "without parameters")
def _() -> None:
    tool: Any = {"type": "function", "function": {"name": "list_contacts"}}
    completion = chat.create(
        model=MODEL, messages=CONTACT, tools=[tool], tool_choice="required", temperature=0
    )
    assert json.loads(only_call(completion.choices[0].message).arguments) == {}


@check("tools", "tool_choice auto: text or a valid call")
def _() -> str:
    completion = chat.create(
        model=MODEL, messages=CONTACT, tools=[SAVE], tool_choice="auto", temperature=0
    )
    choice = completion.choices[0]
    if choice.message.tool_calls:
        Contact.model_validate_json(only_call(choice.message).arguments)
        assert choice.finish_reason == "tool_calls"
        return "called"
    assert choice.message.content
    assert choice.finish_reason == "stop"
    return "the model answered in text"


@check("tools", "tool_choice none, with a response_format")
def _() -> None:
    completion = chat.parse(
        model=MODEL,
        messages=CONTACT,
        tools=[SAVE],
        tool_choice="none",
        response_format=Contact,
        temperature=0,
    )
    assert not completion.choices[0].message.tool_calls
    assert isinstance(completion.choices[0].message.parsed, Contact)


@check("tools", "auto, with a response_format")
def _() -> str:
    completion = chat.parse(
        model=MODEL, messages=CONTACT, tools=[SAVE], response_format=Contact, temperature=0
    )
    message = completion.choices[0].message
    if message.tool_calls:
        assert isinstance(message.tool_calls[0].function.parsed_arguments, Contact)
        return "called"
    assert isinstance(message.parsed, Contact)
    return "the model answered in JSON"


@check("tools", "parse: parsed_arguments")
def _() -> None:
    completion = chat.parse(
        model=MODEL, messages=CONTACT, tools=[SAVE, RATE], tool_choice="required", temperature=0
    )
    assert isinstance(only_call(completion.choices[0].message).parsed_arguments, Contact | Review)


@check("tools", "answers have OpenAI's types")
def _() -> None:
    raw = chat.with_raw_response.create(
        model=MODEL, messages=CONTACT, tools=[SAVE], tool_choice="required"
    )
    validate_type(ChatCompletion, raw.text)


@check("several calls", "parallel_tool_calls: some answer has several")
def _() -> str:
    completion = chat.create(
        model=MODEL,
        messages=CONTACT,
        tools=[SAVE, RATE],
        tool_choice="required",
        parallel_tool_calls=True,
        n=16,
        seed=1,
        temperature=1.3,
        max_tokens=400,
    )
    counts = []
    for choice in completion.choices:
        calls = choice.message.tool_calls or []
        for call in calls:
            kind: Any = Contact if call.function.name == "save_contact" else Review  # type: ignore[union-attr]
            kind.model_validate_json(call.function.arguments)  # type: ignore[union-attr]
        assert len({call.id for call in calls}) == len(calls)
        counts.append(len(calls))
    assert min(counts) >= 1
    if max(counts) < 2:
        return "the model called one function each time"
    return f"up to {max(counts)}"


@check("several calls", "parallel_tool_calls=False: one")
def _() -> None:
    completion = chat.create(
        model=MODEL,
        messages=CONTACT,
        tools=[SAVE, RATE],
        tool_choice="required",
        parallel_tool_calls=False,
        n=8,
        seed=1,
        temperature=1.3,
        max_tokens=400,
    )
    assert all(len(choice.message.tool_calls or []) == 1 for choice in completion.choices)


@check("several calls", "two calls and their results as history")
def _() -> None:
    arguments = ['{"name": "A", "email": "a@b.org", "phone": "1"}', "{}"]
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": text}}
        for i, (name, text) in enumerate(zip(["save_contact", "rate"], arguments, strict=True))
    ]
    history: list[Any] = [
        *CONTACT,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_0", "content": "saved"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "5"}]},
    ]
    completion = chat.create(
        model=MODEL, messages=history, tools=[SAVE, RATE], tool_choice="none", max_tokens=40
    )
    assert completion.choices[0].message.content


def _streamed_calls() -> tuple[dict[int, dict[str, str]], int]:
    """A streamed answer's calls by index, and the number of pieces that their arguments came in."""
    calls: dict[int, dict[str, str]] = {}
    pieces, reasons = 0, []
    for chunk in chat.create(
        model=MODEL,
        messages=CONTACT,
        tools=[SAVE],
        tool_choice="required",
        temperature=0,
        stream=True,
    ):
        for choice in chunk.choices:
            reasons += [choice.finish_reason] if choice.finish_reason else []
            for delta in choice.delta.tool_calls or []:
                function = delta.function
                if delta.index not in calls:
                    assert delta.id
                    assert delta.type == "function"
                    assert function
                    assert function.name
                    calls[delta.index] = {"name": function.name, "arguments": ""}
                else:
                    assert delta.id is None
                    assert function is None or function.name is None
                if function and function.arguments:
                    calls[delta.index]["arguments"] += function.arguments
                    pieces += 1
    assert reasons == ["tool_calls"]
    return calls, pieces


@check("tools streamed", "create(stream=True): the deltas make the call")
def _() -> None:
    # A server that is held up sends what has collected as one piece.
    calls, pieces = next((found for _ in range(5) if (found := _streamed_calls())[1] > 1), ({}, 0))
    assert pieces > 1
    whole = chat.create(
        model=MODEL, messages=CONTACT, tools=[SAVE], tool_choice="required", temperature=0
    )
    sent = [call.function for call in whole.choices[0].message.tool_calls or []]  # type: ignore[union-attr]
    assert [(c["name"], c["arguments"]) for c in calls.values()] == [
        (function.name, function.arguments) for function in sent
    ]
    Contact.model_validate_json(calls[0]["arguments"])


@check("tools streamed", "stream(): parsed_arguments")
def _() -> None:
    with chat.stream(
        model=MODEL, messages=CONTACT, tools=[SAVE], tool_choice="required", temperature=0
    ) as stream:
        deltas = ""
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta" and event.index == 0:
                deltas += event.arguments_delta
        final = stream.get_final_completion()
    function = only_call(final.choices[0].message)
    assert deltas == function.arguments
    assert isinstance(function.parsed_arguments, Contact)


@check("tool loop", "a call, its result, an answer")
def _() -> None:
    first = chat.create(
        model=MODEL, messages=CONTACT, tools=[SAVE], tool_choice="required", temperature=0
    )
    message = first.choices[0].message
    results: list[Any] = [
        {"role": "tool", "tool_call_id": call.id, "content": "saved as number 7"}
        for call in message.tool_calls or []
    ]
    second = chat.create(
        model=MODEL, messages=[*CONTACT, message, *results], tools=[SAVE], tool_choice="none"
    )
    assert second.choices[0].message.content
