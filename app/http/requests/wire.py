"""What requests to all endpoints have in common: strict models, known fields, errors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from app.core.errors import InvalidRequest

HEADER = "x-leapjson-ignored"

_MOST_NAMES = 16
_LONGEST_NAME = 64
_INDEX = re.compile(r"\[\d+\]")


class Ignored:
    """Fields of one request that were ignored, in the order they were found."""

    def __init__(self, *, refuses: bool = False) -> None:
        """``refuses``: fields are refused instead of ignored."""
        self.refuses = refuses
        self._names: dict[str, None] = {}
        """At most ``_MOST_NAMES``: a body may have 200,000."""
        self._more = False

    def leave_out(self, param: str, reason: str | None = None, *, name: str | None = None) -> None:
        """Ignore the field ``param``. Raises ``InvalidRequest`` if fields are refused instead.

        ``reason``: the error's message; by default the field is unknown. ``name``: the name to
        report; by default ``param``.
        """
        if self.refuses:
            unknown = f"Unrecognized request argument supplied: {param}"
            raise InvalidRequest(reason or unknown, param=param)
        self.note(name or param)

    def note(self, param: str) -> None:
        """Report an ignored field that is never refused."""
        name = _INDEX.sub("[]", param)
        if len(self._names) < _MOST_NAMES:
            self._names[name] = None
        elif name not in self._names:
            self._more = True

    @property
    def headers(self) -> dict[str, str]:
        """The header that names the fields (``tools[].cache_control``); empty if there are none.

        Names are separated by commas; characters not allowed in headers are percent-encoded.
        """
        names = [
            name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
            for name in [quote(name, safe="[].=:/$@") for name in self._names]
        ]
        if self._more:
            names.append("...")
        return {HEADER: ", ".join(names)} if names else {}


_NOT_SUPPORTED = "Not supported: only values that have no effect are accepted."
_NO_EFFECT = "Accepted; has no effect on the answer."

_MOST_ERRORS = 1000
"""Maximum errors that are searched for the one to report: listing them takes 10 us each."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field that clients know and this server does not support."""

    harmless: tuple[Any, ...] = (None,)
    """Values that would have no effect."""
    instead: str | None = None
    """Advice in the error for any other value, which would change the answer. None: it would not,
    and the field is ignored and reported."""

    def has_effect(self, value: Any) -> bool:
        """Whether ``value`` would have an effect. 0 == False in Python, so types are compared."""
        return (type(value), value) not in [(type(each), each) for each in self.harmless]


class Wire(BaseModel):
    """Part of a request. Values are not converted; undeclared fields are ignored.

    Ignored fields are named in the answer, or refused: see ``Ignored``.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, protected_namespaces=())

    unsupported: ClassVar[Mapping[str, Unsupported]] = {}
    """Known fields that are not supported."""
    no_effect: ClassVar[frozenset[str]] = frozenset()
    """Fields that have no effect on the answer, and may have any value."""
    allows_extra: ClassVar[bool] = False
    """Whether clients add fields of their own, which are never refused."""

    @classmethod
    def known_names(cls) -> frozenset[str]:
        """Names of fields in requests, with those that are not supported or have no effect."""
        return _declared(cls) | cls.unsupported.keys() | cls.no_effect

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema with the fields of ``unsupported`` and ``no_effect`` added."""
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).setdefault("properties", {})
        for name, field in cls.unsupported.items():
            if field.instead is not None:
                reason = f"{_NOT_SUPPORTED} Instead: {field.instead}."
                properties.setdefault(name, {"enum": list(field.harmless), "description": reason})
        for name in sorted(cls.no_effect):
            properties.setdefault(name, {"description": _NO_EFFECT})
        return described


class Extensible(Wire):
    """A part that clients send back, with fields of their own added."""

    allows_extra = True


class Other(Wire):
    """An item, a part or a tool of an unsupported type, of which only the type is read."""

    type: str


Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16),
]


def _not_zero(limit: int) -> int:
    if limit == 0:
        raise PydanticCustomError("zero", "Input should be greater than or equal to 1, or -1")
    return limit


TokenLimit = Annotated[
    int, Field(ge=-1, lt=2**31, json_schema_extra={"not": {"const": 0}}), AfterValidator(_not_zero)
]
"""Maximum tokens of an answer; -1 sets no limit, as if it were missing."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Body(Wire):
    """A whole request."""

    @classmethod
    def read(cls, body: Mapping[str, Any], ignored: Ignored) -> Self:
        """``body``, checked. Raises ``InvalidRequest`` that names the field and the reason.

        Fields that are not acted on go to ``ignored``. Takes time linear in the size of ``body``.
        """
        declared, known = _declared(cls), {}
        for name, value in body.items():
            if name in declared:
                known[name] = value
            elif name not in cls.no_effect:
                _leave_out(cls, name, value, name, ignored)
        try:
            wire = cls.model_validate(known)
        except ValidationError as error:
            raise complaint(error, known) from None
        _leave_out_inside(wire, "", ignored)
        return wire


@functools.cache
def _declared(model: type[Wire]) -> frozenset[str]:
    """The names of the model's fields in requests."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        sent = field.validation_alias or name
        names.update(map(str, sent.choices if isinstance(sent, AliasChoices) else [sent]))
    return frozenset(names)


def _leave_out_inside(wire: Wire, path: str, ignored: Ignored) -> None:
    """Ignore or refuse the undeclared fields in ``wire``, which is at ``path``."""
    if wire.__pydantic_extra__:
        for name, value in wire.__pydantic_extra__.items():
            _leave_out(type(wire), name, value, f"{path}{name}", ignored)
        wire.__pydantic_extra__.clear()
    for name, value in wire.__dict__.items():
        if value is None or type(value) is str:  # most are, and this is for every message
            continue
        if isinstance(value, Wire):
            if not isinstance(value, Other):
                _leave_out_inside(value, f"{path}{name}.", ignored)
        elif isinstance(value, list) and value and isinstance(value[0], Wire):
            for index, each in enumerate(value):
                if not isinstance(each, Other):
                    _leave_out_inside(each, f"{path}{name}[{index}].", ignored)


def _leave_out(kind: type[Wire], name: str, value: Any, param: str, ignored: Ignored) -> None:
    """Ignore a field that ``kind`` does not declare. Raises ``InvalidRequest`` if it is refused."""
    known = kind.unsupported.get(name)
    if known is None:
        if kind.allows_extra:
            ignored.note(param)
        else:
            ignored.leave_out(param)
    elif known.has_effect(value):
        reason = f"{param} is not supported; {known.instead or 'leave it out'}"
        if known.instead is not None:
            raise InvalidRequest(reason, param=param)
        ignored.leave_out(param, reason)


@dataclass(frozen=True, slots=True)
class ByType:
    """Metadata of a union of models: a value is read as the member with its ``type``.

    ``Other``, if it is a member, takes all other types. ``default``: type of values without one,
    and of unknown ones if there is no ``Other``; ``without``: types that are not accepted here.
    """

    default: str = "other"
    without: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices: dict[Hashable, CoreSchema] = {}
        for model in get_args(source):
            schema = handler.generate_schema(model)
            kinds = model.model_fields["type"].annotation
            literals = [each for part in (kinds, *get_args(kinds)) for each in get_args(part)]
            tags = [each for each in literals if isinstance(each, str)] or ["other"]
            choices |= dict.fromkeys([each for each in tags if each not in self.without], schema)

        def tag(value: Any) -> str:
            found = value.get("type", self.default) if isinstance(value, dict) else self.default
            if isinstance(found, str) and found in choices:
                return found
            return "other" if "other" in choices else self.default

        return core_schema.tagged_union_schema(choices, tag)


def complaint(error: ValidationError, body: Mapping[str, Any]) -> InvalidRequest:
    """The error for the first field that is wrong, in OpenAI's words where it has some."""
    if error.error_count() > _MOST_ERRORS:
        return InvalidRequest(f"the body has {error.error_count()} invalid fields")
    details = error.errors(include_url=False, include_context=False)
    details = [each for each in details if each["loc"][:1] == details[0]["loc"][:1]]
    # Of a union's branches, report the one that got furthest into the input, and an error about
    # the value rather than about its type.
    detail = max(details, key=lambda each: (len(each["loc"]), not each["type"].endswith("_type")))
    param = _param(detail, body)
    # Pydantic's own text names our class.
    reason = "must be an object" if detail["type"] == "model_type" else detail["msg"]
    return missing(param) if detail["type"] == "missing" else invalid(param, reason)


def invalid(param: str, reason: str) -> InvalidRequest:
    """The error for an invalid field ``param``."""
    return InvalidRequest(f"{param}: {reason}", param=param)


def missing(param: str) -> InvalidRequest:
    return InvalidRequest(f"Missing required parameter: {param!r}.", param=param)


def _param(detail: ErrorDetails, body: Mapping[str, Any]) -> str:
    """``("messages", 0, "content", "str")`` as ``messages[0].content``."""
    steps, last = list(detail["loc"]), ""
    if detail["type"] == "missing":
        last = f".{steps.pop()}"  # the input is the object that lacks it
    found = _path(body, steps, lambda value: value is detail["input"])
    if found is None:  # a key of an object is wrong, which is no value in the body
        found = _path(body, steps, lambda value: True)
    return f"{found}{last}".removeprefix(".")


def _path(value: Any, steps: Sequence[str | int], ends: Callable[[Any], bool]) -> str | None:
    """The path, along some of ``steps``, from ``value`` to a value that ``ends`` accepts.

    The other steps name branches of unions. A branch may have the name of a field (json_schema),
    so only the end of a path shows which of the two a step is.
    """
    if not steps:
        return "" if ends(value) else None
    step, rest = steps[0], steps[1:]
    in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
    if in_list or (isinstance(value, dict) and step in value):
        path = _path(value[step], rest, ends)
        if path is not None:
            return f"[{step}]{path}" if in_list else f".{step}{path}"
    return _path(value, rest, ends)
