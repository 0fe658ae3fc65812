"""The list of models, and errors that are not retried."""

from __future__ import annotations

import openai
from features import MODEL, OVERLONG_TEXT, UNSUPPORTED_SCHEMA
from shared import check, client, refused


@check("models", "models.list and models.retrieve")
def _() -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


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


@check("errors", "a prompt that is too long is a context_length_exceeded")
def _() -> None:
    error = refused(openai.BadRequestError, messages=[{"role": "user", "content": OVERLONG_TEXT}])
    assert error.code == "context_length_exceeded"


@check("errors", "a wrong value with stream=True is a 400, before the stream starts")
def _() -> None:
    refused(openai.BadRequestError, stream=True, response_format={"type": "nonsense"})
