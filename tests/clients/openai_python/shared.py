"""Shared by the checks of the openai package: client, requests, schemas, and checks of types."""

from __future__ import annotations

import json
from typing import Any

import openai
from features import BASE_URL, CONTACT_TEXT, MODEL, REVIEW_TEXT, Checks, Contact, Review, raises
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


def require_fields(model: BaseModel, sent: Any, place: str = "") -> None:
    """Assert that ``sent`` has every field that the package's type requires."""
    for name, field in type(model).model_fields.items():
        alias = field.alias or name
        assert not field.is_required() or alias in sent, f"{place}.{alias} is missing"
        value, raw = getattr(model, name), sent.get(alias)
        items = value if isinstance(value, list) else [value]
        raws = raw if isinstance(raw, list) else [raw]
        for item, item_sent in zip(items, raws, strict=True):
            if isinstance(item, BaseModel):
                require_fields(item, item_sent, f"{place}.{alias}")


def validate_type(kind: type[BaseModel], body: str) -> None:
    """Assert that ``body`` is a ``kind`` of OpenAI: nothing is converted, no field is missing."""
    require_fields(kind.model_validate_json(body, strict=True), json.loads(body), kind.__name__)


def only_call(message: Any) -> Any:
    calls = message.tool_calls
    assert calls, f"no call; content {message.content!r}"
    return calls[0].function


def refused(status: type[openai.APIStatusError], **body: Any) -> openai.APIStatusError:
    """The error of a refused request. Asserts that the package sends it once, without retries."""
    sent: list[Any] = []
    hooks: Any = {"request": [sent.append]}
    http_client = openai.DefaultHttpxClient(event_hooks=hooks)
    with openai.OpenAI(base_url=BASE_URL, api_key="none", http_client=http_client) as counted:
        assert counted.max_retries == 2
        arguments: Any = {"model": MODEL, "messages": CONTACT, **body}
        with raises(status) as failed:
            counted.chat.completions.create(**arguments)
    assert len(sent) == 1, f"sent {len(sent)} times"
    answer: openai.APIStatusError = failed.error
    assert answer.request_id
    return answer
