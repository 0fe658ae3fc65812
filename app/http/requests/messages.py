"""Messages that clients send, as the chat template takes them: what every API has in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from app.answer.custom import custom_arguments
from app.answer.images import appended
from app.core.errors import InvalidRequest
from app.http.requests.fields import parsed
from app.http.requests.images import ImagePart, ImageReader, unsupported_type
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
        case TextPart(text=text):
            return text
        case RefusalPart(refusal=text):
            return text
        case ImagePart():
            mark = images.mark(part, param, takes="text")
            if role is not None:
                reason = f"messages of the role {role!r} have no images; send it in the user's"
                raise refusal(param, reason)
            return mark
    raise unsupported_type(param, part.type, "parts", images.taken("text", "images"))


def template_role(role: str) -> str:
    """Templates know ``system``, which ``developer`` replaced."""
    return "system" if role == "developer" else role


def template_call(id: str, name: str, arguments: str, param: str) -> dict[str, Any]:
    """An earlier call, whose ``arguments`` are the field ``param``. Raises ``InvalidRequest``."""
    function = {"name": name, "arguments": called_arguments(arguments, param)}
    return {"id": id, "type": "function", "function": function}


def template_custom_call(id: str, name: str, input: str) -> dict[str, Any]:
    """An earlier call of a custom tool."""
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": custom_arguments(input)},
    }


def called_arguments(text: str, param: str) -> dict[str, Any]:
    """The arguments of an earlier call, sent as text. Raises ``InvalidRequest``."""
    # OpenAI's models themselves wrote nothing for a function without parameters.
    arguments = parsed(text, param) if text.strip() else {}
    if not isinstance(arguments, dict):
        raise refusal(param, "it has to be a JSON object, as text")
    try:
        json.dumps(arguments, allow_nan=False)  # 1e999 is a number in JSON, and infinite here
    except ValueError as error:
        raise refusal(param, str(error)) from None
    return arguments
