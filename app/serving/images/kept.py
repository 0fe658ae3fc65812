"""Images as they were prepared for earlier requests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.core.images import ImageDetail, PreparedImage
from app.core.lru import Lru

_TOKEN_BYTES = 40
"""Of an image's expansion, a list of integers."""
_FEW_BYTES = 1 << 10
"""What an image takes beside."""


@dataclass(frozen=True, slots=True)
class ImageName:
    """What a prepared image follows from, for one model and one bound on its tokens."""

    scope: str
    """Whose it is: by the time that an answer takes others could find out what was sent."""
    digest: bytes
    """Of its file, as it was sent."""
    detail: ImageDetail


def name_of(data: str | bytes, detail: ImageDetail, scope: str) -> ImageName:
    """Costs a millisecond a megabyte, mostly without the GIL."""
    form = b"" if isinstance(data, bytes) else b"base64"
    file = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    digest = hashlib.blake2b(file, digest_size=32, person=form).digest()
    return ImageName(scope, digest, detail)


def kept_images(max_bytes: int) -> Lru[ImageName, PreparedImage]:
    """A place for the images used last, as far as they fit."""
    return Lru(max_bytes, lambda image: image.nbytes + image.num_tokens * _TOKEN_BYTES + _FEW_BYTES)
