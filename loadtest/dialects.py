"""Request formats for constraints, one for each kind of server.

A dialect makes the body of ``POST /v1/chat/completions`` from a ``Request``. All of them stream
and ask for the usage at the end of the stream. Those that end in ``-json`` ask for calls as JSON in
the answer's text: the same task for servers that enforce schemas, but cannot enforce function calls
of models not trained for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from app.answer.formats import ChatFormat
from app.answer.formats.families import PLAIN
from app.answer.prompt import Conversation, template_input
from app.answer.tools import MOST_CALLS, FunctionTool
from loadtest.requests import Call, Constraint, Content, Expected, Pattern, Request, Schema, Tools
from loadtest.schemas import strict_object

Fields = dict[str, Any]


class UnsupportedConstraintError(Exception):
    """The server's API cannot express this constraint."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between servers. ``pattern`` None: no regular expressions."""

    name: str
    schema: Callable[[Mapping[str, Any]], Fields]
    pattern: Callable[[str], Fields] | None = None
    ignores_end: bool = False
    """Whether the server supports ``ignore_eos``."""
    calls_in_text: bool = False

    def asked(self, request: Request) -> Request:
        """``request`` in the form that is sent and checked."""
        if self.calls_in_text and isinstance(request.constraint, Tools):
            return _in_text(request, request.constraint)
        return request

    def body(self, request: Request, model: str, seed: int, temperature: float) -> Fields:
        """The request's JSON. Raises ``UnsupportedConstraintError``."""
        fields: Fields = {
            "model": model,
            "messages": list(request.messages),
            "max_tokens": request.max_tokens,
            "temperature": temperature,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.constraint is not None:
            fields.update(self._constraint(request.constraint))
        if request.exact_length and self.ignores_end:
            fields["ignore_eos"] = True
        return fields

    def _constraint(self, constraint: Constraint) -> Fields:
        match constraint:
            case Schema(schema):
                return self.schema(schema)
            case Tools(functions, parallel):
                tools = [{"type": "function", "function": dict(each)} for each in functions]
                fields: Fields = {"tools": tools, "tool_choice": "required"}
                return fields if parallel else {**fields, "parallel_tool_calls": False}
            case Pattern(pattern):
                if self.pattern is None:
                    raise UnsupportedConstraintError(
                        f"there is no regular expression in the dialect {self.name}"
                    )
                return self.pattern(pattern)


def _openai_schema(schema: Mapping[str, Any]) -> Fields:
    content = {"name": "answer", "schema": dict(schema), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": content}}


def _llama_cpp_schema(schema: Mapping[str, Any]) -> Fields:
    """llama-cpp-python supports only this form; llama.cpp's own server supports it, too."""
    return {"response_format": {"type": "json_object", "schema": dict(schema)}}


@dataclass(frozen=True, slots=True)
class _CallsInText:
    """Applies ``expected`` to an answer whose calls are in its text."""

    expected: Expected

    def right(self, content: Content) -> tuple[int, int]:
        try:
            calls = [
                Call(each["name"], json.dumps(each["arguments"]))
                for each in json.loads(content.text)["tool_calls"]
            ]
        except (ValueError, TypeError, KeyError):
            calls = []
        return self.expected.right(replace(content, calls=calls))


def _in_text(request: Request, tools: Tools) -> Request:
    """``request`` with the system message that our server writes for templates without tools."""
    functions = [
        FunctionTool(each["name"], each.get("description"), each["parameters"])
        for each in tools.functions
    ]
    rendered = template_input(Conversation(request.messages, functions), ChatFormat(tools=PLAIN))
    expected = None if request.expected is None else _CallsInText(request.expected)
    return replace(
        request, messages=rendered.messages, constraint=_schema_of_calls(tools), expected=expected
    )


def _schema_of_calls(tools: Tools) -> Schema:
    calls = [
        strict_object({"name": {"const": each["name"]}, "arguments": each["parameters"]})
        for each in tools.functions
    ]
    most = MOST_CALLS if tools.parallel else 1
    called = {"type": "array", "items": {"anyOf": calls}, "minItems": 1, "maxItems": most}
    return Schema(strict_object({"tool_calls": called}))


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            Dialect("openai", _openai_schema),
            Dialect("openai-json", _openai_schema, calls_in_text=True),
            Dialect(
                "leapjson",
                _openai_schema,
                lambda pattern: {"response_format": {"type": "regex", "pattern": pattern}},
                ignores_end=True,
            ),
            Dialect(
                "vllm",
                _openai_schema,
                lambda pattern: {"structured_outputs": {"regex": pattern}},
                ignores_end=True,
            ),
            Dialect("sglang", _openai_schema, lambda pattern: {"regex": pattern}, ignores_end=True),
            Dialect("llama.cpp", _llama_cpp_schema, ignores_end=True),
            Dialect("llama.cpp-json", _llama_cpp_schema, ignores_end=True, calls_in_text=True),
        )
    }
)
"""Dialects by name; ``openai`` is for any server with OpenAI's API."""
