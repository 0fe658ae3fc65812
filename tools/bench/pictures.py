"""Pictures of a given size for load tests, each different, and requests with them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

_DETAIL = 8
"""Side of the coarsest squares of a picture, in pixels: the file of a picture of a photograph's
size is then about as large as the photograph's."""
_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg"}


@dataclass(frozen=True, slots=True)
class Size:
    width: int
    height: int
    format: Literal["PNG", "JPEG"]

    @property
    def name(self) -> str:
        return f"{self.width} x {self.height} {self.format}"


def picture(size: Size, number: int) -> bytes:
    """File of a picture; pictures of two numbers differ, even when scaled down."""
    small = (size.height // _DETAIL + 1, size.width // _DETAIL + 1, 3)
    colours = np.random.default_rng(number).integers(0, 256, small, dtype=np.uint8)
    file = io.BytesIO()
    image = Image.fromarray(colours).resize((size.width, size.height), Image.Resampling.BICUBIC)
    image.save(file, size.format)
    return file.getvalue()


def question(file: bytes, size: Size, tokens: int, before: str = "") -> Mapping[str, Any]:
    """Fields of a chat completion about a picture, after the text ``before``. The first character
    of the answer is not forced: a leap would be sent before the model has seen the picture."""
    url = f"data:{_MEDIA_TYPES[size.format]};base64,{base64.b64encode(file).decode()}"
    texts = [{"type": "text", "text": before}] if before else []
    content: Sequence[Mapping[str, Any]] = [
        *texts,
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Read this."},
    ]
    return {
        "messages": [{"role": "user", "content": content}],
        "response_format": {"type": "regex", "regex": f"[a-z]{{{tokens},{9 * tokens}}}"},
        "temperature": 0,
        "max_tokens": tokens,
    }


def body(model: str, fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"model": model, **fields}).encode()
