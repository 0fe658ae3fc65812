"""Messages as clients send them -> messages as the chat template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core.errors import InvalidRequest
from app.http.chat.wire import Message, OtherPart, RefusalPart, TextPart
from app.http.requests.tools import called_arguments


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """In the chat template's terms. Raises ``InvalidRequest`` that names the message."""
    called: set[str] = set()
    rendered = []
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        _check(message, place, called)
        called.update(call.id for call in message.tool_calls or ())
        rendered.append(_template_message(message, place))
    return rendered


def _check(message: Message, place: str, called: set[str]) -> None:
    """What a role needs and what it cannot have."""
    assistant = message.role == "assistant"
    if message.content is None and not assistant:
        raise InvalidRequest(
            f"Missing required parameter: '{place}.content'.", param=f"{place}.content"
        )
    if message.content is None and not message.tool_calls and message.refusal is None:
        raise InvalidRequest(
            f"{place}: an assistant's message needs content or tool_calls", param=f"{place}.content"
        )
    for field in ("tool_calls", "refusal", "reasoning_content", "reasoning"):
        if not assistant and getattr(message, field):
            raise InvalidRequest(
                f"{place}: only messages of the role 'assistant' have {field}",
                param=f"{place}.{field}",
            )
    if message.role != "tool":
        return
    if message.tool_call_id is None:
        raise InvalidRequest(
            f"Missing required parameter: '{place}.tool_call_id'.", param=f"{place}.tool_call_id"
        )
    if message.tool_call_id not in called:
        raise InvalidRequest(
            f"{place}: no assistant's message before this one has a tool call with the id "
            f"{message.tool_call_id!r}",
            param=f"{place}.tool_call_id",
        )


def _template_message(message: Message, place: str) -> dict[str, Any]:
    """Templates know ``system``, which ``developer`` replaced."""
    rendered: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _text(message, place),
    }
    for field in ("name", "tool_call_id"):
        value = getattr(message, field)
        if value is not None:
            rendered[field] = value
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        rendered["reasoning_content"] = reasoning
    if message.tool_calls:
        rendered["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": called_arguments(
                        call.function.arguments,
                        f"{place}.tool_calls[{index}].function.arguments",
                    ),
                },
            }
            for index, call in enumerate(message.tool_calls)
        ]
    return rendered


def _text(message: Message, place: str) -> str | None:
    content = message.content
    if content is None:
        return message.refusal
    if isinstance(content, str):
        return content
    return "\n".join(
        _part_text(part, f"{place}.content[{number}]") for number, part in enumerate(content)
    )


def _part_text(part: TextPart | RefusalPart | OtherPart, place: str) -> str:
    match part:
        case TextPart(text=text):
            return text
        case RefusalPart(refusal=refusal):
            return refusal
    raise InvalidRequest(
        f"{place}: parts of the type {part.type!r} are not supported; this server takes text",
        param=place,
    )
