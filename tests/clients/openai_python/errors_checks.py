"""Models, and errors that are not retried."""

from __future__ import annotations

from typing import Any

import openai
from features import BASE_URL, MODEL, UNSUPPORTED_SCHEMA
from shared import CONTACT, check, client


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
