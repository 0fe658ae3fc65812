"""Chat completions: text, JSON, streams."""

from __future__ import annotations

import json

import openai
from features import BASE_URL, CONTACT_TEXT, MODEL, Contact, Review
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from shared import CONTACT, CONTACT_FORMAT, REVIEW, chat, check, validate_type


@check("text", "chat.completions.create")
def _() -> None:
    completion = chat.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], temperature=0
    )
    assert completion.choices[0].message.content
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage
    assert completion.usage.total_tokens > 0


@check("text", "n, stop, seed, logprobs, max_completion_tokens")
def _() -> None:
    completion = chat.create(
        model=MODEL,
        messages=[{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}],
        n=3,
        stop=["zzz", "\n\n\n"],
        seed=7,
        temperature=0.8,
        logprobs=True,
        top_logprobs=2,
        max_completion_tokens=12,
    )
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    for choice in completion.choices:
        assert choice.logprobs
        assert choice.logprobs.content
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


@check("text", "answers have OpenAI's types")
def _() -> None:
    raw = chat.with_raw_response.create(model=MODEL, messages=CONTACT, logprobs=True)
    validate_type(ChatCompletion, raw.text)
    assert raw.headers["x-request-id"]


@check("text", "with_streaming_response")
def _() -> None:
    with chat.with_streaming_response.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}]
    ) as response:
        assert response.parse().choices[0].message.content


@check("text", "AsyncOpenAI")
async def _() -> None:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key="none") as aclient:
        completion = await aclient.chat.completions.create(model=MODEL, messages=CONTACT)
        assert completion.choices[0].message.content


@check("text", "an answer as history")
def _() -> None:
    first = chat.create(model=MODEL, messages=CONTACT, max_tokens=30)
    message = first.choices[0].message
    second = chat.create(
        model=MODEL, messages=[*CONTACT, message, *REVIEW], max_tokens=30, temperature=0
    )
    assert second.choices[0].message.role == "assistant"


# JSON


@check("json_object", "response_format json_object")
def _() -> None:
    completion = chat.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"{CONTACT_TEXT} Reply in JSON."}],
        response_format={"type": "json_object"},
        temperature=0,
    )
    assert isinstance(json.loads(completion.choices[0].message.content or ""), dict)


@check("json_schema", "response_format json_schema")
def _() -> None:
    completion = chat.create(
        model=MODEL, messages=CONTACT, response_format=CONTACT_FORMAT, temperature=0
    )
    contact = Contact.model_validate_json(completion.choices[0].message.content or "")
    assert contact.name == "Daniel Okafor"


@check("json_schema", "parse with a pydantic model")
def _() -> None:
    completion = chat.parse(model=MODEL, messages=REVIEW, response_format=Review, temperature=0)
    parsed = completion.choices[0].message.parsed
    assert isinstance(parsed, Review)
    assert parsed.rating == 2


@check("json_schema", "parse of n choices")
def _() -> None:
    completion = chat.parse(model=MODEL, messages=REVIEW, response_format=Review, n=2, seed=1)
    assert all(isinstance(choice.message.parsed, Review) for choice in completion.choices)


# Streams


@check("stream", "create(stream=True), with usage")
def _() -> None:
    text, usage, reasons = "", None, []
    for chunk in chat.create(
        model=MODEL,
        messages=CONTACT,
        response_format=CONTACT_FORMAT,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    whole = chat.create(
        model=MODEL, messages=CONTACT, response_format=CONTACT_FORMAT, temperature=0
    )
    assert text == whole.choices[0].message.content
    assert reasons == ["stop"]
    assert usage
    assert usage.total_tokens == whole.usage.total_tokens


@check("stream", "stream_options.fields: each completed value, also with stream()")
def _() -> None:
    extra = {"stream_options": {"fields": True}}
    told, text = {}, ""
    for chunk in chat.create(
        model=MODEL,
        messages=CONTACT,
        response_format=CONTACT_FORMAT,
        temperature=0,
        stream=True,
        extra_body=extra,
    ):
        text += chunk.choices[0].delta.content or ""
        for entry in (chunk.choices[0].model_extra or {}).get("fields", ()):
            told[entry["pointer"]] = entry["value"]
    whole = json.loads(text)
    assert told == {"": whole} | {f"/{name}": value for name, value in whole.items()}
    with chat.stream(
        model=MODEL, messages=CONTACT, response_format=Contact, temperature=0, extra_body=extra
    ) as stream:
        assert stream.get_final_completion().choices[0].message.content == text


@check("stream", "stream() with a pydantic model")
def _() -> None:
    for _ in range(5):  # a server that is held up sends what has collected as one piece
        with chat.stream(
            model=MODEL, messages=CONTACT, response_format=Contact, temperature=0
        ) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            message = stream.get_final_completion().choices[0].message
        assert isinstance(message.parsed, Contact)
        assert "".join(deltas) == message.content
        if len(deltas) > 1:
            return
    raise AssertionError("each answer came in one piece")


@check("stream", "chunks have OpenAI's types")
def _() -> None:
    with chat.with_streaming_response.create(
        model=MODEL,
        messages=CONTACT,
        stream=True,
        logprobs=True,
        stream_options={"include_usage": True},
    ) as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        validate_type(ChatCompletionChunk, line.removeprefix("data: "))


@check("stream", "AsyncOpenAI stream()")
async def _() -> None:
    async with (
        openai.AsyncOpenAI(base_url=BASE_URL, api_key="none") as aclient,
        aclient.chat.completions.stream(
            model=MODEL, messages=REVIEW, response_format=Review, temperature=0
        ) as stream,
    ):
        final = await stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Review)


@check("stream", "closed after the first chunk")
def _() -> None:
    with chat.create(model=MODEL, messages=CONTACT, stream=True) as stream:
        next(iter(stream))
    assert chat.create(model=MODEL, messages=CONTACT, max_tokens=5).choices
