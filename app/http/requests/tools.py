"""The functions that an answer may call, for all APIs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any, Literal

from app.answer.tools import FunctionTool, ToolUse, custom_tool
from app.core.errors import InvalidRequest
from app.core.specs import Grammar, Regex
from app.http.config import ApiConfig
from app.http.requests.wire import Ignored, Name, Other, Wire


class Definition(Wire):
    """A tool of any API."""

    name: Name
    description: str | None = None

    @property
    def tool(self) -> FunctionTool:
        """The function that the prompt shows for it."""
        raise NotImplementedError


class FunctionDefinition(Definition):
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def tool(self) -> FunctionTool:
        return FunctionTool(self.name, self.description, self.parameters, self.strict)


class AnyInput(Wire):
    type: Literal["text"]


class InputGrammar(Wire):
    """A grammar or regular expression that inputs have to match."""

    syntax: Literal["lark", "regex"]
    definition: str

    @property
    def spec(self) -> Grammar | Regex:
        if self.syntax == "regex":
            return Regex(self.definition)
        return Grammar(self.definition, self.syntax)


class CustomDefinition(Definition):
    """A custom tool; each API has its own form for the input's format."""

    @property
    def input(self) -> Grammar | Regex | None:
        """The format that inputs have to match; None: any text."""
        raise NotImplementedError

    @property
    def tool(self) -> FunctionTool:
        return custom_tool(self.name, self.description, self.input)


def tool_use(
    tools: Sequence[FunctionTool],
    config: ApiConfig,
    mode: Literal["none", "auto", "required"] = "auto",
    names: Set[str] | None = None,
    *,
    once: bool = False,
) -> ToolUse | None:
    """The functions that an answer may call; None: none. Raises ``InvalidRequest``.

    ``names``: the functions that ``tool_choice`` names, None: all; ``once``: at most one call.
    """
    if not tools:
        if mode == "required" or names is not None:
            raise InvalidRequest("tool_choice requires tools", param="tool_choice")
        return None
    if mode == "none":
        return None
    if names is not None:
        if missing := names - {tool.name for tool in tools}:
            raise InvalidRequest(
                f"tool_choice names {min(missing)!r}, which is not in tools",
                param="tool_choice",
            )
        tools = [tool for tool in tools if tool.name in names]
    return ToolUse(tuple(tools), mode, 1 if once else config.max_tool_calls, config.whitespace)


def leave_out_others(tools: Sequence[Wire] | None, ignored: Ignored, path: str = "tools") -> None:
    """Ignore tools of unsupported types. Raises ``InvalidRequest`` if that is not allowed."""
    for number, tool in enumerate(tools or ()):
        if isinstance(tool, Other):
            param = f"{path}[{number}].type"
            reason = f"tools of type {tool.type!r} are not supported; use functions"
            ignored.leave_out(param, f"{param}: {reason}", name=f"{path}[].type={tool.type}")


def function_tools(definitions: Iterable[tuple[str, Definition]]) -> list[FunctionTool]:
    """The functions that the prompt shows, in order; each definition comes with its field.

    Raises ``InvalidRequest`` if two tools have one name.
    """
    tools: dict[str, FunctionTool] = {}
    for param, definition in definitions:
        if definition.name in tools:
            raise InvalidRequest(f"two tools are named {definition.name!r}", param=f"{param}.name")
        tools[definition.name] = definition.tool
    return list(tools.values())
