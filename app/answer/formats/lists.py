"""Calls as a JSON list between marks."""

from __future__ import annotations

import re

from app.answer.formats.spelled import SpelledCalls

_CALL = '{"name": "$name", "arguments": $arguments}'


def _listed(name: str, begin: str, end: str, call: str = _CALL) -> SpelledCalls:
    return SpelledCalls(
        name=name,
        begin=f"{begin}[",
        call=call,
        separator=", ",
        end=f"]{end}",
        trigger=begin,
    )


TOOL_CALLS = _listed("list in tool_calls", "<tool_calls>", "</tool_calls>")
"""Hunyuan A13B, Jamba, Apriel."""

NEMOTRON = _listed("nemotron", "<TOOLCALL>", "</TOOLCALL>")
"""Nemotron Nano 2."""

APERTUS = _listed("apertus", "<|tools_prefix|>", "<|tools_suffix|>", '{"$name": $arguments}')

GRANITE = _listed("granite", "<|tool_call|>", "")
"""Granite 3. Granite 4 writes as Hermes does."""

FUNCTOOLS = _listed("functools", "functools", "")
"""Phi-4 mini and Firefunction 2, by what their prompts ask for."""

XLAM = SpelledCalls(name="xlam", begin="[", call=_CALL, separator=", ", end="]")
"""A bare list: an answer is text or calls."""

_BY_MARK = (
    (re.compile(r"<TOOLCALL>\["), NEMOTRON),
    (re.compile(r"<\|tools_prefix\|>"), APERTUS),
    (re.compile(r"<tool_calls>\["), TOOL_CALLS),
    (re.compile(r"functools\["), FUNCTOOLS),
    (re.compile(r"<\|tool_call\|>(?!\\n)"), GRANITE),
    (re.compile(r"single JSON array.*\[\{\"name\": ", re.DOTALL), XLAM),
)


def lists(template: str) -> SpelledCalls | None:
    return next((known for mark, known in _BY_MARK if mark.search(template)), None)
