"""Calls of Kimi K2 and K3."""

from __future__ import annotations

from app.answer.formats.call_ids import NumberedIds
from app.answer.formats.spelled import SpelledCalls
from app.core.arguments import KINDS, Parameters

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


KIMI_K3 = SpelledCalls(
    name="kimi k3",
    begin="<|open|>tools<|sep|>",
    call='<|open|>call tool="$name" index="$id"<|sep|>$arguments<|close|>call<|sep|>',
    notation=Parameters(
        before='<|open|>argument key="',
        between='" type="number"<|sep|>',
        after="<|close|>argument<|sep|>",
        stop="<|close|>",
        types=tuple((kind, f'" type="{kind}"<|sep|>') for kind in KINDS if kind != "number"),
    ),
    end="<|close|>tools<|sep|>",
    trigger="<|open|>tools<|sep|>",
    id_pattern="[1-9][0-9]{0,3}",
)


def kimi(template: str) -> SpelledCalls | None:
    if "<|tool_calls_section_begin|>" in template:
        return KIMI_K2
    return KIMI_K3 if "open_tag('tools')" in template else None
