"""Images of a conversation: where they stand in its text, and where their bytes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.answer.formats.chat import ChatFormat
from app.core.text import SEAM

IMAGE_MARK = "\udfff"
"""Stands for an image in a message's content. A lone surrogate is in no text that a client sends:
JSON that has one is refused."""

_SHOWN_BELOW = "[image below]"
"""The text of a result that is an image alone."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image as a request gives it: in the request, or at a URL."""

    param: str
    """Where it stands in the request: ``messages[1].content[0]``."""
    base64: str = ""
    """The file in base64, not decoded or checked yet."""
    url: str = ""
    """URL of the file instead; checked to be one that may be fetched."""
    low: bool = False
    """Whether few pixels of it will do."""


def joined(texts: Sequence[str]) -> str:
    """``texts`` with a newline between two of them, unless one of the two is an image."""
    parts = [*texts[:1]]
    after_image = bool(texts) and texts[0].endswith(IMAGE_MARK)
    for text in texts[1:]:
        if not after_image and not text.startswith(IMAGE_MARK):
            parts.append("\n")
        parts.append(text)
        after_image = text.endswith(IMAGE_MARK) or (after_image and not text)
    return "".join(parts)


def without_images(content: str) -> str:
    """The text of a message's content: that of its parts, with a newline between."""
    if IMAGE_MARK not in content:
        return content
    return "\n".join([text for text in content.split(IMAGE_MARK) if text])


def results_first(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with the images of results in the user's message behind them.

    Chat templates have places for images in the user's messages, and few in results of tools.
    """
    placed: list[dict[str, Any]] = []
    marks = ""
    for message in messages:
        here, content = dict(message), message["content"]
        if marks and here["role"] != "tool":
            if here["role"] == "user":
                here["content"] = marks + content
            else:
                placed.append({"role": "user", "content": marks})
            marks = ""
        elif here["role"] == "tool" and IMAGE_MARK in content:
            marks += IMAGE_MARK * content.count(IMAGE_MARK)
            here["content"] = without_images(content) or _SHOWN_BELOW
        placed.append(here)
    return [*placed, {"role": "user", "content": marks}] if marks else placed


def as_templates_take_it(content: str, format: ChatFormat) -> str | list[Mapping[str, Any]]:
    """A message's content in the form of its chat template.

    An ``image_marker`` in the client's own text is split by a seam, so that it stays text.
    """
    marker = format.image_marker
    if len(marker) > 1:
        content = content.replace(marker, f"{marker[0]}{SEAM}{marker[1:]}")
    if not format.takes_images:
        content = content.replace(IMAGE_MARK, f"{marker}\n")
    if format.takes_text and IMAGE_MARK not in content:
        return content
    parts: list[Mapping[str, Any]] = []
    for number, text in enumerate(content.split(IMAGE_MARK)):
        if number:
            parts.append({"type": "image"})
        if text:
            parts.append({"type": "text", "text": text})
    return parts
