"""What a response says about its request: the settings it was answered with."""

from __future__ import annotations

from typing import Any

from app.http.requests.wire import Other
from app.http.responses.wire import CustomToolParam, FunctionToolParam, ResponsesRequest


def settings(wire: ResponsesRequest) -> dict[str, Any]:
    """Fields of the response object, with the defaults where nothing was asked for."""
    reasoning = wire.reasoning
    choice = wire.tool_choice
    return {
        "background": False,
        "instructions": wire.instructions,
        "max_output_tokens": wire.max_output_tokens,
        "max_tool_calls": wire.max_tool_calls,
        "metadata": wire.metadata or {},
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": wire.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "safety_identifier": wire.safety_identifier,
        "service_tier": "default",
        # OpenAI's default is true: what says so, or nothing, is answered and told otherwise.
        "store": False,
        "temperature": 1.0 if wire.temperature is None else wire.temperature,
        "text": {"format": _format(wire), "verbosity": "medium"},
        "tool_choice": (
            choice or "auto" if isinstance(choice, str | None) else choice.model_dump()
        ),
        "tools": [_tool(tool) for tool in wire.tools or () if not isinstance(tool, Other)],
        "top_logprobs": wire.top_logprobs or 0,
        "top_p": 1.0 if wire.top_p is None else wire.top_p,
        "truncation": "disabled",
        "user": wire.user,
    }


def _format(wire: ResponsesRequest) -> dict[str, Any]:
    asked = wire.text.format if wire.text else None
    if asked is None:
        return {"type": "text"}
    shown = asked.model_dump(by_alias=True, exclude_none=True)
    if asked.type == "json_schema":
        shown["strict"] = asked.strict is not False
    return shown


def _tool(tool: FunctionToolParam | CustomToolParam) -> dict[str, Any]:
    if isinstance(tool, CustomToolParam):
        asked = {"type": "text"} if tool.format is None else tool.format.model_dump()
        return {
            "type": "custom",
            "name": tool.name,
            "description": tool.description,
            "format": asked,
        }
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict is not False,
    }
