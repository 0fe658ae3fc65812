"""litellm: completions and responses, by the providers ``openai`` and ``hosted_vllm``."""

from __future__ import annotations

import json
from typing import Any

import litellm
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
    picture_url,
    raises,
)

check = Checks()
litellm.telemetry = False
litellm.suppress_debug_info = True

CONTACT: list[Any] = [{"role": "user", "content": CONTACT_TEXT}]
REVIEW: list[Any] = [{"role": "user", "content": REVIEW_TEXT}]
SAVE = {
    "type": "function",
    "function": {
        "name": "save_contact",
        "description": "Saves a contact.",
        "parameters": Contact.model_json_schema(),
        "strict": True,
    },
}


def complete(messages: list[Any], provider: str = "openai", **arguments: Any) -> Any:
    return litellm.completion(
        model=f"{provider}/{MODEL}",
        api_base=BASE_URL,
        api_key="none",
        messages=messages,
        temperature=0,
        **arguments,
    )


for provider in ("openai", "hosted_vllm"):

    def register(provider: str) -> None:
        @check("images", f"{provider}: image_url, response_format is a pydantic model")
        def _() -> None:
            content = [
                {"type": "text", "text": CARD_TEXT},
                {"type": "image_url", "image_url": {"url": picture_url()}},
            ]
            messages = [{"role": "user", "content": content}]
            answer = complete(messages, provider, response_format=Card)
            assert Card.model_validate_json(answer.choices[0].message.content) == CARD

        @check("text", f"{provider}: completion")
        def _() -> None:
            answer = complete([{"role": "user", "content": "Hello"}], provider)
            assert answer.choices[0].message.content
            assert answer.usage.total_tokens > 0

        @check("json_schema", f"{provider}: response_format is a pydantic model")
        def _() -> None:
            answer = complete(CONTACT, provider, response_format=Contact)
            contact = Contact.model_validate_json(answer.choices[0].message.content)
            assert contact.name == "Daniel Okafor"

        @check("json_schema", f"{provider}: response_format json_schema")
        def _() -> None:
            schema = {"name": "review", "schema": Review.model_json_schema(), "strict": True}
            answer = complete(
                REVIEW, provider, response_format={"type": "json_schema", "json_schema": schema}
            )
            assert Review.model_validate_json(answer.choices[0].message.content).rating == 2

        @check("json_object", f"{provider}: response_format json_object")
        def _() -> None:
            answer = complete(CONTACT, provider, response_format={"type": "json_object"})
            assert isinstance(json.loads(answer.choices[0].message.content), dict)

        @check("stream", f"{provider}: stream, with usage")
        def _() -> None:
            chunks = list(
                complete(
                    CONTACT,
                    provider,
                    response_format=Contact,
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
            text = "".join(
                chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices
            )
            whole = complete(CONTACT, provider, response_format=Contact)
            assert text == whole.choices[0].message.content
            built = litellm.stream_chunk_builder(chunks)
            assert built.usage.total_tokens == whole.usage.total_tokens

        @check("tools", f"{provider}: required")
        def _() -> None:
            answer = complete(CONTACT, provider, tools=[SAVE], tool_choice="required")
            (call, *_) = answer.choices[0].message.tool_calls
            assert call.function.name == "save_contact"
            Contact.model_validate_json(call.function.arguments)
            assert answer.choices[0].finish_reason == "tool_calls"

        @check("tools", f"{provider}: auto")
        def _() -> str:
            message = complete(CONTACT, provider, tools=[SAVE]).choices[0].message
            for call in message.tool_calls or []:
                Contact.model_validate_json(call.function.arguments)
            assert message.tool_calls or message.content
            return "called" if message.tool_calls else "the model answered in text"

        @check("tools streamed", f"{provider}: the chunks make the call")
        def _() -> None:
            arguments: Any = {
                "tools": [SAVE],
                "tool_choice": {"type": "function", "function": {"name": "save_contact"}},
            }
            chunks = list(complete(CONTACT, provider, stream=True, **arguments))
            (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
            (whole,) = complete(CONTACT, provider, **arguments).choices[0].message.tool_calls
            assert call.function.arguments == whole.function.arguments
            Contact.model_validate_json(call.function.arguments)

        @check("tool loop", f"{provider}: a call, its result, an answer")
        def _() -> None:
            first = complete(CONTACT, provider, tools=[SAVE], tool_choice="required")
            message = first.choices[0].message
            results = [
                {"role": "tool", "tool_call_id": call.id, "name": "save_contact", "content": "ok"}
                for call in message.tool_calls
            ]
            second = complete(
                [*CONTACT, message, *results], provider, tools=[SAVE], tool_choice="none"
            )
            assert second.choices[0].message.content

    register(provider)


@check("constraints", "hosted_vllm: structured_outputs in extra_body")
def _() -> None:
    answer = complete(
        REVIEW,
        "hosted_vllm",
        extra_body={"structured_outputs": {"choice": ["positive", "negative"]}},
    )
    assert answer.choices[0].message.content in ("positive", "negative")


@check("text", "acompletion")
async def _() -> None:
    answer = await litellm.acompletion(
        model=f"openai/{MODEL}", api_base=BASE_URL, api_key="none", messages=CONTACT
    )
    assert answer.choices[0].message.content


@check("completions", "text_completion, and streamed")
def _() -> None:
    arguments: Any = {
        "model": f"text-completion-openai/{MODEL}",
        "api_base": BASE_URL,
        "api_key": "none",
        "prompt": "Hello",
        "max_tokens": 12,
        "temperature": 0,
    }
    whole = litellm.text_completion(**arguments).choices[0].text
    chunks = litellm.text_completion(**arguments, stream=True)
    assert "".join(chunk.choices[0].text or "" for chunk in chunks) == whole


def respond(**arguments: Any) -> Any:
    return litellm.responses(
        model=f"openai/{MODEL}", api_base=BASE_URL, api_key="none", temperature=0, **arguments
    )


@check("responses", "responses, with text_format")
def _() -> None:
    assert respond(input="Hello").output_text
    answer = respond(input=CONTACT_TEXT, text_format=Contact)
    assert Contact.model_validate_json(answer.output_text).name == "Daniel Okafor"


@check("images", "responses: input_image, text_format")
def _() -> None:
    content = [
        {"type": "input_text", "text": CARD_TEXT},
        {"type": "input_image", "image_url": picture_url(), "detail": "auto"},
    ]
    answer = respond(input=[{"role": "user", "content": content}], text_format=Card)
    assert Card.model_validate_json(answer.output_text) == CARD


@check("responses", "responses: previous_response_id")
def _() -> None:
    first = respond(input="Hello")
    second = respond(input="And now?", previous_response_id=first.id)
    assert second.output_text
    assert second.usage.input_tokens > first.usage.input_tokens


@check("responses streamed", "responses(stream=True)")
def _() -> None:
    events = list(respond(input=CONTACT_TEXT, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type == "response.completed"
    assert text == respond(input=CONTACT_TEXT).output_text


@check("responses tools", "responses, required")
def _() -> None:
    answer = respond(
        input=CONTACT_TEXT,
        tools=[{"type": "function", **SAVE["function"]}],  # type: ignore[dict-item]
        tool_choice="required",
    )
    call = answer.output[0]
    assert call.type == "function_call"
    Contact.model_validate_json(call.arguments)


@check("errors", "a schema that cannot be enforced is a 400")
def _() -> None:
    schema = {"name": "numbers", "schema": UNSUPPORTED_SCHEMA, "strict": True}
    with raises(litellm.BadRequestError) as failed:
        complete(CONTACT, response_format={"type": "json_schema", "json_schema": schema})
    assert "uniqueItems" in str(failed.error)


for name in ("openai", "hosted_vllm", "text-completion-openai", "anthropic"):

    def overlong(provider: str) -> None:
        @check("errors", f"{provider}: a prompt that is too long is a ContextWindowExceededError")
        def _() -> None:
            base = BASE_URL.removesuffix("/v1") if provider == "anthropic" else BASE_URL
            with raises(litellm.ContextWindowExceededError):
                litellm.completion(
                    model=f"{provider}/{MODEL}",
                    api_base=base,
                    api_key="none",
                    messages=[{"role": "user", "content": OVERLONG_TEXT}],
                )

    overlong(name)


@check("errors", "an unknown model is a 404")
def _() -> None:
    with raises(litellm.NotFoundError):
        litellm.completion(
            model="openai/gpt-nothing", api_base=BASE_URL, api_key="none", messages=CONTACT
        )


check.run()
