"""Messages that clients send, and their images, as the chat template takes them."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.answer.images import IMAGE_MARK, ImageSource, joined
from app.answer.prompt import Prefill
from app.core.errors import InvalidRequest
from app.core.verbatim import Passage
from app.http.requests.body import parsed
from app.http.requests.wire import Extensible, Ignored, Other, Wire, invalid
from app.serving.images.fetching import allowed_url

Detail = Literal["auto", "low", "high", "original"]
"""``original`` is treated like ``high``: the highest resolution that the model takes."""

_LONGEST_HEAD = 256
"""Characters of a data URL before its comma."""


@dataclass(frozen=True, slots=True)
class ImageRules:
    """Limits on the images of a request."""

    hosts: frozenset[str] = frozenset()
    """Hosts that images may be fetched from; empty: none are fetched."""
    max_images: int = 16
    max_bytes: int = 20 << 20
    """Maximum size of one image file."""


class ImagePart(Extensible):
    """Part of a message's content; each API has a type of its own for it."""

    type: str

    @abstractmethod
    def located(self, param: str, rules: ImageRules) -> ImageSource:
        """The source of the image, which is the part ``param``. Raises ``InvalidRequest``."""


class ImageReader:
    """Collects the images of one request."""

    def __init__(
        self, rules: ImageRules | None, texts: str, images: str, *, kind: str = "parts"
    ) -> None:
        """``rules`` None: the model does not support images. ``texts`` and ``images``: the API's
        types of ``kind``, for error messages."""
        self._rules = rules
        self._kind = kind
        self._takes = texts if rules is None else f"{texts.replace(' and ', ', ')} and {images}"
        self.sources: list[ImageSource] = []

    def mark(self, part: ImagePart, param: str) -> str:
        """The mark that stands for the image in the content of its message."""
        rules = self._rules
        if rules is None:
            raise self.refused(part.type, param)
        self.sources.append(part.located(param, rules))
        if len(self.sources) > rules.max_images:
            raise InvalidRequest(
                f"{param}: the request has more than {rules.max_images} images, the limit; send "
                "fewer",
                param=param,
            )
        return IMAGE_MARK

    def refused(self, type: str, param: str) -> InvalidRequest:
        """The error for an unsupported part, such as an image for a model without images."""
        kind, takes = self._kind, self._takes
        return invalid(param, f"{kind} of type {type!r} are not supported; use {takes}")


def source_of_url(
    url: str, detail: Detail | None, param: str, field: str, rules: ImageRules
) -> ImageSource:
    """The image of part ``param``, from the URL in ``field``: a data URL, or one to fetch."""
    low = detail == "low"
    if url[:5].lower() == "data:":
        comma = url.find(",", 0, _LONGEST_HEAD)
        head = url[5 : max(comma, 0)].lower().split(";")
        if comma < 0 or head[-1].strip() != "base64":
            reason = "a data URL of an image has the form data:image/png;base64,... (RFC 2397)"
            raise invalid(field, reason)
        return source_of_base64(url[comma + 1 :], head[0].strip(), low, param, field, rules)
    try:
        allowed_url(url, rules.hosts)
    except ValueError as error:
        raise invalid(field, str(error)) from None
    return ImageSource(param, url=url, low=low)


def source_of_base64(
    data: str, media_type: str, low: bool, param: str, field: str, rules: ImageRules
) -> ImageSource:
    """The image of part ``param``, from base64 ``data`` in ``field``. Does not decode it."""
    if not media_type.lower().startswith("image/"):
        reason = (
            f"{media_type[:64]!r} is not supported; images must be PNG, JPEG, WebP or GIF (of a "
            "document, send pictures of its pages)"
        )
        raise invalid(field, reason)
    size = len(data) // 4 * 3
    if size > rules.max_bytes:
        raise invalid(
            field,
            f"the image has about {size} bytes and the limit is {rules.max_bytes}; send a smaller "
            "file",
        )
    if not data:
        raise invalid(field, "it has no data")
    return ImageSource(param, base64=data, low=low)


def file_not_kept(field: str) -> InvalidRequest:
    """The error for an image given as an uploaded file."""
    return invalid(field, "files cannot be used as images; send the image as a data URL")


class TextPart(Wire):
    """Part of a message's content; each API has types of its own for it."""

    text: str


class RefusalPart(Wire):
    """Part of an assistant's message that is a refusal."""

    type: Literal["refusal"]
    refusal: str


def check_message_count(
    messages: Sequence[object], most: int, what: str = "messages", *, param: str = "messages"
) -> None:
    """Raises ``InvalidRequest`` for more than ``most``."""
    if len(messages) > most:
        reason = f"there are {len(messages)} {what} and the limit is {most}"
        raise InvalidRequest(reason, param=param)


def take_prefill(messages: list[dict[str, Any]], param: str) -> Prefill:
    """Remove and return the last of ``messages``, a begun answer. Raises ``InvalidRequest``."""
    last = messages.pop()
    content, reasoning = last["content"] or "", last.get("reasoning_content", "")
    if last["role"] != "assistant" or "tool_calls" in last or not (content or reasoning):
        raise InvalidRequest(
            "assistant prefill must be the assistant's last message, with text and no tool calls",
            param=param,
        )
    return Prefill(content, reasoning)


Part = TextPart | RefusalPart | ImagePart | Other


def joined_text(
    content: str | Sequence[Part], param: str, images: ImageReader, *, role: str | None = None
) -> str:
    """The text of all parts, with marks where images stand (``app.answer.images``).

    Raises ``InvalidRequest`` for any other part. ``role``: role of a message that may not have
    images; None: it may have some.
    """
    if isinstance(content, str):
        return content
    return joined(
        [
            _content_of(part, f"{param}[{number}]", images, role)
            for number, part in enumerate(content)
        ]
    )


def _content_of(part: Part, param: str, images: ImageReader, role: str | None) -> str:
    match part:
        case TextPart(text=text) | RefusalPart(refusal=text):
            return text
        case ImagePart():
            mark = images.mark(part, param)
            if role is not None:
                reason = f"messages of role {role!r} cannot have images; use a user message"
                raise invalid(param, reason)
            return mark
    raise images.refused(part.type, param)


class TemplateMessages:
    """Builds messages for the chat template from adjacent parts."""

    def __init__(self, images: ImageReader, ignored: Ignored) -> None:
        """``images`` collects the images, which have marks in the texts."""
        self.messages: list[dict[str, Any]] = []
        self.passages: list[Passage] = []
        """Texts of the messages, under the names of the API."""
        self._images = images
        self._ignored = ignored
        self._called: set[str] = set()

    def joined(self) -> list[dict[str, Any]]:
        """The messages, with their lists of texts joined: one by one would be quadratic."""
        for each in self.messages:
            if isinstance(each["content"], list):
                each["content"] = joined(each["content"])
            if "reasoning_content" in each:
                each["reasoning_content"] = "\n".join(each["reasoning_content"])
        return self.messages

    def _open(self, role: str) -> dict[str, Any]:
        """The last message if it is of ``role``, or a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": None})
        return self.messages[-1]

    def _think(self, message: dict[str, Any], text: str) -> None:
        """Add reasoning to one of the assistant's messages, a list of texts until ``joined``."""
        thoughts = message.setdefault("reasoning_content", [])
        if thoughts == [""]:
            thoughts.clear()
        thoughts.append(text)

    def _call(self, id: str, name: str, arguments: dict[str, Any] | str) -> None:
        """Add a call to the assistant's last message, or to a new one."""
        self._called.add(id)
        calls = self._open("assistant").setdefault("tool_calls", [])
        calls.append(template_call(id, name, arguments))

    def _check_called(self, id: str, lacking: str, field: str) -> None:
        """Raises ``InvalidRequest`` for a result in ``field`` without an earlier call."""
        if id not in self._called:
            raise InvalidRequest(f"{lacking} {id!r}", param=field)

    def _result(self, id: str, text: str) -> None:
        self.messages.append({"role": "tool", "content": text, "tool_call_id": id})


def template_role(role: str) -> str:
    """The role in chat templates, where ``developer`` still is ``system``."""
    return "system" if role == "developer" else role


def template_call(id: str, name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
    """An earlier call, in the format of chat templates."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def called_arguments(text: str) -> dict[str, Any] | str:
    """The arguments of an earlier call, parsed if their text is an object, else unchanged.

    OpenAI allows any text, and a call that was cut has the beginning of an object.
    """
    if not text.strip():
        return {}  # OpenAI's models send "" for a function without parameters
    try:
        arguments = parsed(text, "arguments")
        json.dumps(arguments, allow_nan=False)  # 1e999 is a number in JSON, and infinite here
    except (InvalidRequest, ValueError):
        return text
    return arguments if isinstance(arguments, dict) else text
