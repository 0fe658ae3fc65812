"""Which functions an answer may call, whichever API asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from app.answer.tools import FunctionTool, ToolUse
from app.core.errors import InvalidRequest
from app.http.requests.ignored import Ignored
from app.http.requests.wire import Name, Other, Wire

Served = TypeVar("Served", bound=Wire)


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


def served(tools: Sequence[Served | Other] | None, ignored: Ignored) -> list[tuple[int, Served]]:
    """The tools that an answer may call, each with its number among all; the others are left out.

    Raises ``InvalidRequest`` where nothing may be.
    """
    found = []
    for number, tool in enumerate(tools or ()):
        if isinstance(tool, Other):
            param = f"tools[{number}].type"
            reason = f"tools of the type {tool.type!r} are not supported; give functions"
            ignored.leave_out(param, f"{param}: {reason}", name=f"tools[].type={tool.type}")
        else:
            found.append((number, tool))
    return found


def function_tools(functions: Mapping[int, FunctionDefinition], param: str) -> list[FunctionTool]:
    """What the prompt shows, in the order given; ``functions`` by their numbers.

    ``param`` is the field of a name, with {} for the number.

    Raises ``InvalidRequest`` for a name that two functions have.
    """
    tools: dict[str, FunctionTool] = {}
    for number, function in functions.items():
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
