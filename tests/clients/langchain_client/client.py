"""langchain-openai: ChatOpenAI over chat completions and over responses, and OpenAI."""

from __future__ import annotations

import json
from typing import Any

import openai
from features import (
    BASE_URL,
    CARD,
    CARD_TEXT,
    CONTACT_TEXT,
    MODEL,
    OVERLONG_TEXT,
    REVIEW_TEXT,
    UNSUPPORTED_SCHEMA,
    Card,
    Checks,
    Contact,
    Review,
    picture_base64,
    picture_url,
    raises,
)
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

check = Checks()
common: dict[str, Any] = {
    "model": MODEL,
    "base_url": BASE_URL,
    "api_key": "none",
    "temperature": 0,
}
chat = ChatOpenAI(**common)
responses = ChatOpenAI(**common, use_responses_api=True)


@tool
def save_contact(name: str, email: str, phone: str) -> str:
    """Saves a contact."""
    return f"saved {name}, {email}, {phone}"


def whole(model: Any, question: Any) -> AIMessage:
    """The sum of the streamed chunks."""
    total = None
    for chunk in model.stream(question):
        total = chunk if total is None else total + chunk
    assert total is not None
    return total


@check("text", "invoke")
def _() -> None:
    message = chat.invoke("Hello")
    assert message.text
    assert message.usage_metadata


@check("text", "batch")
def _() -> None:
    answers = chat.batch(["Hello", CONTACT_TEXT, REVIEW_TEXT])
    assert all(answer.text for answer in answers)


@check("stream", "stream")
def _() -> None:
    assert whole(chat, CONTACT_TEXT).text == chat.invoke(CONTACT_TEXT).text


@check("json_schema", "with_structured_output: json_schema")
def _() -> None:
    contact = chat.with_structured_output(Contact, method="json_schema").invoke(CONTACT_TEXT)
    assert isinstance(contact, Contact)
    assert contact.name == "Daniel Okafor"


@check("json_schema", "with_structured_output: json_schema, strict, include_raw")
def _() -> None:
    structured = chat.with_structured_output(
        Review, method="json_schema", strict=True, include_raw=True
    )
    answer: Any = structured.invoke(REVIEW_TEXT)
    assert answer["parsing_error"] is None
    assert answer["parsed"].rating == 2


@check("json_object", "with_structured_output: json_mode")
def _() -> str:
    structured = chat.with_structured_output(Contact, method="json_mode", include_raw=True)
    keys = ", ".join(Contact.model_fields)
    answer: Any = structured.invoke(f"{CONTACT_TEXT} Reply in JSON. Keys: {keys}.")
    assert isinstance(json.loads(answer["raw"].text), dict)
    return "the model kept to the keys" if answer["parsed"] else "the model chose other keys"


@check("stream", "with_structured_output: streamed")
def _() -> None:
    structured = chat.with_structured_output(Contact.model_json_schema(), method="json_schema")
    parts: list[Any] = list(structured.stream(CONTACT_TEXT))
    assert len(parts) > 2
    assert parts[-1] == structured.invoke(CONTACT_TEXT)


@check("tools", "with_structured_output: function_calling")
def _() -> None:
    structured = chat.with_structured_output(Contact, method="function_calling")
    assert isinstance(structured.invoke(CONTACT_TEXT), Contact)


@check("tools", "with_structured_output: function_calling, strict")
def _() -> None:
    structured = chat.with_structured_output(Review, method="function_calling", strict=True)
    assert isinstance(structured.invoke(REVIEW_TEXT), Review)


@check("tools", "bind_tools, tool_choice any")
def _() -> None:
    message = chat.bind_tools([save_contact], tool_choice="any").invoke(CONTACT_TEXT)
    assert not message.invalid_tool_calls
    Contact.model_validate(message.tool_calls[0]["args"])


@check("tools", "bind_tools, auto")
def _() -> str:
    message = chat.bind_tools([save_contact]).invoke(CONTACT_TEXT)
    for call in message.tool_calls:
        Contact.model_validate(call["args"])
    assert message.tool_calls or message.text
    return "called" if message.tool_calls else "the model answered in text"


@check("tools streamed", "bind_tools: the chunks make the call")
def _() -> None:
    model = chat.bind_tools([save_contact], tool_choice="save_contact", strict=True)
    streamed = whole(model, CONTACT_TEXT)
    assert len(streamed.tool_calls) == 1
    assert streamed.tool_calls[0]["args"] == model.invoke(CONTACT_TEXT).tool_calls[0]["args"]
    assert streamed.response_metadata["finish_reason"] == "tool_calls"


def loop(model: ChatOpenAI) -> None:
    messages: list[Any] = [HumanMessage(CONTACT_TEXT)]
    first = model.bind_tools([save_contact], tool_choice="any").invoke(messages)
    results = [save_contact.invoke(call) for call in first.tool_calls]
    assert all(isinstance(result, ToolMessage) for result in results)
    history = [*messages, first, *results]
    assert model.bind_tools([save_contact], tool_choice="none").invoke(history).text


@check("tool loop", "a call, its result, an answer")
def _() -> None:
    loop(chat)


@check("completions", "OpenAI: invoke and stream")
def _() -> None:
    model = OpenAI(**common, max_tokens=12)
    assert "".join(model.stream("Hello")) == model.invoke("Hello")


@check("responses", "use_responses_api: invoke")
def _() -> None:
    message = responses.invoke("Hello")
    assert message.text
    assert message.usage_metadata


@check("responses", "use_responses_api: with_structured_output")
def _() -> None:
    structured = responses.with_structured_output(Contact, method="json_schema")
    assert isinstance(structured.invoke(CONTACT_TEXT), Contact)


@check("responses streamed", "use_responses_api: stream")
def _() -> None:
    assert whole(responses, CONTACT_TEXT).text == responses.invoke(CONTACT_TEXT).text


@check("responses tools", "use_responses_api: bind_tools, whole and streamed")
def _() -> None:
    model = responses.bind_tools([save_contact], tool_choice="save_contact", strict=True)
    (call,) = model.invoke(CONTACT_TEXT).tool_calls
    Contact.model_validate(call["args"])
    assert whole(model, CONTACT_TEXT).tool_calls[0]["args"] == call["args"]


@check("responses tools", "use_responses_api: a call, its result, an answer")
def _() -> None:
    loop(responses)


def seeing(part: dict[str, Any]) -> list[Any]:
    return [HumanMessage([{"type": "text", "text": CARD_TEXT}, part])]


@check("images", "an image block, with_structured_output")
def _() -> None:
    block = {"type": "image", "base64": picture_base64(), "mime_type": "image/png"}
    structured = chat.with_structured_output(Card, method="json_schema")
    assert structured.invoke(seeing(block)) == CARD


@check("images", "image_url, with_structured_output")
def _() -> None:
    block = {"type": "image_url", "image_url": {"url": picture_url()}}
    structured = chat.with_structured_output(Card, method="json_schema")
    assert structured.invoke(seeing(block)) == CARD


@check("images", "use_responses_api: an image block, with_structured_output")
def _() -> None:
    block = {"type": "image", "base64": picture_base64(), "mime_type": "image/png"}
    structured = responses.with_structured_output(Card, method="json_schema")
    assert structured.invoke(seeing(block)) == CARD


@check(
    "errors", "a strict schema that cannot be enforced is a 400; langchain's default is not strict"
)
def _() -> None:
    schema = {"title": "numbers", **UNSUPPORTED_SCHEMA}
    relaxed = chat.with_structured_output(schema, method="json_schema").invoke(CONTACT_TEXT)
    assert isinstance(relaxed, dict)
    assert isinstance(relaxed["numbers"], list)
    with raises(openai.BadRequestError) as failed:
        chat.with_structured_output(schema, method="json_schema", strict=True).invoke(CONTACT_TEXT)
    assert "uniqueItems" in failed.error.message


@check("errors", "a prompt that is too long is a ContextOverflowError")
def _() -> None:
    with raises(ContextOverflowError):
        chat.invoke(OVERLONG_TEXT)


check.run()
