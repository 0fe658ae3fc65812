"""The tools of a request, in the terms of ``app.http.requests.tools``."""

from __future__ import annotations

from collections.abc import Sequence

from app.answer.tools import FunctionTool, ToolUse
from app.http.chat.wire import AllowedToolsChoice, ChatCompletionRequest, NamedTool, Tool
from app.http.requests import tools as shared


def tool_use(wire: ChatCompletionRequest, whitespace: str) -> ToolUse | None:
    """None where no call can be made. Raises ``InvalidRequest``."""
    return shared.tool_use(
        function_tools(wire.tools),
        _tool_choice(wire),
        parallel=wire.parallel_tool_calls is not False,
        whitespace=whitespace,
    )


def function_tools(sent: Sequence[Tool] | None) -> list[FunctionTool]:
    """What the prompt shows, in the order given. Raises ``InvalidRequest``."""
    tools = [
        FunctionTool(
            tool.function.name,
            tool.function.description,
            tool.function.parameters,
            tool.function.strict,
        )
        for tool in sent or ()
    ]
    shared.check_names(tools, "tools[{}].function.name")
    return tools


def _tool_choice(wire: ChatCompletionRequest) -> shared.ToolChoice:
    match wire.tool_choice:
        case None:
            return shared.ToolChoice()
        case NamedTool(function=function):
            return shared.ToolChoice("required", [function.name], once=True)
        case AllowedToolsChoice(allowed_tools=allowed):
            return shared.ToolChoice(allowed.mode, [each.function.name for each in allowed.tools])
    return shared.ToolChoice(wire.tool_choice)
