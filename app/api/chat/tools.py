"""Which functions an answer may call, and whether it has to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from app.api.chat.wire import AllowedToolsChoice, ChatCompletionRequest, NamedTool
from app.chat.language import ToolUse
from app.core.errors import InvalidRequest
from app.core.request import FunctionTool


def tool_use(wire: ChatCompletionRequest, whitespace: str) -> ToolUse | None:
    """None where no call can be made. Raises ``InvalidRequest``."""
    tools = function_tools(wire)
    choice = wire.tool_choice
    if not tools:
        if choice in (None, "none", "auto"):
            return None
        raise InvalidRequest("tool_choice needs tools", param="tool_choice")
    mode: Literal["auto", "required"] = "required"
    match choice:
        case "none":
            return None
        case None | "auto":
            mode = "auto"
        case NamedTool():
            tools = _named(tools, [choice])
        case AllowedToolsChoice(allowed_tools=allowed):
            mode = allowed.mode
            tools = _named(tools, allowed.tools)
    parallel = wire.parallel_tool_calls is not False and not isinstance(choice, NamedTool)
    return ToolUse(tuple(tools), mode, parallel, whitespace)


def function_tools(wire: ChatCompletionRequest) -> list[FunctionTool]:
    """What the prompt shows, in the order given. Raises ``InvalidRequest``."""
    tools = [
        FunctionTool(
            tool.function.name,
            tool.function.description,
            tool.function.parameters,
            tool.function.strict,
        )
        for tool in wire.tools or ()
    ]
    seen: set[str] = set()
    for number, tool in enumerate(tools):
        if tool.name in seen:
            raise InvalidRequest(
                f"two tools are named {tool.name!r}", param=f"tools[{number}].function.name"
            )
        seen.add(tool.name)
    return tools


def _named(tools: Sequence[FunctionTool], named: Sequence[NamedTool]) -> list[FunctionTool]:
    names = {each.function.name for each in named}
    missing = names - {tool.name for tool in tools}
    if missing:
        raise InvalidRequest(
            f"tool_choice names {sorted(missing)[0]!r}, which is not among the tools",
            param="tool_choice",
        )
    return [tool for tool in tools if tool.name in names]
