"""``POST /v1/schemas`` compiles a schema ahead; ``GET /v1/schemas/{id}`` says what it became.

The former draws its graph, too, where asked; ``POST /v1/schemas/{id}/walk`` follows a text over it.

There is no list: whoever knows an id has seen the schema, and others need not see it.
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
from app.http.endpoint import Api, api_of, endpoint
from app.http.errors import NotKept
from app.http.openapi import Shape, describe
from app.http.requests.constraints import ResponseFormat
from app.http.requests.unserved import NO_EFFECT
from app.http.requests.wire import Body, Ignored, Name, Wire
from app.serving.admission import Ticket
from app.serving.compiling.schema_registry import RegisteredSchema

PATH = "/v1/schemas"
_ONE = f"{PATH}/{{schema_id}}"
_WALK = f"{_ONE}/walk"

_LONGEST_POINTER = 2_000
_MOST_OPEN = 256

_TYPES = {JsonSchema: "json_schema", Regex: "regex", Choice: "choice", Grammar: "grammar"}
"""Of ``response_format``, by what may be kept under an id."""


class GraphFields(Wire):
    """Which picture of the graph."""

    open: list[Annotated[str, Field(max_length=_LONGEST_POINTER)]] = Field(
        default_factory=list, max_length=_MOST_OPEN
    )
    """JSON Pointers of values whose inside is drawn, however large."""
    max_states: Annotated[int, Field(ge=2, le=MOST_STATES)] = 400
    drawn: bool = False
    """Whether routes, boxes and states have their SVG elements, and the graph its DOT text."""

    @property
    def options(self) -> GraphOptions:
        return GraphOptions(tuple(sorted(set(self.open))), self.max_states, self.drawn)


class SchemaRequest(
    Body,
    json_schema_extra={"oneOf": [{"required": ["schema"]}, {"required": ["response_format"]}]},
):
    """Either the fields of OpenAI's ``json_schema``, or a whole ``response_format``."""

    no_effect = NO_EFFECT | {"description"}

    schema_: Any = Field(default=None, alias="schema")
    documents: list[dict[str, Any]] | None = None
    """Schemas that ``schema`` refers to, or that they refer to, each by its ``$id``."""
    strict: bool | None = None
    name: Name | None = None
    whitespace: Whitespace | None = None
    """None is the server's default."""
    on_unsupported: OnUnsupported | None = None
    """As in requests for answers; None: ``strict: false`` relaxes."""
    response_format: ResponseFormat | None = None
    graph: bool | GraphFields = False
    """Whether the answer has the graph, and which picture of it."""


class WalkRequest(Body):
    no_effect = NO_EFFECT

    text: Annotated[str, Field(max_length=MOST_WALKED)]
    """The whole answer so far."""
    graph: GraphFields | None = None
    """Which picture, as in the request that drew it."""
    state: str | None = None
    """That of the walk of a beginning of this text, over the same picture: the walk goes on."""


class WalkStep(Shape):
    """A way that was taken. Offsets are characters of the text."""

    way: str
    start: int
    end: int
    """Of the last step perhaps that of the text only."""
    leap: int | None
    """Where the leap begins; null: nothing of one was said yet."""


class WalkObject(Shape):
    steps: list[WalkStep]
    kept: int
    """Steps of the walk that ``state`` is of that stay as they were; ``steps`` come after them."""
    at: str
    """The state that was reached last."""
    complete: bool
    """Whether an answer may end here."""
    accepted: int
    """Characters of the text up to where it leaves the graph; all of them where it does not."""
    state: str
    """To go on from."""


class Drawn(Shape):
    svg: tuple[str, dict[str, str | float], Any] | None = None
    """Where ``drawn`` was asked for, the SVG element: its tag, its attributes, and its text or the
    list of elements in it, of the same form."""


class GraphState(Drawn):
    """A circle: a state in which more than one way leads on, or the answer may end."""

    id: str
    x: float
    y: float
    label: str
    note: str
    """What is written beside it."""
    accepting: bool
    repeats: str
    """How often what leads back here may come; "" where nothing does."""
    rule: int | None
    """Number of the rule whose body starts here."""
    pointer: str | None
    """To the place in the schema, where there is one."""


class GraphWay(Shape):
    """What is decided, and the leap after it."""

    id: str
    source: str
    target: str | None
    """Null: beyond the limit."""
    kind: Literal["start", "byte", "class", "text", "rule", "fold"]
    choice: str
    """As it is drawn, for people; · is a space."""
    leap: str
    """The same, of the forced bytes. Long ones have ... in their middle."""
    pointer: str | None
    open: str | None
    """Of a fold: the pointer that opens it."""


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
    """Ways that have no line."""


class GraphRoute(Drawn):
    """A line between a state and a box, from rim to rim."""

    box: int
    """Its index."""
    end: Literal["in", "out"]
    """Into the box, from its source, or out of it, to its target."""
    points: list[list[float]]
    back: bool
    """Whether it goes up."""


class GraphObject(Shape):
    """In pixels of a monospace font of 12 px whose characters are 7.3 px wide."""

    whole: bool
    """Whether nothing was left out for the limit."""
    width: float
    height: float
    forced_share: float
    states: list[GraphState]
    ways: list[GraphWay]
    boxes: list[GraphBox]
    routes: list[GraphRoute]
    dot: str | None = None
    """Where ``drawn`` was asked for, the graph in Graphviz' language."""


class Problem(Shape):
    message: str
    code: str


class NoGraph(Shape):
    """Why there is none, though the schema can be used."""

    error: Problem


class SchemaObject(Shape):
    id: str
    """The same wherever and whenever this schema is registered."""
    object: Literal["schema"]
    created: int
    type: Literal["json_schema", "regex", "choice", "grammar"]
    name: str | None
    strict: bool | None
    """Null, as ``whitespace`` and ``schema`` are, where it is no JSON Schema."""
    whitespace: str | None
    schema_: Any = Field(alias="schema")
    explain: dict[str, Any] | None
    """The report of ``leapjson explain --json``, or ``error``; null unless it is JSON Schema."""
    graph: GraphObject | NoGraph | None = None
    """Where it was asked for."""


@dataclass(frozen=True, slots=True)
class _Call:
    spec: ConstraintSpec
    name: str | None
    param: str
    """The field that the schema came in."""
    graph: GraphOptions | None
    """None: it was not asked for."""


class _NotRegistered(NotKept):
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
    graph = asked.graph.options if isinstance(asked.graph, GraphFields) else None
    if asked.graph is True:
        graph = GraphOptions()
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
                f"{field} belongs beside schema; with response_format put it inside", param=field
            )
    found = api.constraints.response_format(asked.response_format, ignored)
    if not isinstance(found, JsonSchema | Regex | Choice | Grammar):
        raise InvalidRequest(
            "only formats of type json_schema, regex, choice and grammar can be registered",
            param="response_format.type",
        )
    return _Call(_as_asked(found, asked), asked.name, "response_format", graph)


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
    on_unsupported = asked.on_unsupported
    if on_unsupported is None:
        return spec
    if not isinstance(spec, JsonSchema):
        raise InvalidRequest(
            "on_unsupported is for JSON Schemas; leave it out", param="on_unsupported"
        )
    return replace(spec, relax=on_unsupported == "relax")


def _object(registered: RegisteredSchema) -> bytes:
    spec = registered.spec
    schema = spec if isinstance(spec, JsonSchema) else None
    head = {
        "id": registered.id,
        "object": "schema",
        "created": registered.created,
        "type": _TYPES[type(spec)],
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
        options = GraphOptions() if asked.graph is None else asked.graph.options
        return await api.graphs.walk(registered, options, asked.text, asked.state, ticket)

    return await endpoint(_WALK, lambda body, ignored, _: WalkRequest.read(body, ignored), follow)(
        request
    )


@router.get(_ONE, openapi_extra=describe("Get a registered schema", SchemaObject, errors=[404]))
async def retrieve_schema(schema_id: str, request: Request) -> Response:
    registered = await _find(schema_id, request)
    return Response(_object(registered), media_type="application/json")
