"""The anthropic package: messages, streams, tools, schemas, token counts and errors."""

from __future__ import annotations

import json
from typing import Any

import anthropic
from anthropic.types import Message
from features import (
    BASE_URL,
    CARD,
    CARD_TEXT,
    CONTACT_TEXT,
    MODEL,
    REVIEW_TEXT,
    Card,
    Checks,
    Contact,
    Review,
    picture_base64,
)

check = Checks()
client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key="none")
create = client.messages.create
GREEDY = {"temperature": 0}
"""The package no longer has a parameter for it; the server accepts it."""

CONTACT: list[Any] = [{"role": "user", "content": CONTACT_TEXT}]
REVIEW: list[Any] = [{"role": "user", "content": REVIEW_TEXT}]
SAVE: Any = {
    "name": "save_contact",
    "description": "Save a contact",
    "input_schema": Contact.model_json_schema(),
    "strict": True,
}
FORMAT: Any = {"format": {"type": "json_schema", "schema": Contact.model_json_schema()}}


def text_of(message: Message) -> str:
    return "".join([block.text for block in message.content if block.type == "text"])


@check("messages", "messages.create")
def _() -> None:
    message = create(
        model=MODEL,
        max_tokens=60,
        extra_body=GREEDY,
        system="Be short.",
        messages=[{"role": "user", "content": "Hello"}],
    )
    assert text_of(message)
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 0
    assert message.usage.output_tokens > 0


@check("messages", "stop_sequences")
def _() -> None:
    message = create(
        model=MODEL, max_tokens=60, extra_body=GREEDY, messages=CONTACT, stop_sequences=["a", "o"]
    )
    assert message.stop_reason == "stop_sequence"
    assert message.stop_sequence in ("a", "o")
    assert not set("ao") & set(text_of(message))


@check("messages", "output_config with a schema")
def _() -> None:
    message = create(
        model=MODEL, max_tokens=200, extra_body=GREEDY, messages=CONTACT, output_config=FORMAT
    )
    assert Contact.model_validate_json(text_of(message)).name == "Daniel Okafor"


@check("messages", "messages.parse with a pydantic model")
def _() -> None:
    message = client.messages.parse(
        model=MODEL, max_tokens=200, extra_body=GREEDY, messages=REVIEW, output_format=Review
    )
    parsed = message.parsed_output
    assert parsed is not None
    assert (parsed.product, parsed.rating) == ("Greenford lamp", 2)


@check("messages", "count_tokens")
def _() -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=CONTACT).input_tokens
    usage = create(model=MODEL, max_tokens=1, messages=CONTACT).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@check("messages", "AsyncAnthropic")
async def _() -> None:
    async with anthropic.AsyncAnthropic(base_url=client.base_url, api_key="none") as own:
        message = await own.messages.create(
            model=MODEL, max_tokens=20, messages=[{"role": "user", "content": "Hello"}]
        )
        assert message.role == "assistant"


@check("messages streamed", "messages.stream")
def _() -> None:
    with client.messages.stream(
        model=MODEL, max_tokens=200, extra_body=GREEDY, messages=CONTACT, output_config=FORMAT
    ) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 1
    assert "".join(pieces) == text_of(final)
    assert Contact.model_validate_json(text_of(final)).name == "Daniel Okafor"
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 0


@check("messages streamed", "create(stream=True)")
def _() -> None:
    types = [
        event.type
        for event in create(
            model=MODEL, max_tokens=20, messages=[{"role": "user", "content": "Hello"}], stream=True
        )
    ]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]


@check("messages tools", "a call and its result")
def _() -> None:
    first = create(
        model=MODEL,
        max_tokens=200,
        extra_body=GREEDY,
        messages=CONTACT,
        tools=[SAVE],
        tool_choice={"type": "tool", "name": "save_contact"},
    )
    assert first.stop_reason == "tool_use"
    [call] = [block for block in first.content if block.type == "tool_use"]
    assert Contact.model_validate(call.input).name == "Daniel Okafor"
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "saved"}
    turns: list[Any] = [
        *CONTACT,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = create(model=MODEL, max_tokens=60, messages=turns, tools=[SAVE])
    assert second.role == "assistant"


@check("messages tools", "streamed arguments")
def _() -> None:
    with client.messages.stream(
        model=MODEL,
        max_tokens=200,
        extra_body=GREEDY,
        messages=CONTACT,
        tools=[SAVE],
        tool_choice={"type": "any"},
    ) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    [call] = [block for block in final.content if block.type == "tool_use"]
    assert json.loads("".join(parts)) == call.input
    assert Contact.model_validate(call.input)


@check("images", "an image block, messages.parse with a pydantic model")
def _() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": picture_base64()}
    content: list[Any] = [
        {"type": "image", "source": source},
        {"type": "text", "text": CARD_TEXT},
    ]
    message = client.messages.parse(
        model=MODEL,
        max_tokens=200,
        extra_body=GREEDY,
        messages=[{"role": "user", "content": content}],
        output_format=Card,
    )
    assert message.parsed_output == CARD


@check("errors", "typed errors")
def _() -> None:
    for kind, fields in (
        (anthropic.NotFoundError, {"model": "other"}),
        (anthropic.BadRequestError, {"extra_body": {"temperature": 9}}),
    ):
        raised = None
        try:
            create(**{"model": MODEL, "max_tokens": 5, "messages": CONTACT, **fields})
        except anthropic.APIStatusError as error:
            raised = error
        assert type(raised) is kind
        assert raised.body["type"] == "error"  # type: ignore[index]


check.run()
