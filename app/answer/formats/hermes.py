"""Calls of Hermes 2 Pro, Qwen 2.5, Qwen 3, EXAONE 4 and others."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from app.answer.formats.asking import render
from app.answer.formats.spelled import SpelledCalls

HERMES = SpelledCalls(
    name="hermes",
    call='<tool_call>\n{"name": "$name", "arguments": $arguments}\n</tool_call>',
    separator="\n",
    trigger="<tool_call>",
)

EXAONE = replace(
    HERMES, name="exaone", call='<tool_call>{"name": "$name", "arguments": $arguments}</tool_call>'
)
"""EXAONE 4: the same with no newlines inside."""

_ARGUMENTS = re.compile(r'\\?"arguments\\?"')
_OTHERS = ("<function=", "<arg_key>")
"""Qwen3-Coder and GLM write arguments as XML between the same marks."""

_CALL = {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": {}}}
_TWO_CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Twice?"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL, _CALL]},
]


def hermes(template: str) -> SpelledCalls | None:
    marked = "<tool_call>" in template and _ARGUMENTS.search(template)
    if not marked or any(mark in template for mark in _OTHERS):
        return None
    # Newlines are told by what is written: what the model is told need not have the same.
    written = render(template, _TWO_CALLS) or ""
    format = EXAONE if "<tool_call>{" in written else HERMES
    return replace(format, separator="") if "</tool_call><tool_call>" in written else format
