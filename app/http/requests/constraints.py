"""All fields by which a request may give its constraint, and the one that it used.

OpenAI's ``response_format``, vLLM's ``structured_outputs`` (and its older ``guided_*``), SGLang's
``regex``, ``ebnf`` and ``json_schema``, llama.cpp's ``grammar`` and ``json_schema``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from app.answer.tools import objects_of
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest, InvalidSchema, UnknownSchema
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from app.http.config import Whitespace
from app.http.requests.body import parsed
from app.http.requests.structural_tag import structure
from app.http.requests.wire import Ignored, Name, Wire, invalid

_LONGEST_WHITESPACE_PATTERN = 64


class JsonSchemaFormat(Wire):
    name: Name | None = None
    schema_: Any = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextResponse(Wire):
    type: Literal["text"]


class JsonObjectResponse(Wire):
    type: Literal["json_object"]
    schema_: Any = Field(default=None, alias="schema")
    """Extension of llama.cpp and others: the object has to be valid against it."""
    whitespace: Whitespace | None = None
    """Extension; None is the server's default."""


class JsonSchemaResponse(Wire):
    """The schema stands in ``json_schema``, or beside the type (Responses, llama.cpp)."""

    type: Literal["json_schema"]
    json_schema: JsonSchemaFormat | None = None
    name: Name | None = None
    schema_: Any = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None
    schema_id: str | None = None
    """Extension: id from ``POST /v1/schemas``, instead of a schema."""
    whitespace: Whitespace | None = None
    """Extension; None is the server's default."""

    @property
    def inner(self) -> JsonSchemaFormat | None:
        """The schema, from either of its two places."""
        if self.schema_ is None:
            return self.json_schema
        return JsonSchemaFormat(
            name=self.name, schema=self.schema_, description=self.description, strict=self.strict
        )


def _either_name(schema: dict[str, Any]) -> None:
    """Allow ``regex`` as another name of the required ``pattern``."""
    schema["properties"]["regex"] = schema["properties"]["pattern"]
    schema["required"].remove("pattern")
    schema["anyOf"] = [{"required": ["pattern"]}, {"required": ["regex"]}]


class RegexResponse(Wire, json_schema_extra=_either_name):
    type: Literal["regex"]
    pattern: str = Field(validation_alias=AliasChoices("pattern", "regex"))


class ChoiceResponse(Wire):
    type: Literal["choice"]
    choices: Annotated[list[str], Field(min_length=1)]


class GrammarResponse(Wire):
    """A grammar. With ``auto``, a line ``name ::= ...`` makes it GBNF; otherwise it is Lark."""

    type: Literal["grammar"]
    grammar: str
    syntax: Literal["auto", "gbnf", "lark"] = "auto"


class StructuralTagResponse(Wire):
    """Structural tag of vLLM and SGLang, in either of its two forms."""

    type: Literal["structural_tag"]
    format: dict[str, Any] | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None


ResponseFormat = Annotated[
    TextResponse
    | JsonObjectResponse
    | JsonSchemaResponse
    | RegexResponse
    | ChoiceResponse
    | GrammarResponse
    | StructuralTagResponse,
    Field(discriminator="type"),
]


class StructuredOutputs(Wire):
    """vLLM's ``StructuredOutputsParams``: one constraint, and how white space is set."""

    json_: str | dict[str, Any] | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1)] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    disable_fallback: bool | None = None
    """No effect: there is no fallback to another engine."""
    whitespace_pattern: str | None = None


class ExtensionFields(Wire):
    """The fields of vLLM, SGLang and llama.cpp that name a constraint."""

    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Field(min_length=1)] | None = None
    guided_grammar: str | None = None
    structural_tag: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    grammar: str | None = None
    json_schema: str | dict[str, Any] | bool | None = None


class ConstraintFields(ExtensionFields):
    """All fields that name a constraint; at most one of them is given."""

    response_format: ResponseFormat | None = None


_EXTENSIONS = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "structural_tag": "structural_tag",
    "regex": "regex",
    "ebnf": "ebnf",
    "grammar": "grammar",
    "json_schema": "json",
}
"""Kind of constraint in each field of ``ExtensionFields``; ``structured_outputs`` has several."""
_STRUCTURED_OUTPUTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


class ConstraintReader:
    """Finds the constraint of a request."""

    def __init__(self, default_whitespace: str, schema_by_id: Callable[[str], JsonSchema]) -> None:
        """``schema_by_id``: returns a schema compiled ahead; raises ``UnknownSchema``."""
        self._whitespace = default_whitespace
        self._schema_by_id = schema_by_id

    def read(
        self,
        fields: ExtensionFields,
        format: ResponseFormat | None,
        ignored: Ignored,
        param: str = "response_format",
    ) -> tuple[str, ConstraintSpec | None]:
        """The field that gives the constraint, one of ``fields`` or ``param`` for ``format``, and
        the constraint; None: the text is free.

        Raises ``InvalidRequest``, also if two are given.
        """
        found: list[tuple[str, ConstraintSpec | None]] = []
        if (spec := self.response_format(format, ignored, param)) is not None:
            found.append((param, spec))
        if fields.structured_outputs is not None:
            found += self._structured_outputs(fields.structured_outputs, ignored)
        for name, holds in _EXTENSIONS.items():
            if (value := getattr(fields, name)) is not None:
                spec = _spec(holds, value, name, self._whitespace, ignored)
                found.append((name, spec))
        if len(found) > 1:
            names = " and ".join(name for name, _ in found)
            raise InvalidRequest(
                f"{names} are given, but a request has one constraint; leave out all but one",
                param=found[1][0],
            )
        return found[0] if found else (param, None)

    def response_format(
        self, asked: ResponseFormat | None, ignored: Ignored, param: str = "response_format"
    ) -> ConstraintSpec | None:
        """The constraint that the field ``param`` asks for."""
        match asked:
            case JsonObjectResponse(schema_=schema, whitespace=whitespace):
                form = whitespace or self._whitespace
                if schema is None:
                    return JsonObject(form)
                try:
                    objects = objects_of(schema)
                except InvalidSchema as error:
                    raise error.named({"constraint": param}) from None
                return JsonSchema(objects, close_objects=True, whitespace=form)
            case JsonSchemaResponse():
                return self._json_schema(asked, param)
            case RegexResponse(pattern=pattern):
                return Regex(_given(pattern, f"{param}.pattern"))
            case ChoiceResponse(choices=choices):
                return Choice(tuple(choices))
            case GrammarResponse(grammar=text, syntax=syntax):
                return Grammar(_given(text, f"{param}.grammar"), syntax)
            case StructuralTagResponse():
                tag = asked.model_dump(exclude_none=True)
                return structure(tag, self._whitespace, ignored, param)
        return None

    def _json_schema(self, asked: JsonSchemaResponse, param: str) -> JsonSchema:
        form = asked.whitespace or self._whitespace
        places = {
            "json_schema": asked.json_schema,
            "schema": asked.schema_,
            "schema_id": asked.schema_id,
        }
        if sum(value is not None for value in places.values()) != 1:
            usual = "json_schema" if param == "response_format" else "schema"
            others = " or ".join(name for name in places if name in ("schema_id", usual))
            raise InvalidRequest(
                f"{param} of type json_schema needs either {others}", param=f"{param}.{usual}"
            )
        if (inner := asked.inner) is not None:
            return JsonSchema(
                inner.schema_,
                close_objects=inner.strict is not False,
                whitespace=form,
                relax=inner.strict is False,
            )
        assert asked.schema_id is not None
        try:
            known = self._schema_by_id(asked.schema_id)
        except UnknownSchema as error:
            error.param = f"{param}.schema_id"
            raise
        if asked.whitespace not in (None, known.whitespace):
            raise InvalidRequest(
                f"this schema_id was compiled with whitespace {known.whitespace!r}; leave "
                "whitespace out, or register the schema again",
                param=f"{param}.whitespace",
            )
        return known

    def _structured_outputs(
        self, asked: StructuredOutputs, ignored: Ignored
    ) -> list[tuple[str, ConstraintSpec]]:
        close_objects = asked.disable_additional_properties is not False
        # White space that both the pattern and ``disable_any_whitespace`` admit.
        pattern, spaced = asked.whitespace_pattern, asked.disable_any_whitespace
        whitespace = self._whitespace if pattern is None else _admitted_by(pattern)
        if spaced and (pattern is None or whitespace == "flexible"):
            whitespace = "spaced"
        found = []
        for name in _STRUCTURED_OUTPUTS:
            value = asked.json_ if name == "json" else getattr(asked, name)
            if value is not None and not (name == "json_object" and value is False):
                param = f"structured_outputs.{name}"
                spec = _spec(name, value, param, whitespace, ignored, close_objects=close_objects)
                found.append((param, spec))
        if not found:
            raise InvalidRequest(
                "structured_outputs has no constraint: give one of json, regex, choice, grammar, "
                "json_object and structural_tag",
                param="structured_outputs",
            )
        return found


def _spec(
    holds: str,
    value: Any,
    param: str,
    whitespace: str,
    ignored: Ignored,
    *,
    close_objects: bool = True,
) -> ConstraintSpec:
    """The constraint for ``value`` of the field ``param``. Raises ``InvalidRequest``."""
    match holds:
        case "json":
            schema = parsed(value, param) if isinstance(value, str) else value
            return JsonSchema(schema, close_objects=close_objects, whitespace=whitespace)
        case "json_object":
            return JsonObject(whitespace)
        case "regex":
            return Regex(_given(value, param))
        case "choice":
            return Choice(tuple(value))
        case "structural_tag":
            return structure(value, whitespace, ignored, param)
    return Grammar(_given(value, param), "gbnf" if holds == "ebnf" else "auto")


def _given(text: str, param: str) -> str:
    """``text`` of the field ``param``. Raises ``InvalidRequest`` if it is empty."""
    if not text:
        raise invalid(param, "it is empty; write a constraint, or leave it out")
    return text


def _admitted_by(pattern: str) -> str:
    """A white space setting that always matches ``pattern`` (a field of vLLM's older engines)."""
    param = "structured_outputs.whitespace_pattern"
    try:
        if len(pattern) > _LONGEST_WHITESPACE_PATTERN:
            raise ValueError("it is too long")
        if "(" in pattern:  # ((\s?){999}){999} takes a second, and with two more of them for ever
            raise ValueError("groups are not supported")
        match = re.compile(pattern).fullmatch
    except (ValueError, re.error) as error:
        raise InvalidRequest(f"whitespace_pattern cannot be used: {error}", param=param) from None
    if all(match(text) for text in ("", " ", "\n", "  ", "\n ", "\n  ")):
        return "flexible"
    if match("") and match(" "):
        return "spaced"
    if match(""):
        return "compact"
    raise InvalidRequest(
        "whitespace_pattern must match the empty text, because answers have no whitespace after "
        "a bracket; leave it out, or send one that does",
        param=param,
    )
