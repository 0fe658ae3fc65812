"""``/openapi.json``: what every route takes and answers.

The routes read their bodies by hand, for the limits, so FastAPI cannot know. Here stands a table
of operations beside the models that they read with; a test holds it against the routes, and
schemathesis holds it against the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.http import schemas, shapes, tokens
from app.http.chat import wire as chat
from app.http.completions import wire as completions
from app.http.config import ApiConfig
from app.http.middleware.auth import METRICS_PATH, OPEN_PATHS
from app.http.requests.wire import Body
from app.http.responses import wire as responses

Json = dict[str, Any]

_REFERENCE = "#/components/schemas/{model}"
_GENERATES = (400, 404, 413, 429, 500, 503, 504)
_NOT_SUPPORTED = "Not supported here: only values that ask for nothing are taken."
_NO_EFFECT = "Taken, and of no effect on what is generated."


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None = None
    """Of status 200; None: text, or nothing but errors."""
    errors: Sequence[int] = (500,)
    bodies: Sequence[type[Body]] = ()
    """The body is one of these; none: there is no body."""
    event: type[BaseModel] | None = None
    """Of a stream's events; None: there are no streams."""
    statuses: Mapping[int, type[BaseModel]] = field(default_factory=dict)
    """Answers of other statuses that are no error objects."""


OPERATIONS = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Answer a conversation",
        shapes.ChatCompletion,
        _GENERATES,
        [chat.ChatCompletionRequest],
        shapes.ChatCompletionChunk,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Continue a text",
        shapes.Completion,
        _GENERATES,
        [completions.CompletionRequest],
        shapes.CompletionChunk,
    ),
    Operation(
        "post",
        "/v1/responses",
        "Answer a list of items",
        shapes.ResponseObject,
        _GENERATES,
        [responses.ResponsesRequest],
        shapes.ResponseEvent,
    ),
    *(
        Operation(method, f"/v1/responses/{{response_id}}{rest}", summary, errors=(404, 500))
        for method, rest, summary in (
            ("get", "", "No response is kept"),
            ("delete", "", "No response is kept to be deleted"),
            ("post", "/cancel", "No response runs in the background"),
            ("get", "/input_items", "No response's input is kept"),
        )
    ),
    Operation(
        "post",
        "/v1/schemas",
        "Compile a schema ahead, and explain it",
        shapes.SchemaObject,
        (400, 413, 429, 500, 503, 504),
        [schemas.SchemaRequest],
    ),
    Operation(
        "get",
        "/v1/schemas/{schema_id}",
        "A schema that was compiled ahead",
        shapes.SchemaObject,
        (404, 500),
    ),
    Operation(
        "post",
        "/tokenize",
        "The tokens of a text or of a conversation's prompt",
        shapes.Tokenized,
        (400, 404, 413, 429, 500, 504),
        [tokens.TokenizeText, tokens.TokenizeChat],
    ),
    Operation(
        "post",
        "/detokenize",
        "The text of tokens",
        shapes.Detokenized,
        (400, 404, 413, 429, 500, 504),
        [tokens.DetokenizeRequest],
    ),
    Operation("get", "/v1/models", "The model that is served", shapes.ModelList),
    Operation("get", "/v1/models/{model}", "A model by its name", shapes.ModelObject, (404, 500)),
    Operation("get", "/health", "Whether it lives", shapes.Status, statuses={503: shapes.Status}),
    Operation(
        "get", "/ready", "Whether it takes requests", shapes.Status, statuses={503: shapes.Status}
    ),
    Operation("get", "/metrics", "Metrics in Prometheus' text format"),
    Operation("get", "/version", "The server's version", shapes.Version),
)


def install_openapi(app: FastAPI, config: ApiConfig) -> None:
    """Make ``/openapi.json`` tell what ``OPERATIONS`` say. It is put together when asked for."""
    document: Json = {}

    def openapi() -> Json:
        if not document:
            document.update(describe(config))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def describe(config: ApiConfig) -> Json:
    """The document (OpenAPI 3.1) of a server with these settings."""
    components, references = _components(config.served_model)
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(
            operation, references, config
        )
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Leapjson", "version": config.version},
        "paths": paths,
        "components": {"schemas": components},
    }
    if config.api_keys:
        scheme = {"type": "http", "scheme": "bearer"}
        document["components"]["securitySchemes"] = {"key": scheme}
        document["security"] = [{"key": []}]
    return document


def _operation(
    operation: Operation, references: Mapping[type[BaseModel], Json], config: ApiConfig
) -> Json:
    described: Json = {
        "operationId": _name(operation),
        "summary": operation.summary,
        "responses": _responses(operation, references, config),
    }
    if "{" in operation.path:
        name = operation.path.partition("{")[2].partition("}")[0]
        slash = "/" if name == "model" else ""  # as in the names of Hugging Face
        schema: Json = {"type": "string", "pattern": f"^[A-Za-z0-9_.{slash}-]+$"}
        described["parameters"] = [{"name": name, "in": "path", "required": True, "schema": schema}]
    if operation.bodies:
        bodies = [references[body] for body in operation.bodies]
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    if config.api_keys and _is_open(operation.path, config):
        described["security"] = []
    return described


def _responses(
    operation: Operation, references: Mapping[type[BaseModel], Json], config: ApiConfig
) -> Json:
    found: Json = {}
    if operation.answer is not None:
        content: Json = {"application/json": {"schema": references[operation.answer]}}
        if operation.event is not None:
            content["text/event-stream"] = {"schema": _event(references[operation.event])}
        found["200"] = {"description": "The answer", "content": content}
    elif operation.path == METRICS_PATH:
        text = {"text/plain": {"schema": {"type": "string"}}}
        found["200"] = {"description": "The metrics", "content": text}
    errors = [*operation.errors]
    if config.api_keys and not _is_open(operation.path, config):
        errors.append(401)
    problems = dict.fromkeys(sorted(errors), shapes.ErrorEnvelope) | dict(operation.statuses)
    for status, model in problems.items():
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": references[model]}},
        }
        if status in (429, 503) and model is shapes.ErrorEnvelope:
            seconds = {"schema": {"type": "integer"}, "description": "Seconds to wait"}
            found[str(status)]["headers"] = {"retry-after": seconds}
    return found


def _event(data: Json) -> Json:
    """An event of a stream: before OpenAPI 3.2 that is what the schema of a stream tells of."""
    either = {"anyOf": [data, {"$ref": _REFERENCE.format(model="ErrorEnvelope")}]}
    parsed = {"contentMediaType": "application/json", "contentSchema": either}
    return {
        "type": "object",
        "description": "Server-sent events, the last of which may be [DONE].",
        "properties": {
            "event": {"type": "string"},
            "data": {"type": "string", "anyOf": [{"const": "[DONE]"}, parsed]},
        },
        "required": ["data"],
    }


def _is_open(path: str, config: ApiConfig) -> bool:
    return path in OPEN_PATHS or (config.metrics_public and path == METRICS_PATH)


def _name(operation: Operation) -> str:
    steps = operation.path.removeprefix("/v1").strip("/").replace("{", "").replace("}", "")
    return "_".join([operation.method, *steps.split("/")])


def _components(served: str) -> tuple[Json, Mapping[type[BaseModel], Json]]:
    """All schemas by name, and for each model of ``OPERATIONS`` the reference to its own."""
    bodies = [body for each in OPERATIONS for body in each.bodies]
    answers = [each.answer for each in OPERATIONS if each.answer is not None]
    others = [model for each in OPERATIONS for model in each.statuses.values()]
    others += [each.event for each in OPERATIONS if each.event is not None]
    models: list[type[BaseModel]] = [*bodies, *answers, *others, shapes.ErrorEnvelope]
    found, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REFERENCE
    )
    components: Json = _any_of(definitions["$defs"])
    references = {model: found[model, "validation"] for model in models}
    for body in bodies:
        name = references[body]["$ref"].rpartition("/")[2]
        _add_known_fields(components[name], body)
        if "model" in body.model_fields:
            optional = not body.model_fields["model"].is_required()
            names = [served, None] if optional else [served]
            components[name]["properties"]["model"] = {"enum": names}
    _name_both(components["RegexResponse"], "pattern", "regex")
    components["SchemaRequest"]["oneOf"] = [
        {"required": ["schema"]},
        {"required": ["response_format"]},
    ]
    return components, references


def _add_known_fields(component: Json, body: type[Body]) -> None:
    properties = component["properties"]
    for name, values in body.not_served.items():
        properties[name] = {"enum": list(values), "description": _NOT_SUPPORTED}
    for name in body.no_effect:
        properties[name] = {"description": _NO_EFFECT}
    component["properties"] = dict(sorted(properties.items()))


def _name_both(component: Json, name: str, alias: str) -> None:
    """A required field that has two names, of which one is given."""
    component["properties"][alias] = component["properties"][name]
    component["required"].remove(name)
    component["anyOf"] = [{"required": [name]}, {"required": [alias]}]


def _any_of(value: Any) -> Any:
    """``oneOf`` as ``anyOf``: of the members that pydantic lists one may take more than its own."""
    if isinstance(value, list):
        return [_any_of(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {("anyOf" if key == "oneOf" else key): _any_of(each) for key, each in value.items()}
