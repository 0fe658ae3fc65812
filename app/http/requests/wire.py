"""What requests to all endpoints have in common: strict models, known fields, complaints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from app.core.errors import InvalidRequest

_NOT_SUPPORTED = "Not supported here: only values that ask for nothing are taken."
_NO_EFFECT = "Taken, and of no effect on what is generated."

_MOST_ERRORS = 1000
"""Errors among which the one to report is sought: listing them takes 10 us each."""


class Wire(BaseModel):
    """Part of a request. A field it does not declare is an error, and no value is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class Other(Wire, extra="allow"):
    """An item, a part or a tool whose type is not served: known to be one, and refused by name."""

    type: str


Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

NotServed = Mapping[str, tuple[Any, ...]]
"""Fields that clients know and this server does not have, with the values that ask for nothing."""


class Body(Wire):
    """A whole request: the fields that this server acts on, and others that it accepts."""

    not_served: ClassVar[NotServed] = {}
    """Any other value of these is an error."""
    no_effect: ClassVar[frozenset[str]] = frozenset()
    """Fields that change nothing in what is generated, and may have any value."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """With the fields of ``not_served`` and ``no_effect``."""
        described = handler(schema)
        properties = handler.resolve_ref_schema(described)["properties"]
        for name, values in cls.not_served.items():
            properties[name] = {"enum": list(values), "description": _NOT_SUPPORTED}
        for name in sorted(cls.no_effect):
            properties[name] = {"description": _NO_EFFECT}
        return described

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """``body``, checked. Raises ``InvalidRequest`` that names the field and the reason."""
        _check_not_served(body, cls.not_served)
        known = {
            name: value
            for name, value in body.items()
            if name not in cls.not_served and name not in cls.no_effect
        }
        # Found here, the first is named at once: pydantic would list 200,000 for half a second.
        fields = {field.alias or name for name, field in cls.model_fields.items()}
        for name in known:
            if name not in fields:
                raise _unrecognized(name)
        try:
            return cls.model_validate(known)
        except ValidationError as error:
            raise complaint(error, known) from None


def type_among(*known: str, default: str = "other") -> Callable[[Any], str]:
    """A function that reads the ``type`` of a union's member; ``other`` if it is not ``known``.

    ``default`` is for members that have no type.
    """

    def tag(value: Any) -> str:
        found = value.get("type", default) if isinstance(value, dict) else default
        return found if isinstance(found, str) and found in known else "other"

    return tag


def complaint(error: ValidationError, body: Mapping[str, Any]) -> InvalidRequest:
    """The error for the first field that is wrong, in OpenAI's words where it has some."""
    if error.error_count() > _MOST_ERRORS:
        return InvalidRequest(f"the body has {error.error_count()} members that are wrong")
    details = error.errors(include_url=False, include_context=False)
    details = [each for each in details if each["loc"][:1] == details[0]["loc"][:1]]
    # Of a union's branches, the one that got furthest into the input says most, and one that
    # dislikes the value more than one that dislikes its type.
    detail = max(details, key=lambda each: (len(each["loc"]), not each["type"].endswith("_type")))
    param = _param(detail, body)
    if detail["type"] == "missing":
        return missing(param)
    if detail["type"] == "extra_forbidden":
        return _unrecognized(param)
    return refusal(param, detail["msg"])


def refusal(param: str, reason: str) -> InvalidRequest:
    """The field ``param`` is wrong."""
    return InvalidRequest(f"{param}: {reason}", param=param)


def missing(param: str) -> InvalidRequest:
    return InvalidRequest(f"Missing required parameter: {param!r}.", param=param)


def unsupported(param: str) -> InvalidRequest:
    return InvalidRequest(f"{param} is not supported by this server; leave it out", param=param)


def check_moved(body: Mapping[str, Any], moved: Mapping[str, str]) -> None:
    """Raises ``InvalidRequest`` for a field of chat completions that has another name here."""
    for name, here in moved.items():
        if body.get(name) is not None:
            raise InvalidRequest(
                f"{name} is a field of chat completions; here it is called {here}", param=name
            )


def _unrecognized(param: str) -> InvalidRequest:
    return InvalidRequest(f"Unrecognized request argument supplied: {param}", param=param)


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
    """The path of those ``steps`` that lead from ``value`` to one that ``ends`` accepts.

    The other steps name branches of unions. A branch may have the name of a field (json_schema),
    so only where a path ends tells which of the two a step is.
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


def _check_not_served(body: Mapping[str, Any], not_served: NotServed) -> None:
    """Raises ``InvalidRequest`` for a field that asks for something this server does not have."""
    for name, values in not_served.items():
        # 0 == False in Python, so types are compared too.
        if name in body and (type(body[name]), body[name]) not in [(type(v), v) for v in values]:
            raise unsupported(name)
