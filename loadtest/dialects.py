"""How each kind of server is told about a constraint.

A dialect makes the body of ``POST /v1/chat/completions`` from a ``Request``. All of them stream
and ask for the usage at the end of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from loadtest.requests import Constraint, Pattern, Request, Schema, Tools

Fields = dict[str, Any]


class UnsupportedConstraintError(Exception):
    """The server has no way to be told this constraint."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between servers. ``pattern`` is None where there are no regular expressions."""

    name: str
    schema: Callable[[Mapping[str, Any]], Fields]
    pattern: Callable[[str], Fields] | None = None
    ignores_end: bool = False
    """Knows ``ignore_eos``."""

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
            case Tools(functions):
                tools = [{"type": "function", "function": dict(each)} for each in functions]
                return {"tools": tools, "tool_choice": "required"}
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
    """llama-cpp-python knows this form alone; llama.cpp's own server knows it, too."""
    return {"response_format": {"type": "json_object", "schema": dict(schema)}}


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            Dialect("openai", _openai_schema),
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
        )
    }
)
"""By name; ``openai`` is for any server that follows OpenAI's API."""
