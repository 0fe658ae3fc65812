"""``POST /v1/schemas`` compiles a schema ahead; ``GET /v1/schemas/{id}`` returns the result.

The former also draws its graph, if asked; ``POST /v1/schemas/{id}/walk`` follows a text through it.

There is no list, so that only clients that know a schema's id can see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field
from pydantic_core import to_json

from app.core.constraint import ConstraintSpec
from app.core.errors import ConstraintError, InvalidRequest, UnknownSchema
from app.core.graphs import MOST_STATES, MOST_WALKED, GraphOptions
from app.core.specs import Choice, Grammar, JsonSchema, OnUnsupported, Regex
from app.http.config import Whitespace
from app.http.endpoint import Api, api_of, endpoint, reading
from app.http.errors import NotKept
from app.http.openapi import Shape, describe
from app.http.requests.constraints import ResponseFormat
from app.http.requests.unsupported import NO_EFFECT
from app.http.requests.wire import Body, Ignored, Name, Wire
from app.serving.admission import Ticket
from app.serving.compiling.schema_registry import RegisteredSchema

PATH = "/v1/schemas"
_ONE = f"{PATH}/{{schema_id}}"
_WALK = f"{_ONE}/walk"

_LONGEST_POINTER = 2_000
_MOST_OPEN = 256

_TYPES = {JsonSchema: "json_schema", Regex: "regex", Choice: "choice", Grammar: "grammar"}
"""Types of ``response_format``, by the specifications that can be registered."""


class GraphFields(Wire):
    """Options for the drawing of the graph."""

    open: list[Annotated[str, Field(max_length=_LONGEST_POINTER)]] = Field(
        default_factory=list, max_length=_MOST_OPEN
    )
    """JSON Pointers of values that are drawn unfolded, whatever their size."""
    max_states: Annotated[int, Field(ge=2, le=MOST_STATES)] = 400
    drawn: bool = False
    """Whether routes, boxes and states have their SVG elements, and the graph its DOT text."""


class SchemaRequest(
    Body, json_schema_extra={"oneOf": [{"required": ["schema"]}, {"required": ["response_format"]}]}
):
    """Either the fields of OpenAI's ``json_schema``, or a whole ``response_format``."""

    no_effect = NO_EFFECT | {"description"}

    schema_: Any = Field(default=None, alias="schema")
    documents: list[dict[str, Any]] | None = None
    """Schemas that ``schema`` or other documents refer to, each with an ``$id``."""
    strict: bool | None = None
    name: Name | None = None
    whitespace: Whitespace | None = None
    """None is the server's default."""
    on_unsupported: OnUnsupported | None = None
    """As in requests for answers; None: ``strict: false`` relaxes."""
    response_format: ResponseFormat | None = None
    graph: bool | GraphFields = False
    """Whether the answer has the graph, or options for its drawing."""


class WalkRequest(Body):
    no_effect = NO_EFFECT

    text: Annotated[str, Field(max_length=MOST_WALKED)]
    """The whole answer so far."""
    graph: bool | GraphFields | None = None
    """As in the request that drew it."""
    state: str | None = None
    """``state`` of the walk of a prefix of this text through the same drawing, to continue it."""


class WalkStep(Shape):
    """An edge (way) that was taken. Offsets are in characters of the text."""

    way: str
    start: int
    end: int
    """End of the step; for the last one perhaps only the end of the text."""
    leap: int | None
    """Start of the leap; null: none of it was written yet."""


class WalkObject(Shape):
    steps: list[WalkStep]
    kept: int
    """Number of steps of the continued walk that do not change; ``steps`` come after them."""
    at: str
    """The state that was reached last."""
    complete: bool
    """Whether an answer may end here."""
    accepted: int
    """Number of characters before the text leaves the graph; all of them if it does not."""
    state: str
    """State from which a later walk can continue."""


class Drawn(Shape):
    svg: tuple[str, dict[str, str | float], Any] | None = None
    """With ``drawn``, the SVG element: its tag, its attributes, and its text or the list of its
    child elements in the same form."""


class GraphState(Drawn):
    """A circle: a state in which more than one way leads on, or the answer may end."""

    id: str
    x: float
    y: float
    label: str
    note: str
    """Text beside the circle."""
    accepting: bool
    repeats: str
    """How often the ways that lead back here may repeat; "" if none do."""
    rule: int | None
    """Number of the rule whose body starts here."""
    pointer: str | None
    """JSON Pointer to the place in the schema, if there is one."""


class GraphWay(Shape):
    """An edge: what the model decides, and the leap after it."""

    id: str
    source: str
    target: str | None
    """Next state; null: beyond the limit of the graph."""
    kind: Literal["start", "byte", "class", "text", "rule", "fold"]
    choice: str
    """Label of the choice in the drawing; · is a space."""
    leap: str
    """Label of the forced bytes; long ones have ... in the middle."""
    pointer: str | None
    open: str | None
    """For a fold: the pointer that opens it."""


class GraphBox(Drawn):
    """A box with a line for each way from one state to another; ``x`` and ``y`` are its centre."""

    x: float
    y: float
    width: float
    height: float
    source: str
    target: str | None
    ways: list[str]
    more: int
    """Number of ways without a line."""


class GraphRoute(Drawn):
    """A line between a state and a box, from rim to rim."""

    box: int
    """Index of the box."""
    end: Literal["in", "out"]
    """Into the box, from its source, or out of it, to its target."""
    points: list[list[float]]
    back: bool
    """Whether it goes up."""


class GraphObject(Shape):
    """The drawing. Lengths are in pixels, for a monospace font of 12 px with a width of 7.3 px."""

    whole: bool
    """Whether the graph is complete: nothing is beyond the limit."""
    width: float
    height: float
    forced_share: float
    states: list[GraphState]
    ways: list[GraphWay]
    boxes: list[GraphBox]
    routes: list[GraphRoute]
    dot: str | None = None
    """With ``drawn``, the graph in Graphviz' DOT language."""


class Problem(Shape):
    message: str
    code: str


class NoGraph(Shape):
    """The reason why there is no graph, though the schema can be used."""

    error: Problem


class SchemaObject(Shape):
    id: str
    """Id of the schema, the same in every registration and on every server."""
    object: Literal["schema"]
    created: int
    type: Literal["json_schema", "regex", "choice", "grammar"]
    name: str | None
    strict: bool | None
    """Null, like ``whitespace`` and ``schema``, if it is not a JSON Schema."""
    whitespace: str | None
    schema_: Any = Field(alias="schema")
    explain: dict[str, Any] | None
    """The report of ``leapjson explain --json``, or ``error``; null unless it is JSON Schema."""
    graph: GraphObject | NoGraph | None = None
    """The graph, if it was requested."""


@dataclass(frozen=True, slots=True)
class _Call:
    spec: ConstraintSpec
    name: str | None
    param: str
    """The field that the schema came in."""
    graph: GraphOptions | None
    """None: no graph was requested."""


class _NotRegistered(NotKept):
    """An unknown schema in the path is a 404; one in a body is a 400."""

    code = UnknownSchema.code


async def _find(schema_id: str, request: Request) -> RegisteredSchema:
    registry = api_of(request).schemas
    try:
        await registry.fetch(schema_id)
        return registry.find(schema_id)
    except UnknownSchema as error:
        raise _NotRegistered(str(error), param="schema_id") from None


def _call(body: Mapping[str, Any], ignored: Ignored, api: Api) -> _Call:
    asked = SchemaRequest.read(body, ignored)
    if ("schema" in body) == (asked.response_format is not None):
        raise InvalidRequest("give either schema or response_format", param="schema")
    graph = _drawing(asked.graph)
    if asked.response_format is None:
        spec = JsonSchema(
            _bundled(asked.schema_, asked.documents or []),
            close_objects=asked.strict is not False,
            whitespace=asked.whitespace or api.config.whitespace,
            relax=asked.strict is False,
        )
        return _Call(_as_asked(spec, asked), asked.name, "schema", graph)
    for field in ("strict", "whitespace", "documents"):
        if getattr(asked, field) is not None:
            raise InvalidRequest(
                f"{field} is for schema; with response_format, put it inside that", param=field
            )
    found = api.constraints.response_format(asked.response_format, ignored)
    if not isinstance(found, JsonSchema | Regex | Choice | Grammar):
        raise InvalidRequest(
            "only formats of type json_schema, regex, choice and grammar can be registered",
            param="response_format.type",
        )
    return _Call(_as_asked(found, asked), asked.name, "response_format", graph)


def _drawing(graph: bool | GraphFields | None) -> GraphOptions | None:
    """The options of a field ``graph``; None without a graph."""
    if isinstance(graph, GraphFields):
        return GraphOptions(tuple(sorted(set(graph.open))), graph.max_states, graph.drawn)
    return GraphOptions() if graph else None


def _bundled(schema: Any, documents: list[dict[str, Any]]) -> Any:
    """``schema`` with the documents in it, as JSON Schema bundles them (core, section 9.3)."""
    if not documents:
        return schema
    inside = schema.get("$defs", {}) if isinstance(schema, dict) else None
    if not isinstance(inside, dict):
        raise InvalidRequest("documents requires a schema that is an object", param="documents")
    found = dict(inside)
    for number, document in enumerate(documents):
        name = document.get("$id", document.get("id"))
        param = f"documents[{number}]"
        if not isinstance(name, str) or not name:
            raise InvalidRequest(f"{param} needs an $id", param=param)
        if name in found:
            raise InvalidRequest(f"{param}: another document has the $id {name!r}", param=param)
        found[name] = document
    return {**schema, "$defs": found}


def _as_asked(spec: ConstraintSpec, asked: SchemaRequest) -> ConstraintSpec:
    """``spec``, refused or relaxed as ``on_unsupported`` says."""
    if asked.on_unsupported is None:
        return spec
    if not isinstance(spec, JsonSchema):
        raise InvalidRequest(
            "on_unsupported is for JSON Schemas; leave it out", param="on_unsupported"
        )
    return replace(spec, relax=asked.on_unsupported == "relax")


def _object(registered: RegisteredSchema) -> bytes:
    schema = registered.spec if isinstance(registered.spec, JsonSchema) else None
    head = {
        "id": registered.id,
        "object": "schema",
        "created": registered.created,
        "type": _TYPES[type(registered.spec)],
        "name": registered.name,
        "strict": schema and schema.close_objects,
        "whitespace": schema and schema.whitespace,
        "schema": schema and schema.schema,
    }
    # The report is JSON already, and takes the place of the bracket that ends the object.
    return to_json(head)[:-1] + b',"explain":' + registered.explanation + b"}"


async def _register(call: _Call, ticket: Ticket, api: Api) -> bytes:
    try:
        registered = await api.schemas.register(call.spec, call.name, ticket)
    except ConstraintError as error:
        raise error.named({"constraint": call.param}) from None
    answer = _object(registered)
    if call.graph is not None:
        picture = await api.graphs.picture(registered, call.graph, ticket)
        answer = answer[:-1] + b',"graph":' + picture + b"}"
    return answer


router = APIRouter()
router.post(
    PATH,
    openapi_extra=describe(
        "Register and explain a schema",
        SchemaObject,
        bodies=[SchemaRequest],
        errors=(400, 413, 429, 503, 504),
    ),
)(endpoint(PATH, _call, _register))


@router.post(
    _WALK,
    openapi_extra=describe(
        "Follow a text through a schema's graph",
        WalkObject,
        bodies=[WalkRequest],
        errors=(400, 404, 413, 429, 503, 504),
    ),
)
async def walk(schema_id: str, request: Request) -> Response:
    registered = await _find(schema_id, request)

    async def follow(asked: WalkRequest, ticket: Ticket, api: Api) -> bytes:
        options = _drawing(asked.graph) or GraphOptions()
        return await api.graphs.walk(registered, options, asked.text, asked.state, ticket)

    return await endpoint(_WALK, reading(WalkRequest), follow)(request)


@router.get(_ONE, openapi_extra=describe("Get a registered schema", SchemaObject, errors=[404]))
async def retrieve_schema(schema_id: str, request: Request) -> Response:
    return Response(_object(await _find(schema_id, request)), media_type="application/json")
