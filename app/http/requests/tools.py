"""Which functions an answer may call, whichever API asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.answer.tools import FunctionTool, ToolUse
from app.core.errors import InvalidRequest
from app.http.requests.wire import Name, Wire


class FunctionDefinition(Wire):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What ``tool_choice`` says."""

    mode: Literal["none", "auto", "required"] = "auto"
    names: Sequence[str] | None = None
    """The functions that may be called; None: all."""
    once: bool = False
    """Whether there is at most one call, whatever ``parallel_tool_calls`` says."""


def tool_use(
    tools: Sequence[FunctionTool], choice: ToolChoice, parallel: bool | None, whitespace: str
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
    return ToolUse(tuple(tools), choice.mode, parallel is not False and not choice.once, whitespace)


def function_tools(functions: Iterable[FunctionDefinition], param: str) -> list[FunctionTool]:
    """What the prompt shows, in the order given; ``param`` is a name's field, with {} for a number.

    Raises ``InvalidRequest`` for a name that two functions have.
    """
    tools: dict[str, FunctionTool] = {}
    for number, function in enumerate(functions):
        name = function.name
        if name in tools:
            raise InvalidRequest(f"two tools are named {name!r}", param=param.format(number))
        tools[name] = FunctionTool(name, function.description, function.parameters, function.strict)
    return list(tools.values())


def _named(tools: Sequence[FunctionTool], names: Sequence[str]) -> list[FunctionTool]:
    missing = set(names) - {tool.name for tool in tools}
    if missing:
        raise InvalidRequest(
            f"tool_choice names {sorted(missing)[0]!r}, which is not among the tools",
            param="tool_choice",
        )
    return [tool for tool in tools if tool.name in names]
