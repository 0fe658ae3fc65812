"""Calls of Command R7B and later, and of Command R and R+."""

from __future__ import annotations

from app.answer.formats.spelled import SpelledCalls

COMMAND = SpelledCalls(
    name="command",
    begin="<|START_ACTION|>[\n",
    call='    {"tool_call_id": "$id", "tool_name": "$name", "parameters": $arguments}',
    separator=",\n",
    end="\n]<|END_ACTION|>",
    trigger="<|START_ACTION|>",
    id_pattern="0|[1-9][0-9]{0,3}",
)


def cohere(template: str) -> SpelledCalls | None:
    return COMMAND if "<|START_ACTION|>" in template and '"tool_name": ' in template else None
