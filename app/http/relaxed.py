"""Warnings beside an answer: keywords that were not enforced, and values that ``max_tokens`` cut
short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from app.answer.relaxed import Warned
from app.http.openapi import Shape
from app.serving.generation import Generation

HEADER = "x-leapjson-relaxed"

_MOST_CHARACTERS = 2_000
"""Of the header, which proxies bound; the warnings in the body have all."""


class Warning(Shape):
    """A keyword that the answer was not held to, as it cannot be enforced (``relaxed``), or that
    validators read in another way, too (``inexact``); or the first string, array or object of a
    choice that ended as ``max_tokens`` left no room for more of it (``budget_closed``)."""

    code: Literal["relaxed", "inexact", "budget_closed"]
    function: str | None
    """Whose parameters, or arguments; None: the content, or its schema."""
    pointer: str
    """JSON Pointer (RFC 6901) to the keyword, or to a subschema of which only the type holds; into
    the answer to the value that ended."""
    keyword: str | None
    satisfied: bool | None
    """Whether what was written satisfies it anyway; None: it was not used, or not found out."""
    message: str
    choice: int | None = None
    """Whose value ended."""


def relaxed_headers(generation: Generation) -> Mapping[str, str]:
    """``FUNCTION#POINTER`` for each place, percent-encoded, with commas between."""
    if generation.relaxed is None:
        return {}
    places: list[str] = []
    for each in generation.relaxed.warnings:
        if not each.relaxation.inexact:
            name = f"{each.function or ''}#{each.relaxation.pointer}"
            places.append(quote(name, safe="#/$~-_."))
    if not places:
        return {}
    value = ", ".join(places)
    if len(value) > _MOST_CHARACTERS:
        value = value[:_MOST_CHARACTERS].rpartition(", ")[0] + ", ..."
    return {HEADER: value}


def warnings_of(generation: Generation) -> dict[str, Any]:
    """The member ``warnings`` of an answer; nothing where there are none."""
    told = [] if generation.relaxed is None else _entries(generation.relaxed.warnings)
    told += [
        {
            "code": "budget_closed",
            "function": each.function,
            "pointer": each.pointer,
            "keyword": None,
            "satisfied": None,
            "message": "the limit of tokens left no room for more of this value; raise it",
            "choice": each.choice,
        }
        for each in sorted(generation.closed, key=lambda closed: closed.choice)
    ]
    return {"warnings": told} if told else {}


def _entries(warnings: Sequence[Warned]) -> list[dict[str, Any]]:
    return [
        {
            "code": "inexact" if each.relaxation.inexact else "relaxed",
            "function": each.function,
            "pointer": each.relaxation.pointer,
            "keyword": each.relaxation.keyword or None,
            "satisfied": each.satisfied,
            "message": ("" if each.relaxation.inexact else "answers are not held to it: ")
            + each.relaxation.reason,
        }
        for each in warnings
    ]
