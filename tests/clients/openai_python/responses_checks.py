"""The Responses API."""

from __future__ import annotations

from typing import Any

import openai
from features import CONTACT_TEXT, MODEL, REVIEW_TEXT, Contact, raises
from openai.types.responses import Response
from shared import RESPONSE_SAVE, SAVE, TEXT_FORMAT, check, client, validate_type


@check("responses", "responses.create")
def _() -> None:
    response = client.responses.create(model=MODEL, input="Hello", temperature=0)
    assert response.output_text
    assert response.status == "completed"
    assert response.usage
    assert response.usage.total_tokens > 0


@check("responses", "instructions, input as items, text.format")
def _() -> None:
    response = client.responses.create(
        model=MODEL,
        instructions="You extract data as JSON.",
        input=[{"role": "user", "content": [{"type": "input_text", "text": CONTACT_TEXT}]}],
        text=TEXT_FORMAT,
        temperature=0,
        max_output_tokens=200,
    )
    assert Contact.model_validate_json(response.output_text).name == "Daniel Okafor"


@check("responses", "parse with a pydantic model")
def _() -> None:
    response = client.responses.parse(
        model=MODEL, input=CONTACT_TEXT, text_format=Contact, temperature=0
    )
    assert isinstance(response.output_parsed, Contact)


@check("responses", "answers have OpenAI's types")
def _() -> None:
    raw = client.responses.with_raw_response.create(
        model=MODEL, input=CONTACT_TEXT, tools=[RESPONSE_SAVE], tool_choice="required"
    )
    validate_type(Response, raw.text)


@check("responses", "an answer as the input of the next")
def _() -> None:
    first = client.responses.create(model=MODEL, input=CONTACT_TEXT, max_output_tokens=30)
    history: Any = [
        {"role": "user", "content": CONTACT_TEXT},
        *[item.model_dump(exclude_none=True) for item in first.output],
        {"role": "user", "content": REVIEW_TEXT},
    ]
    assert client.responses.create(model=MODEL, input=history, max_output_tokens=30).output


@check("responses", "an unknown previous_response_id is a 400 that names it")
def _() -> None:
    refused = None
    try:
        client.responses.create(model=MODEL, input="Hello", previous_response_id="resp_1")
    except openai.BadRequestError as error:
        refused = error
    assert refused is not None, "accepted"
    assert refused.param == "previous_response_id"


@check("responses streamed", "create(stream=True): events and deltas")
def _() -> None:
    text, types, numbers = "", [], []
    final = None
    for event in client.responses.create(
        model=MODEL, input=CONTACT_TEXT, text=TEXT_FORMAT, temperature=0, stream=True
    ):
        types.append(event.type)
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            text += event.delta
        elif event.type == "response.completed":
            final = event.response
    assert types[:2] == ["response.created", "response.in_progress"]
    assert numbers == list(range(len(numbers)))
    assert final is not None
    assert final.output_text == text
    Contact.model_validate_json(text)


@check("responses streamed", "stream() with a pydantic model")
def _() -> None:
    with client.responses.stream(
        model=MODEL, input=CONTACT_TEXT, text_format=Contact, temperature=0
    ) as stream:
        text = "".join(
            event.delta for event in stream if event.type == "response.output_text.delta"
        )
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, Contact)
    assert final.output_text == text


@check("responses tools", "required, strict")
def _() -> None:
    response = client.responses.create(
        model=MODEL,
        input=CONTACT_TEXT,
        tools=[RESPONSE_SAVE],
        tool_choice="required",
        temperature=0,
    )
    call = response.output[0]
    assert call.type == "function_call"
    assert call.name == "save_contact"
    Contact.model_validate_json(call.arguments)


@check("responses tools", "parse: parsed_arguments")
def _() -> None:
    response = client.responses.parse(
        model=MODEL,
        input=CONTACT_TEXT,
        tools=[SAVE],
        tool_choice={"type": "function", "name": "save_contact"},
        temperature=0,
    )
    call = response.output[0]
    assert call.type == "function_call"
    assert isinstance(call.parsed_arguments, Contact)


@check("responses tools", "streamed arguments")
def _() -> None:
    with client.responses.stream(
        model=MODEL,
        input=CONTACT_TEXT,
        tools=[RESPONSE_SAVE],
        tool_choice="required",
        temperature=0,
    ) as stream:
        text = "".join(
            event.delta
            for event in stream
            if event.type == "response.function_call_arguments.delta" and event.output_index == 0
        )
        final = stream.get_final_response()
    call = final.output[0]
    assert call.type == "function_call"
    assert call.arguments == text
    Contact.model_validate_json(text)


@check("responses tools", "a call, its result, an answer")
def _() -> None:
    first = client.responses.create(
        model=MODEL,
        input=CONTACT_TEXT,
        tools=[RESPONSE_SAVE],
        tool_choice="required",
        temperature=0,
    )
    history: Any = [{"role": "user", "content": CONTACT_TEXT}]
    for item in first.output:
        assert item.type == "function_call"
        history += [
            item.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": item.call_id, "output": "saved"},
        ]
    second = client.responses.create(
        model=MODEL, input=history, tools=[RESPONSE_SAVE], tool_choice="none"
    )
    assert second.output_text


@check("responses", "retrieve, input_items.list, input_tokens.count, delete")
def _() -> None:
    first = client.responses.create(model=MODEL, input="Hello", temperature=0)
    second = client.responses.create(
        model=MODEL, input="And now?", previous_response_id=first.id, temperature=0
    )
    kept = client.responses.retrieve(second.id)
    assert kept.output_text == second.output_text
    assert kept.previous_response_id == first.id
    assert [item.type for item in client.responses.input_items.list(second.id)] == ["message"] * 3
    counted = client.responses.input_tokens.count(
        model=MODEL, input="And now?", previous_response_id=first.id
    )
    assert second.usage
    assert counted.input_tokens == second.usage.input_tokens
    client.responses.delete(second.id)
    with raises(openai.NotFoundError):
        client.responses.retrieve(second.id)
