"""Messages that clients send, as the chat template takes them: what every API has in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from app.answer.images import appended
from app.answer.prompt import Begun
from app.core.errors import InvalidRequest
from app.http.requests.fields import parsed
from app.http.requests.images import ImagePart, ImageReader
from app.http.requests.wire import Other, Wire, refusal


class TextPart(Wire):
    """Part of a message's content; each API has types of its own for it."""

    text: str


class RefusalPart(Wire):
    """Of an assistant's message that refused."""

    type: Literal["refusal"]
    refusal: str


def check_message_count(messages: Sequence[object], most: int) -> None:
    """Raises ``InvalidRequest`` for more than ``most``."""
    if len(messages) > most:
        raise InvalidRequest(
            f"there are {len(messages)} messages and the limit is {most}", param="messages"
        )


def begun_answer(messages: list[dict[str, Any]], param: str) -> Begun:
    """Take the last of ``messages``, which begins the answer. Raises ``InvalidRequest``."""
    last = messages.pop()
    content, reasoning = last["content"] or "", last.get("reasoning_content", "")
    if last["role"] != "assistant" or "tool_calls" in last or not (content or reasoning):
        raise InvalidRequest(
            "an answer is begun by a last message of the assistant's that has text and no calls",
            param=param,
        )
    return Begun(content, reasoning)


Part = TextPart | RefusalPart | ImagePart | Other


def joined_text(
    content: str | Sequence[Part], param: str, images: ImageReader, *, role: str | None = None
) -> str:
    """The text of all parts, with marks where images stand (``app.answer.images``).

    Raises ``InvalidRequest`` for a part that is neither. ``role``: of a message that has no images,
    as its API has it; None: it may have some.
    """
    if isinstance(content, str):
        return content
    joined: str | None = None
    for number, part in enumerate(content):
        text = _content_of(part, f"{param}[{number}]", images, role)
        joined = text if joined is None else appended(joined, text)
    return joined or ""


def _content_of(part: Part, param: str, images: ImageReader, role: str | None) -> str:
    match part:
        case TextPart(text=text) | RefusalPart(refusal=text):
            return text
        case ImagePart():
            mark = images.mark(part, param)
            if role is not None:
                reason = f"messages of the role {role!r} have no images; send it in the user's"
                raise refusal(param, reason)
            return mark
    raise images.refused(part.type, param)


def template_role(role: str) -> str:
    """Templates know ``system``, which ``developer`` replaced."""
    return "system" if role == "developer" else role


def template_call(id: str, name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
    """An earlier call."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def called_arguments(text: str) -> dict[str, Any] | str:
    """The arguments of an earlier call, sent as text: as an object, or as they are.

    OpenAI's type is any text, and a call that was cut has the beginning of an object.
    """
    if not text.strip():
        return {}  # OpenAI's models themselves wrote nothing for a function without parameters
    try:
        arguments = parsed(text, "arguments")
        json.dumps(arguments, allow_nan=False)  # 1e999 is a number in JSON, and infinite here
    except (InvalidRequest, ValueError):
        return text
    return arguments if isinstance(arguments, dict) else text
