"""Which functions an answer may call, in terms that every endpoint's requests come down to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.answer.tools import FunctionTool, ToolUse
from app.core.errors import InvalidRequest
from app.http.requests.fields import parsed, refusal


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What ``tool_choice`` says."""

    mode: Literal["none", "auto", "required"] = "auto"
    names: Sequence[str] | None = None
    """The functions that it leaves; None: all."""
    once: bool = False
    """Whether there is one call at most, whatever ``parallel_tool_calls`` says."""


def tool_use(
    tools: Sequence[FunctionTool], choice: ToolChoice, *, parallel: bool, whitespace: str
) -> ToolUse | None:
    """None where no call can be made. Raises ``InvalidRequest``."""
    if not tools:
        if choice.mode == "required" or choice.names is not None:
            raise InvalidRequest("tool_choice needs tools", param="tool_choice")
        return None
    if choice.mode == "none":
        return None
    if choice.names is not None:
        tools = _named(tools, choice.names)
    return ToolUse(tuple(tools), choice.mode, parallel and not choice.once, whitespace)


def check_names(tools: Sequence[FunctionTool], param: str) -> None:
    """Raises ``InvalidRequest`` for a name that two tools have; ``param`` has their number."""
    seen: set[str] = set()
    for number, tool in enumerate(tools):
        if tool.name in seen:
            raise InvalidRequest(f"two tools are named {tool.name!r}", param=param.format(number))
        seen.add(tool.name)


def called_arguments(text: str, place: str) -> dict[str, Any]:
    """The arguments of an earlier call, sent as the text ``place``. Raises ``InvalidRequest``."""
    # OpenAI's models themselves wrote nothing for a function without parameters.
    arguments = parsed(text, place) if text.strip() else {}
    if not isinstance(arguments, dict):
        raise refusal(place, "it has to be a JSON object, as text")
    try:
        json.dumps(arguments, allow_nan=False)  # 1e999 is a number in JSON, and infinite here
    except ValueError as error:
        raise refusal(place, str(error)) from None
    return arguments


def _named(tools: Sequence[FunctionTool], names: Sequence[str]) -> list[FunctionTool]:
    missing = set(names) - {tool.name for tool in tools}
    if missing:
        raise InvalidRequest(
            f"tool_choice names {sorted(missing)[0]!r}, which is not among the tools",
            param="tool_choice",
        )
    return [tool for tool in tools if tool.name in names]
