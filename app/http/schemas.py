"""``POST /v1/schemas`` compiles a schema ahead; ``GET /v1/schemas/{id}`` says what it became.

There is no list: whoever knows an id has seen the schema, and others need not see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic_core import to_json

from app.core.errors import ConstraintError, InvalidRequest, UnknownSchema
from app.core.specs import JsonSchema, OnUnsupported
from app.http.config import ApiConfig, Whitespace
from app.http.endpoint import Endpoint
from app.http.errors import envelope
from app.http.openapi import Shape, tells
from app.http.requests.constraints import ConstraintReader, ResponseFormat
from app.http.requests.ignored import Ignored
from app.http.requests.unserved import NO_EFFECT
from app.http.requests.wire import Body, Name
from app.serving.admission import Ticket
from app.serving.compiling.schema_registry import RegisteredSchema, SchemaRegistry
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

PATH = "/v1/schemas"


class SchemaRequest(
    Body,
    json_schema_extra={"oneOf": [{"required": ["schema"]}, {"required": ["response_format"]}]},
):
    """Either the fields of OpenAI's ``json_schema``, or a whole ``response_format``."""

    no_effect: ClassVar[frozenset[str]] = NO_EFFECT | {"description"}

    schema_: Any = Field(default=None, alias="schema")
    strict: bool | None = None
    name: Name | None = None
    whitespace: Whitespace | None = None
    """None is the server's default."""
    on_unsupported: OnUnsupported | None = None
    """As in requests for answers; None: ``strict: false`` relaxes."""
    response_format: ResponseFormat | None = None


class SchemaObject(Shape):
    id: str
    """The same wherever and whenever this schema is registered."""
    object: Literal["schema"]
    created: int
    name: str | None
    strict: bool
    whitespace: str
    schema_: Any = Field(alias="schema")
    explain: dict[str, Any]
    """What ``leapjson explain --json`` says, or ``error`` with the reason why nothing is said."""


@dataclass(frozen=True, slots=True)
class _Call:
    spec: JsonSchema
    name: str | None
    param: str
    """The field that the schema came in."""


def schemas_router(
    registry: SchemaRegistry,
    service: GenerationService,
    config: ApiConfig,
    constraints: ConstraintReader,
) -> APIRouter:
    """The router of schemas that are compiled ahead."""
    router = APIRouter()

    def parse(body: Mapping[str, Any], request_id: str, ignored: Ignored) -> _Call:
        return _call(body, ignored, config, constraints)

    async def respond(call: _Call, timeline: Timeline, ticket: Ticket) -> Response:
        try:
            registered = await registry.register(call.spec, call.name, ticket)
        except ConstraintError as error:
            raise error.named({"constraint": call.param}) from None
        timeline.end(status=200, finish_reason="stop")
        return Response(_object(registered), media_type="application/json")

    endpoint = Endpoint(PATH, service, config, parse=parse, respond=respond)

    operation = tells(
        "Compile a schema ahead, and explain it",
        SchemaObject,
        bodies=[SchemaRequest],
        errors=(400, 413, 429, 503, 504),
    )
    router.post(PATH, openapi_extra=operation)(endpoint.answer)

    @router.get(
        PATH + "/{schema_id}",
        openapi_extra=tells("A schema that was compiled ahead", SchemaObject, errors=[404]),
    )
    async def retrieve_schema(schema_id: str) -> Response:
        try:
            registered = registry.find(schema_id)
        except UnknownSchema as error:
            error.param = "schema_id"
            return JSONResponse(envelope(error), 404)
        return Response(_object(registered), media_type="application/json")

    return router


def _call(
    body: Mapping[str, Any], ignored: Ignored, config: ApiConfig, constraints: ConstraintReader
) -> _Call:
    asked = SchemaRequest.read(body, ignored)
    if ("schema" in body) == (asked.response_format is not None):
        raise InvalidRequest("give either schema or response_format", param="schema")
    if asked.response_format is None:
        spec = JsonSchema(
            asked.schema_,
            close_objects=asked.strict is not False,
            whitespace=asked.whitespace or config.whitespace,
            relax=asked.strict is False,
        )
        return _Call(_as_asked(spec, asked), asked.name, "schema")
    for field in ("strict", "whitespace"):
        if getattr(asked, field) is not None:
            raise InvalidRequest(
                f"{field} belongs beside schema; with response_format it goes inside", param=field
            )
    found = constraints.response_format(asked.response_format, ignored)
    if not isinstance(found, JsonSchema):
        raise InvalidRequest(
            "only formats with a JSON Schema can be named by an id: give one of type json_schema",
            param="response_format.type",
        )
    return _Call(_as_asked(found, asked), asked.name, "response_format")


def _as_asked(spec: JsonSchema, asked: SchemaRequest) -> JsonSchema:
    """``spec``, refused or relaxed as ``on_unsupported`` says."""
    said = asked.on_unsupported
    return spec if said is None else replace(spec, relax=said == "relax")


def _object(registered: RegisteredSchema) -> bytes:
    spec = registered.spec
    head = {
        "id": registered.id,
        "object": "schema",
        "created": registered.created,
        "name": registered.name,
        "strict": spec.close_objects,
        "whitespace": spec.whitespace,
        "schema": spec.schema,
    }
    # The report is JSON already, and takes the place of the bracket that ends the object.
    return to_json(head)[:-1] + b',"explain":' + registered.explanation + b"}"
