"""Values of an answer that are whole, as every API writes them beside its deltas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from app.answer.pieces import FieldValue
from app.http.openapi import Shape


class WholeValue(Shape):
    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901)."""
    value: Any = None
    """Missing where it is large: its parts have been told."""


def with_fields(data: bytes, values: Sequence[FieldValue]) -> bytes:
    """``data``, a JSON object, with the member ``fields`` at its end."""
    return b"".join((data[:-1], b',"fields":[', b",".join(map(_entry, values)), b"]}"))


def _entry(value: FieldValue) -> bytes:
    call = b"" if value.call is None else b'"tool_call":%d,' % value.call
    entry = b'{%b"pointer":%b' % (call, to_json(value.pointer))
    if value.text is None:
        return entry + b"}"
    # White space alone has line ends, which would end the event's line.
    text = value.text.replace(b"\n", b" ").replace(b"\r", b" ")
    return entry + b',"value":%b}' % text
