"""Messages that clients send, and their images, as the chat template takes them."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.answer.images import IMAGE_MARK, ImageSource, appended
from app.answer.prompt import Begun
from app.core.errors import InvalidRequest
from app.core.verbatim import Passage
from app.http.requests.body import parsed
from app.http.requests.wire import Ignored, Noted, Other, Wire, refusal
from app.serving.images.fetching import allowed_url

Detail = Literal["auto", "low", "high", "original"]
"""``original`` is as ``high``: the model sees as much as it can."""

_LONGEST_HEAD = 256
"""Characters of a data URL before its comma."""


@dataclass(frozen=True, slots=True)
class ImageRules:
    """What images a request may have."""

    hosts: frozenset[str] = frozenset()
    """Those that images may be fetched from; empty: none are fetched."""
    max_images: int = 16
    max_bytes: int = 20 << 20
    """Of one file."""


class ImagePart(Noted):
    """Part of a message's content; each API has a type of its own for it."""

    type: str

    @abstractmethod
    def located(self, param: str, rules: ImageRules) -> ImageSource:
        """Where its file is, for the part ``param``. Raises ``InvalidRequest``."""


class ImageReader:
    """Collects the images of one request."""

    def __init__(
        self, rules: ImageRules | None, texts: str, images: str, *, kind: str = "parts"
    ) -> None:
        """``rules`` None: the model takes no images. ``texts`` and ``images``: the types of
        ``kind`` that the API takes, of which ``images`` needs a model that takes them."""
        self._rules = rules
        self._kind = kind
        self._takes = texts if rules is None else f"{texts.replace(' and ', ', ')} and {images}"
        self.sources: list[ImageSource] = []

    def mark(self, part: ImagePart, param: str) -> str:
        """What stands for the image in the content of its message."""
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
        """A part that is not taken, an image say where the model takes no images."""
        kind, takes = self._kind, self._takes
        reason = f"{kind} of type {type!r} are not supported; use {takes}"
        return refusal(param, reason)


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
            raise refusal(field, reason)
        return source_of_base64(url[comma + 1 :], head[0].strip(), low, param, field, rules)
    try:
        allowed_url(url, rules.hosts)
    except ValueError as error:
        raise refusal(field, str(error)) from None
    return ImageSource(param, url=url, low=low)


def source_of_base64(
    data: str, media_type: str, low: bool, param: str, field: str, rules: ImageRules
) -> ImageSource:
    """``data`` is what stands in ``field``. Nothing is decoded here."""
    if not media_type.lower().startswith("image/"):
        reason = (
            f"{media_type[:64]!r} is not supported; images must be PNG, JPEG, WebP or GIF (of a "
            "document, send pictures of its pages)"
        )
        raise refusal(field, reason)
    size = len(data) // 4 * 3
    if size > rules.max_bytes:
        raise refusal(
            field,
            f"the image has about {size} bytes and the limit is {rules.max_bytes}; send a smaller "
            "file",
        )
    if not data:
        raise refusal(field, "it has no data")
    return ImageSource(param, base64=data, low=low)


def file_not_kept(field: str) -> InvalidRequest:
    """The image is a file that was uploaded before."""
    return refusal(field, "files cannot be used as images; send the image as a data URL")


class TextPart(Wire):
    """Part of a message's content; each API has types of its own for it."""

    text: str


class RefusalPart(Wire):
    """Of an assistant's message that refused."""

    type: Literal["refusal"]
    refusal: str


def check_message_count(
    messages: Sequence[object], most: int, what: str = "messages", *, param: str = "messages"
) -> None:
    """Raises ``InvalidRequest`` for more than ``most``."""
    if len(messages) > most:
        reason = f"there are {len(messages)} {what} and the limit is {most}"
        raise InvalidRequest(reason, param=param)


def begun_answer(messages: list[dict[str, Any]], param: str) -> Begun:
    """Take the last of ``messages``, which begins the answer. Raises ``InvalidRequest``."""
    last = messages.pop()
    content, reasoning = last["content"] or "", last.get("reasoning_content", "")
    if last["role"] != "assistant" or "tool_calls" in last or not (content or reasoning):
        raise InvalidRequest(
            "assistant prefill must be the assistant's last message, with text and no tool calls",
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
                reason = f"messages of role {role!r} cannot have images; use a user message"
                raise refusal(param, reason)
            return mark
    raise images.refused(part.type, param)


class TemplateMessages:
    """Builds the messages that the chat template takes from parts that stand beside each other."""

    def __init__(self, images: ImageReader, ignored: Ignored) -> None:
        """``images`` collects those that marks in the texts stand for."""
        self.messages: list[dict[str, Any]] = []
        self.passages: list[Passage] = []
        """The texts, as the API calls them."""
        self._images = images
        self._ignored = ignored
        self._called: set[str] = set()

    def _open(self, role: str) -> dict[str, Any]:
        """The message of ``role`` that goes on, or a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": None})
        return self.messages[-1]

    def _think(self, message: dict[str, Any], text: str) -> None:
        """Add reasoning to one of the assistant's messages."""
        before = message.get("reasoning_content")
        message["reasoning_content"] = f"{before}\n{text}" if before else text

    def _call(self, id: str, name: str, arguments: dict[str, Any] | str) -> None:
        """Add a call to the assistant's message that goes on."""
        self._called.add(id)
        calls = self._open("assistant").setdefault("tool_calls", [])
        calls.append(template_call(id, name, arguments))

    def _check_called(self, id: str, lacking: str, field: str) -> None:
        """Raises ``InvalidRequest`` for a result in ``field`` if no call came that it is of."""
        if id not in self._called:
            raise InvalidRequest(f"{lacking} {id!r}", param=field)

    def _result(self, id: str, text: str) -> None:
        self.messages.append({"role": "tool", "content": text, "tool_call_id": id})


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
