"""Calls of Hermes 2 Pro, Qwen 2.5, Qwen 3 and others."""

from __future__ import annotations

import re
from dataclasses import replace

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
_INLINE = re.compile(r"""<tool_call>(["'] ?-?\}\})?\{"name": "(\{\{|['"] ?\+)""")
"""Where a call is written; descriptions need not have the newlines of what is written."""
_OTHERS = ("<function=", "<arg_key>")
"""Qwen3-Coder and GLM write arguments as XML between the same marks."""


def hermes(template: str) -> SpelledCalls | None:
    marked = "<tool_call>" in template and _ARGUMENTS.search(template)
    if not marked or any(mark in template for mark in _OTHERS):
        return None
    return EXAONE if _INLINE.search(template) else HERMES
