"""Images as they were prepared for earlier requests."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from app.core.images import ImageDetail, PreparedImage

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


class KeptImages:
    """The images used last, as far as they fit. One thread uses it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[ImageName, PreparedImage] = OrderedDict()
        self.nbytes = 0

    def find(self, name: ImageName) -> PreparedImage | None:
        image = self._kept.get(name)
        if image is not None:
            self._kept.move_to_end(name)
        return image

    def keep(self, name: ImageName, image: PreparedImage) -> None:
        """One that alone is too large is not kept, and takes no other's place."""
        if name in self._kept or _size_of(image) > self._max_bytes:
            return
        self._kept[name] = image
        self.nbytes += _size_of(image)
        while self.nbytes > self._max_bytes:
            _, least = self._kept.popitem(last=False)
            self.nbytes -= _size_of(least)


def _size_of(image: PreparedImage) -> int:
    return image.nbytes + image.num_tokens * _TOKEN_BYTES + _FEW_BYTES
