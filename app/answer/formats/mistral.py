"""Calls of Mistral's models: a list, names before arguments, and an id between them."""

from __future__ import annotations

from dataclasses import replace

from app.answer.formats.call_ids import ShortIds
from app.answer.formats.spelled import SpelledCalls

MISTRAL = SpelledCalls(
    name="mistral",
    call="[TOOL_CALLS]$name[ARGS]$arguments",
    trigger="[TOOL_CALLS]",
    ids=ShortIds(9),
)
"""From tokenizer version 11 on."""

_CALL_ID = replace(
    MISTRAL, call="[TOOL_CALLS]$name[CALL_ID]$id[ARGS]$arguments", id_pattern="[a-zA-Z0-9]{9}"
)


def mistral(template: str) -> SpelledCalls | None:
    if "[TOOL_CALLS]" not in template:
        return None
    if "[ARGS]" in template:
        return _CALL_ID if "[CALL_ID]" in template else MISTRAL
    space = " " if "[TOOL_CALLS] " in template else ""
    return replace(
        MISTRAL,
        begin=f"[TOOL_CALLS]{space}[",
        call='{"name": "$name", "arguments": $arguments}',
        other_tail=', "id": "$id"}',
        id_pattern=_CALL_ID.id_pattern,
        separator=", ",
        end="]",
    )
