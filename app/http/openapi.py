"""``/openapi.json``, put together from the descriptions of the routes.

The routes read their bodies by hand, for the limits, so FastAPI cannot know what they take. Tests
compare the document with the answers of every route; schemathesis does so with random requests.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Generic, Literal, TypeVar

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema, to_json

from app.http.config import ApiConfig
from app.http.errors import ANTHROPIC
from app.http.keys import METRICS_PATH, OPEN_PATHS
from app.http.requests.wire import HEADER as IGNORED
from app.http.requests.wire import Body, Other, Wire

Json = dict[str, Any]
T = TypeVar("T")

GENERATES = (400, 404, 413, 429, 503, 504)
"""Error statuses of routes that generate."""

_NAMED = "A model that GET /v1/models lists."

_REFERENCE = "#/components/schemas/{model}"


class Shape(BaseModel):
    """Part of an answer, for the document only: answers are written as bytes.

    It has no other fields than these. A field may be missing if it has a default.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Page(Shape, Generic[T]):
    """A part of a list."""

    object: Literal["list"]
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(Shape):
    id: str
    object: Literal["file", "model", "response"]
    deleted: Literal[True]


class ErrorObject(Shape):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None
    """The field at fault."""
    code: str | None
    pointer: str | None = None
    """JSON Pointer to the error in a schema."""
    line: int | None = None
    """Line of the error in a grammar; like ``column`` from 1."""
    column: int | None = None
    position: int | None = None
    """Number of characters before the error in a pattern."""


class ErrorEnvelope(Shape):
    error: ErrorObject


class MessagesErrorObject(ErrorObject):
    type: Literal[  # type: ignore[assignment]
        "invalid_request_error", "authentication_error", "not_found_error", "request_too_large",
        "rate_limit_error", "overloaded_error", "timeout_error", "api_error",
    ]  # fmt: skip


class MessagesError(Shape):
    """An error in Anthropic's format."""

    type: Literal["error"]
    error: MessagesErrorObject


def describe(
    summary: str,
    *answers: type[BaseModel],
    event: type[BaseModel] | None = None,
    bodies: Sequence[type[Body]] = (),
    query: Sequence[str] = (),
    errors: Sequence[int] = (),
    others: Mapping[int, Json] | None = None,
    envelope: type[Shape] = ErrorEnvelope,
) -> Json:
    """The OpenAPI operation of a route, with models in place of their schemas.

    The body is one of ``bodies``, if there are any; ``query`` names parameters. Status 200 has one
    of ``answers`` as JSON, ``event`` is the data of a stream's events. ``errors`` are statuses,
    besides 500, with an ``envelope``; ``others`` are responses with another body.
    """
    responses: dict[int, Json] = {
        status: _error(status, envelope) for status in sorted({*errors, 500})
    }
    if answers:
        responses[200] = response(_one_of(answers), "The answer")
        if event is not None:
            responses[200]["content"]["text/event-stream"] = {"schema": _event(event, envelope)}
    responses |= others or {}
    operation: Json = {
        "summary": summary,
        "responses": {str(status): each for status, each in responses.items()},
    }
    if query:
        kinds = {"limit": {"type": "integer", "minimum": 1}, "order": {"enum": ["asc", "desc"]}}
        schemas = {name: kinds.get(name, {"type": "string"}) for name in query}
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": schema} for name, schema in schemas.items()
        ]
    if bodies:
        content = {"application/json": {"schema": _one_of(bodies)}}
        names = {"schema": {"type": "string"}, "description": "Ignored fields"}
        responses[200]["headers"] = {IGNORED: names}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def response(schema: Any, description: str) -> Json:
    """A response with a JSON body; ``schema`` is a model, or contains models."""
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _one_of(models: Sequence[type[BaseModel]]) -> Any:
    return models[0] if len(models) == 1 else {"anyOf": list(models)}


def install_openapi(app: FastAPI, routers: Sequence[APIRouter], config: ApiConfig) -> None:
    """Serve ``/openapi.json``; the document is put together at the first request."""
    lock = asyncio.Lock()

    @functools.cache
    def openapi() -> Json:
        return _document(app, routers, config)

    @functools.cache
    def body() -> bytes:
        return to_json(openapi())

    async def serve(_: Request) -> Response:
        async with lock:  # 0.3 s the first time, which are not the event loop's
            return Response(await asyncio.to_thread(body), media_type="application/json")

    app.openapi = openapi  # type: ignore[method-assign]
    app.add_route("/openapi.json", serve, include_in_schema=False)


def _document(app: FastAPI, routers: Sequence[APIRouter], config: ApiConfig) -> Json:
    """The document (OpenAPI 3.1) of a server with these settings."""
    paths: dict[str, Json] = {}
    operations = (
        (route.path_format, method.lower(), route.openapi_extra)
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute) and route.openapi_extra is not None
        for method in route.methods or ()
    )
    for path, method, operation in operations:
        name = path.partition("{")[2].partition("}")[0]
        steps = path.removeprefix("/v1").strip("/").replace("{", "").replace("}", "")
        described = {**operation, "operationId": "_".join([method, *steps.split("/")])}
        if name:
            others = "/:" if name == "model" else ""  # as in names of Hugging Face and of adapters
            schema = {"type": "string", "pattern": f"^[A-Za-z0-9_.{others}-]+$"}
            own = {"name": name, "in": "path", "required": True, "schema": schema}
            described["parameters"] = [own, *operation.get("parameters", ())]
        if config.api_keys:
            if path in OPEN_PATHS or (config.metrics_public and path == METRICS_PATH):
                described["security"] = []
            else:
                envelope = MessagesError if path.startswith(ANTHROPIC) else ErrorEnvelope
                described["responses"] = operation["responses"] | {"401": _error(401, envelope)}
        paths.setdefault(path, {})[method] = described
    components, references = _components(list(dict.fromkeys(_models(paths))), config)
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": app.title, "version": app.version},
        "paths": _referring(paths, references),
        "components": {"schemas": components},
    }
    if config.api_keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _error(status: int, envelope: type[Shape]) -> Json:
    described = response(envelope, HTTPStatus(status).phrase)
    if status in (429, 503):
        seconds = {"schema": {"type": "integer"}, "description": "Seconds to wait"}
        described["headers"] = {"retry-after": seconds}
    return described


def _event(data: type[BaseModel], envelope: type[Shape]) -> Json:
    """An event of a stream: before OpenAPI 3.2 the schema of a stream is that of its events."""
    parsed = {"contentMediaType": "application/json", "contentSchema": {"anyOf": [data, envelope]}}
    return {
        "type": "object",
        "description": "Server-sent events, the last of which may be [DONE].",
        "properties": {
            "event": {"type": "string"},
            "data": {"type": "string", "anyOf": [{"const": "[DONE]"}, parsed]},
        },
        "required": ["data"],
    }


def _models(value: Any) -> Iterator[type[BaseModel]]:
    """The models in ``value``."""
    if isinstance(value, type):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _models(each)


def _referring(value: Any, references: Mapping[type[BaseModel], Json]) -> Any:
    """``value`` with a reference in the place of every model."""
    if isinstance(value, type):
        return references[value]
    if isinstance(value, list):
        return [_referring(each, references) for each in value]
    if isinstance(value, dict):
        return {key: _referring(each, references) for key, each in value.items()}
    return value


class _AnyOf(GenerateJsonSchema):
    """Unions as ``anyOf``, not ``oneOf``: some members also accept the values of others."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        union = super().tagged_union_schema(schema)
        union["anyOf"] = union.pop("oneOf")
        return union


class _Closed(_AnyOf):
    """Schemas of a server that refuses unknown fields."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        described = super().model_schema(schema)
        model = schema["cls"]
        if issubclass(model, Wire) and not (issubclass(model, Other) or model.allows_extra):
            described["additionalProperties"] = False
        return described


def _components(
    models: Sequence[type[BaseModel]], config: ApiConfig
) -> tuple[Json, Mapping[type[BaseModel], Json]]:
    """All schemas by name, and for each of ``models`` the reference to its own."""
    found, definitions = models_json_schema(
        [(model, "validation") for model in models],
        ref_template=_REFERENCE,
        schema_generator=_Closed if config.unknown_fields == "refuse" else _AnyOf,
    )
    components: Json = definitions["$defs"]
    references = {model: found[model, "validation"] for model in models}
    for model, reference in references.items():
        if issubclass(model, Body) and (field := model.model_fields.get("model")):
            component = components[reference["$ref"].rpartition("/")[2]]
            others = [] if field.is_required() else [None]
            component["properties"]["model"] = (
                {"type": ["string", *["null" for _ in others]], "description": _NAMED}
                if config.has_adapters
                else {"enum": [config.served_model, *others]}
            )
    return components, references
