"""Requests independent of a server's API, and checks of answers by independent libraries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

Verdict = Literal["valid", "invalid", "truncated", "unjudged"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The answer is JSON, valid against ``schema``."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The whole answer matches a regular expression."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Tools:
    """The answer is one or more calls of ``functions`` (OpenAI's function objects)."""

    functions: Sequence[Mapping[str, Any]]
    parallel: bool = True
    """Whether several calls are allowed."""


Constraint = Schema | Pattern | Tools


@dataclass(frozen=True, slots=True)
class Call:
    """A function call, with its arguments as text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Content:
    """The content of an answer."""

    text: str
    calls: Sequence[Call]
    finish_reason: str | None


class Expected(Protocol):
    """The expected answer of a request."""

    def right(self, content: Content) -> tuple[int, int]:
        """The number of correct parts of ``content``, and the number of all parts."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question; without a constraint any answer is valid."""

    task: str
    messages: Sequence[Mapping[str, Any]]
    constraint: Constraint | None
    max_tokens: int
    exact_length: bool = False
    """Generate ``max_tokens`` tokens and ignore the end of sequence, if the server supports it."""
    expected: Expected | None = None


def verdict(constraint: Constraint | None, content: Content) -> Verdict:
    """``truncated``: a constrained answer that reached ``max_tokens`` and is not valid.

    Without a constraint every answer with a regular finish reason is valid. ``unjudged``: the
    schema has a pattern that Python does not support, or a reference to another file.
    """
    if constraint is None:
        return "valid" if content.finish_reason in ("stop", "length") else "invalid"
    try:
        if _holds(constraint, content):
            return "valid"
    except (re.error, Unresolvable):
        return "unjudged"
    return "truncated" if content.finish_reason == "length" else "invalid"


def _holds(constraint: Constraint, content: Content) -> bool:
    match constraint:
        case Schema(schema):
            return _is_valid(content.text, schema)
        case Pattern(pattern):
            return re.fullmatch(pattern, content.text) is not None
        case Tools(functions, parallel):
            parameters = {each["name"]: each["parameters"] for each in functions}
            return (len(content.calls) > 0 if parallel else len(content.calls) == 1) and all(
                call.name in parameters and _is_valid(call.arguments, parameters[call.name])
                for call in content.calls
            )


def _is_valid(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    judge = validator_for(schema, default=jsonschema.Draft202012Validator)
    # An empty registry prevents downloads of referenced schemas.
    return bool(judge(schema, registry=Registry()).is_valid(value))
