"""llama-index: OpenAILike over chat completions and completions."""

from __future__ import annotations

from typing import Any

import openai
from features import (
    BASE_URL,
    CARD,
    CARD_TEXT,
    CONTACT_TEXT,
    MODEL,
    PICTURE,
    REVIEW_TEXT,
    UNSUPPORTED_SCHEMA,
    Card,
    Checks,
    Contact,
    NotApplicable,
    Review,
    raises,
)
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses
from pydantic import ValidationError

check = Checks()
common: dict[str, Any] = {
    "model": MODEL,
    "api_base": BASE_URL,
    "api_key": "none",
    "context_window": 2048,
    "temperature": 0,
    "max_tokens": 200,
    "is_chat_model": True,
}
chat = OpenAILike(**common)
with_schemas = OpenAILike(**common, should_use_structured_outputs=True)
with_tools = OpenAILike(**common, is_function_calling_model=True)
completions = OpenAILike(**common | {"is_chat_model": False, "max_tokens": 12})
responses = OpenAILikeResponses(
    model=MODEL,
    api_base=BASE_URL,
    api_key="none",
    context_window=2048,
    temperature=0,
    is_function_calling_model=True,
)


def question() -> PromptTemplate:
    """A new template for each use, as the package modifies it."""
    return PromptTemplate("{text}")


MESSAGES = [ChatMessage(role="user", content=CONTACT_TEXT)]


def save_contact(name: str, email: str, phone: str) -> str:
    """Saves a contact."""
    return f"saved {name}, {email}, {phone}"


TOOL = FunctionTool.from_defaults(save_contact)


@check("text", "chat and complete")
def _() -> None:
    assert chat.chat(MESSAGES).message.content
    assert chat.complete("Hello").text


@check("stream", "stream_chat")
def _() -> None:
    chunks = list(chat.stream_chat(MESSAGES))
    text = "".join(chunk.delta or "" for chunk in chunks)
    assert text == chunks[-1].message.content == chat.chat(MESSAGES).message.content


@check("text", "achat")
async def _() -> None:
    assert (await OpenAILike(**common).achat(MESSAGES)).message.content


@check("json_schema", "structured_predict, should_use_structured_outputs")
def _() -> None:
    contact = with_schemas.structured_predict(Contact, question(), text=CONTACT_TEXT)
    assert contact.name == "Daniel Okafor"
    assert with_schemas.structured_predict(Review, question(), text=REVIEW_TEXT).rating == 2


@check("json_schema", "as_structured_llm")
def _() -> None:
    answer = with_schemas.as_structured_llm(Contact).chat(MESSAGES)
    assert isinstance(answer.raw, Contact)


@check("stream", "stream_structured_predict")
def _() -> None:
    parts = list(with_schemas.stream_structured_predict(Contact, question(), text=CONTACT_TEXT))
    whole = with_schemas.structured_predict(Contact, question(), text=CONTACT_TEXT)
    assert parts[-1].model_dump() == whole.model_dump()


@check("text", "structured_predict by a schema in the prompt")
def _() -> None:
    try:
        chat.structured_predict(Contact, question(), text=CONTACT_TEXT)
    except openai.BadRequestError as error:
        if error.param != "tool_choice":
            raise
        raise NotApplicable("sends tool_choice without tools, which OpenAI refuses too") from error
    except ValueError as error:
        raise NotApplicable("answered, but not by the schema: that takes a larger model") from error


@check("tools", "structured_predict by function calling")
def _() -> None:
    contact = with_tools.structured_predict(Contact, question(), text=CONTACT_TEXT)
    assert isinstance(contact, Contact)


@check("tools streamed", "stream_structured_predict by function calling (tool_choice auto)")
def _() -> None:
    parts = list(with_tools.stream_structured_predict(Contact, question(), text=CONTACT_TEXT))
    try:
        Contact.model_validate(parts[-1].model_dump())
    except ValidationError as error:
        raise NotApplicable("the model answered in text, as it may") from error


@check("tools", "chat_with_tools, tool_required")
def _() -> None:
    answer = with_tools.chat_with_tools([TOOL], CONTACT_TEXT, tool_required=True)
    (call, *_) = with_tools.get_tool_calls_from_response(answer)
    assert call.tool_name == "save_contact"
    Contact.model_validate(call.tool_kwargs)


@check("tools", "chat_with_tools, auto")
def _() -> str:
    answer = with_tools.chat_with_tools([TOOL], CONTACT_TEXT)
    calls = with_tools.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
    for call in calls:
        Contact.model_validate(call.tool_kwargs)
    assert calls or answer.message.content
    return "called" if calls else "the model answered in text"


@check("tools streamed", "stream_chat_with_tools")
def _() -> None:
    arguments: Any = {"tools": [TOOL], "user_msg": CONTACT_TEXT, "tool_required": True}
    *_, last = with_tools.stream_chat_with_tools(**arguments)
    (call, *_) = with_tools.get_tool_calls_from_response(last)
    whole = with_tools.chat_with_tools(**arguments)
    (expected, *_) = with_tools.get_tool_calls_from_response(whole)
    assert call.tool_kwargs == expected.tool_kwargs


@check("tool loop", "predict_and_call")
def _() -> None:
    answer = with_tools.predict_and_call([TOOL], CONTACT_TEXT, tool_required=True)
    assert answer.sources
    assert str(answer.response).startswith("saved")


@check("tool loop", "a call, its result, an answer")
def _() -> None:
    first = with_tools.chat_with_tools([TOOL], CONTACT_TEXT, tool_required=True)
    results = [
        ChatMessage(role="tool", content="saved", additional_kwargs={"tool_call_id": call.tool_id})
        for call in with_tools.get_tool_calls_from_response(first)
    ]
    answer = with_tools.chat_with_tools(
        [TOOL], chat_history=[*MESSAGES, first.message, *results], tool_choice="none"
    )
    assert answer.message.content


@check("completions", "complete and stream_complete")
def _() -> None:
    text = "".join(chunk.delta or "" for chunk in completions.stream_complete("Hello"))
    assert text == completions.complete("Hello").text


@check("images", "an ImageBlock, as_structured_llm")
def _() -> None:
    blocks = [TextBlock(text=CARD_TEXT), ImageBlock(path=PICTURE)]
    answer = with_schemas.as_structured_llm(Card).chat([ChatMessage(role="user", blocks=blocks)])
    assert answer.raw == CARD


@check("responses", "OpenAILikeResponses: chat")
def _() -> None:
    assert responses.chat(MESSAGES).message.content


@check("responses streamed", "OpenAILikeResponses: stream_chat")
def _() -> None:
    text = "".join(chunk.delta or "" for chunk in responses.stream_chat(MESSAGES))
    assert text == responses.chat(MESSAGES).message.content


@check("responses tools", "OpenAILikeResponses: chat_with_tools, tool_required")
def _() -> None:
    answer = responses.chat_with_tools([TOOL], CONTACT_TEXT, tool_required=True)
    (call, *_) = responses.get_tool_calls_from_response(answer)
    Contact.model_validate(call.tool_kwargs)


@check("responses tools", "OpenAILikeResponses: structured_predict")
def _() -> None:
    contact = responses.structured_predict(Contact, question(), text=CONTACT_TEXT)
    assert isinstance(contact, Contact)


@check("errors", "a schema that cannot be enforced is a 400")
def _() -> None:
    schema = {"name": "numbers", "schema": UNSUPPORTED_SCHEMA, "strict": True}
    with raises(openai.BadRequestError) as failed:
        chat.chat(MESSAGES, response_format={"type": "json_schema", "json_schema": schema})
    assert "uniqueItems" in failed.error.message


check.run()
