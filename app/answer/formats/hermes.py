"""Calls of Hermes 2 Pro, Qwen 2.5, Qwen 3 and others."""

from __future__ import annotations

import re

from app.answer.formats.spelled import SpelledCalls

HERMES = SpelledCalls(
    call='<tool_call>\n{"name": "$name", "arguments": $arguments}\n</tool_call>',
    separator="\n",
    trigger="<tool_call>",
)

_ARGUMENTS = re.compile(r'\\?"arguments\\?"')
_OTHERS = ("<function=", "<arg_key>")
"""Qwen3-Coder and GLM write arguments as XML between the same marks."""


def hermes(template: str) -> SpelledCalls | None:
    marked = "<tool_call>" in template and _ARGUMENTS.search(template)
    return HERMES if marked and not any(mark in template for mark in _OTHERS) else None
