"""The form of calls for chat templates that know none, or none that is known here."""

from __future__ import annotations

from app.answer.formats.spelled import SpelledCalls

PLAIN = SpelledCalls(
    name="plain",
    begin='{"tool_calls": [',
    call='{"name": "$name", "arguments": $arguments}',
    separator=", ",
    end="]}",
    native=False,
)
