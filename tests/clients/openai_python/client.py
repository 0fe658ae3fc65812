"""The openai package: chat completions, completions, responses, models, and errors."""

from __future__ import annotations

import json
from typing import Any

import openai
from features import (
    BASE_URL,
    CONTACT_TEXT,
    MODEL,
    REVIEW_TEXT,
    UNSUPPORTED_SCHEMA,
    Checks,
    Contact,
    Review,
)
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import BaseModel

check = Checks()
client = openai.OpenAI(base_url=BASE_URL, api_key="none")
chat = client.chat.completions

CONTACT: list[Any] = [{"role": "user", "content": CONTACT_TEXT}]
REVIEW: list[Any] = [{"role": "user", "content": REVIEW_TEXT}]
CONTACT_SCHEMA = openai.pydantic_function_tool(Contact)["function"]["parameters"]
CONTACT_FORMAT: Any = {
    "type": "json_schema",
    "json_schema": {"name": "contact", "schema": CONTACT_SCHEMA, "strict": True},
}
SAVE: Any = openai.pydantic_function_tool(Contact, name="save_contact")
RATE: Any = openai.pydantic_function_tool(Review, name="rate")
RESPONSE_SAVE: Any = {"type": "function", **SAVE["function"]}
TEXT_FORMAT: Any = {
    "format": {"type": "json_schema", "name": "contact", "schema": CONTACT_SCHEMA, "strict": True}
}


def same_fields(model: BaseModel, sent: Any, place: str = "") -> None:
    """Nothing that a type of the package requires is missing from what was sent."""
    for name, field in type(model).model_fields.items():
        alias = field.alias or name
        assert not field.is_required() or alias in sent, f"{place}.{alias} is not there"
        value, raw = getattr(model, name), sent.get(alias)
        items = value if isinstance(value, list) else [value]
        raws = raw if isinstance(raw, list) else [raw]
        for item, item_sent in zip(items, raws, strict=True):
            if isinstance(item, BaseModel):
                same_fields(item, item_sent, f"{place}.{alias}")


def strictly(kind: type[BaseModel], body: str) -> None:
    """``body`` is what OpenAI publishes as ``kind``: no type is converted, nothing is missing."""
    same_fields(kind.model_validate_json(body, strict=True), json.loads(body), kind.__name__)


def only_call(message: Any) -> Any:
    calls = message.tool_calls
    assert calls, f"no call; content {message.content!r}"
    return calls[0].function


# Text


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
    strictly(ChatCompletion, raw.text)
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


@check("stream", "stream() with a pydantic model")
def _() -> None:
    with chat.stream(
        model=MODEL, messages=CONTACT, response_format=Contact, temperature=0
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert isinstance(message.parsed, Contact)
    assert "".join(deltas) == message.content
    assert len(deltas) > 1


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
        strictly(ChatCompletionChunk, line.removeprefix("data: "))


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


@check("stream", "left in the middle")
def _() -> None:
    with chat.create(model=MODEL, messages=CONTACT, stream=True) as stream:
        next(iter(stream))
    assert chat.create(model=MODEL, messages=CONTACT, max_tokens=5).choices


# Tools


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
    strictly(ChatCompletion, raw.text)


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


@check("tools streamed", "create(stream=True): the deltas make the call")
def _() -> None:
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


# What vLLM, SGLang and llama.cpp add


@check("constraints", "vLLM's structured_outputs in extra_body")
def _() -> None:
    completion = chat.create(
        model=MODEL,
        messages=REVIEW,
        extra_body={"structured_outputs": {"choice": ["positive", "negative"]}},
    )
    assert completion.choices[0].message.content in ("positive", "negative")


@check("constraints", "SGLang's regex in extra_body")
def _() -> None:
    completion = chat.create(model=MODEL, messages=REVIEW, extra_body={"regex": "[1-5] stars?"})
    assert (completion.choices[0].message.content or "")[1:] in (" star", " stars")


@check("constraints", "llama.cpp's grammar in extra_body")
def _() -> None:
    completion = chat.create(
        model=MODEL, messages=REVIEW, extra_body={"grammar": 'root ::= "yes" | "no"'}
    )
    assert completion.choices[0].message.content in ("yes", "no")


# Completions


@check("completions", "completions.create")
def _() -> None:
    completion = client.completions.create(model=MODEL, prompt="Hello", max_tokens=8, temperature=0)
    assert completion.choices[0].text
    assert completion.object == "text_completion"


@check("completions", "several prompts, n, logprobs, and their types")
def _() -> None:
    raw = client.completions.with_raw_response.create(
        model=MODEL, prompt=["Hello", "Good day"], n=2, logprobs=2, max_tokens=8
    )
    strictly(Completion, raw.text)
    assert [choice.index for choice in raw.parse().choices] == [0, 1, 2, 3]


@check("completions", "streamed")
def _() -> None:
    arguments: Any = {"model": MODEL, "prompt": "Hello", "max_tokens": 16, "temperature": 0}
    chunks = list(client.completions.create(**arguments, stream=True))
    whole = client.completions.create(**arguments)
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].text


# Responses


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
    strictly(Response, raw.text)


@check("responses", "an answer as the input of the next")
def _() -> None:
    first = client.responses.create(model=MODEL, input=CONTACT_TEXT, max_output_tokens=30)
    history: Any = [
        {"role": "user", "content": CONTACT_TEXT},
        *[item.model_dump(exclude_none=True) for item in first.output],
        {"role": "user", "content": REVIEW_TEXT},
    ]
    assert client.responses.create(model=MODEL, input=history, max_output_tokens=30).output


@check("responses", "previous_response_id is refused by name")
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


# Models and errors


@check("models", "models.list and models.retrieve")
def _() -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def refused(status: type[openai.APIStatusError], **body: Any) -> openai.APIStatusError:
    """What the server refuses, with the retries that the package has by default, at once."""
    sent: list[Any] = []
    hooks: Any = {"request": [sent.append]}
    http_client = openai.DefaultHttpxClient(event_hooks=hooks)
    answer = None
    with openai.OpenAI(base_url=BASE_URL, api_key="none", http_client=http_client) as counted:
        assert counted.max_retries == 2
        arguments: Any = {"model": MODEL, "messages": CONTACT, **body}
        try:
            counted.chat.completions.create(**arguments)
        except status as error:
            answer = error
    assert answer is not None, "accepted"
    assert len(sent) == 1, f"sent {len(sent)} times"
    assert answer.request_id
    return answer


@check("errors", "a schema that cannot be enforced is a 400, not retried")
def _() -> None:
    error = refused(
        openai.BadRequestError,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": UNSUPPORTED_SCHEMA, "strict": True},
        },
    )
    assert "uniqueItems" in error.message
    assert isinstance(error.body, dict)
    assert set(error.body) >= {"message", "type", "param", "code"}


@check("errors", "a tool's schema that cannot be enforced is a 400, not retried")
def _() -> None:
    function = {"name": "f", "parameters": UNSUPPORTED_SCHEMA, "strict": True}
    error = refused(openai.BadRequestError, tools=[{"type": "function", "function": function}])
    assert "uniqueItems" in error.message


@check("errors", "an unknown model is a 404, not retried")
def _() -> None:
    error = refused(openai.NotFoundError, model="gpt-nothing")
    assert error.code == "model_not_found"


@check("errors", "a wrong value is a 400 that names the field")
def _() -> None:
    error = refused(openai.BadRequestError, temperature=9)
    assert error.param == "temperature"


@check("errors", "the same in a stream, before it starts")
def _() -> None:
    refused(openai.BadRequestError, stream=True, response_format={"type": "nonsense"})


check.run()
