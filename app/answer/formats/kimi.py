"""Calls of Kimi K2."""

from __future__ import annotations

from app.answer.formats.call_ids import NumberedIds
from app.answer.formats.spelled import SpelledCalls

KIMI_K2 = SpelledCalls(
    name="kimi k2",
    begin="<|tool_calls_section_begin|>",
    call="<|tool_call_begin|>functions.$name:$id<|tool_call_argument_begin|>$arguments"
    "<|tool_call_end|>",
    end="<|tool_calls_section_end|>",
    trigger="<|tool_calls_section_begin|>",
    ids=NumberedIds(),
    id_pattern="0|[1-9][0-9]{0,3}",
)


def kimi(template: str) -> SpelledCalls | None:
    return KIMI_K2 if "<|tool_calls_section_begin|>" in template else None
