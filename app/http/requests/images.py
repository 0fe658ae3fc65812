"""Images as clients send them: parts of every API, and one reading of them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from app.answer.images import IMAGE_MARK, ImageSource
from app.core.errors import InvalidRequest
from app.http.requests.wire import Wire, refusal
from app.serving.images.urls import allowed_url

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


class ImagePart(Wire):
    """Part of a message's content; each API has a type of its own for it."""

    has_notes = True

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
        reason = f"{kind} of the type {type!r} are not supported; this server takes {takes}"
        return refusal(param, reason)


def source_of_url(
    url: str, detail: Detail | None, param: str, field: str, rules: ImageRules
) -> ImageSource:
    """The image that is the part ``param``, from the URL in its ``field``: a data URL, or one to
    be fetched."""
    low = detail == "low"
    if url[:5].lower() == "data:":
        return _source_of_data_url(url, low, param, field, rules)
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
            f"{media_type[:64]!r} is no image; images are PNG, JPEG, WebP and GIF (of a document, "
            "send pictures of its pages)"
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


def not_kept(field: str) -> InvalidRequest:
    """The image is a file that was uploaded before."""
    return refusal(field, "this server keeps no files; send the image itself as a data URL")


def _source_of_data_url(
    url: str, low: bool, param: str, field: str, rules: ImageRules
) -> ImageSource:
    """RFC 2397."""
    comma = url.find(",", 0, _LONGEST_HEAD)
    head = url[5 : max(comma, 0)].lower().split(";")
    if comma < 0 or head[-1].strip() != "base64":
        reason = "a data URL of an image has the form data:image/png;base64,... (RFC 2397)"
        raise refusal(field, reason)
    return source_of_base64(url[comma + 1 :], head[0].strip(), low, param, field, rules)
