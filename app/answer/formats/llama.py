"""Calls of Llama 3.1 and later, as JSON."""

from __future__ import annotations

from app.answer.formats.spelled import SpelledCalls

LLAMA = SpelledCalls(
    name="llama", call='{"name": "$name", "parameters": $arguments}', parallel=False
)
"""The template takes one call in a message."""

_MARKS = ("<|start_header_id|>", "<|header_start|>")


def llama(template: str) -> SpelledCalls | None:
    marked = any(mark in template for mark in _MARKS)
    return LLAMA if marked and '{"name": "' in template and '"parameters": ' in template else None
