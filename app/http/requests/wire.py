"""What requests to all endpoints have in common: strict models, known fields, complaints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.core.errors import InvalidRequest, UnknownModel

_MISSING = object()
_NOT_SUPPORTED = "Not supported here: only values that ask for nothing are taken."
_NO_EFFECT = "Taken, and of no effect on what is generated."

_MOST_ERRORS = 1000
"""Errors that are looked through for the one to tell: to list them costs 10 us for each."""


class Wire(BaseModel):
    """Part of a request. A field it does not declare is an error, and no value is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


NotServed = Mapping[str, tuple[Any, ...]]
"""Fields that clients know and this server does not have, with the values that ask for nothing."""


class Body(Wire):
    """A whole request: the fields that this server acts on, and those that it only knows."""

    not_served: ClassVar[NotServed] = {}
    """Any other value of these is an error."""
    no_effect: ClassVar[frozenset[str]] = frozenset()
    """Fields that change nothing in what is generated, and may have any value."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """With the fields that are only known."""
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
        fields = {field.alias or name for name, field in cls.model_fields.items()}
        for name in known:
            if name not in fields:
                raise _unrecognized(name)
        try:
            return cls.model_validate(known)
        except ValidationError as error:
            raise complaint(error, body) from None


def kind_among(*known: str, default: str = "other") -> Callable[[Any], str]:
    """Reads the tag of a union's member, its ``type``; ``other`` for one that is not ``known``.

    ``default`` is for members that have no type.
    """

    def kind(value: Any) -> str:
        found = value.get("type", default) if isinstance(value, dict) else default
        return found if isinstance(found, str) and found in known else "other"

    return kind


def check_model(asked: str, served: str) -> None:
    """Raises ``UnknownModel``."""
    if asked != served:
        raise UnknownModel(
            f"the model {asked!r} does not exist here; this server serves {served!r}", param="model"
        )


def complaint(error: ValidationError, body: Mapping[str, Any]) -> InvalidRequest:
    """The first field that is wrong, in OpenAI's words where it has words for it."""
    if error.error_count() > _MOST_ERRORS:
        return InvalidRequest(f"the body has {error.error_count()} members that are wrong")
    details = error.errors(include_url=False, include_context=False, include_input=False)
    details = [each for each in details if each["loc"][:1] == details[0]["loc"][:1]]
    # Of a union's branches, the one that got furthest into the input says most, and one that
    # dislikes the value more than one that dislikes its type.
    detail = max(details, key=lambda each: (len(each["loc"]), not each["type"].endswith("_type")))
    missing = detail["type"] == "missing"
    param = _param(detail["loc"], body, missing=missing)
    if missing:
        return InvalidRequest(f"Missing required parameter: {param!r}.", param=param)
    if detail["type"] == "extra_forbidden":
        return _unrecognized(param)
    return InvalidRequest(f"{param}: {detail['msg']}", param=param or None)


def _unrecognized(param: str) -> InvalidRequest:
    return InvalidRequest(f"Unrecognized request argument supplied: {param}", param=param)


def _param(location: Sequence[str | int], body: Any, *, missing: bool) -> str:
    """``("messages", 0, "content", "str")`` as ``messages[0].content``.

    A step that leads nowhere in the body names a branch of a union and is left out, but for the
    last one where a field is missing.
    """
    path = ""
    value = body
    if location and location[0] == "response_format":
        # What follows is the union's branch, which may have the name of a field (json_schema).
        location = [location[0], *location[2:]]
    for position, step in enumerate(location):
        if isinstance(step, int) and isinstance(value, list):
            path += f"[{step}]"
            value = value[step]
        elif isinstance(value, dict) and step in value:
            path += f".{step}"
            value = value[step]
        elif missing and position == len(location) - 1:
            path += f".{step}"
    return path.removeprefix(".")


def _check_not_served(body: Mapping[str, Any], not_served: NotServed) -> None:
    """Raises ``InvalidRequest`` for a field that asks for something this server does not have."""
    for name, values in not_served.items():
        value = body.get(name, _MISSING)
        # 0 == False in Python, so types are compared too.
        if value is not _MISSING and not any(
            type(value) is type(each) and value == each for each in values
        ):
            raise unsupported(name)


def unsupported(param: str) -> InvalidRequest:
    return InvalidRequest(f"{param} is not supported by this server; leave it out", param=param)
