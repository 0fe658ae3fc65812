"""Images from the files of clients.

The first bytes of a file name its format, and one decoder of Pillow reads it. Its size in pixels is
checked as its header has it, before anything is decoded. Whatever a decoder then makes of it, the
worker's bounds on processor time and memory hold; metadata beside the pixels is bounded by Pillow
(``PngImagePlugin.MAX_TEXT_CHUNK``).
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import warnings

import numpy as np
from PIL import Image, ImageOps

from app.core.errors import InvalidImage
from app.core.images import ReadingLimits

MOST_UNEQUAL = 100
"""Maximum ratio of the sides: models scale images to a number of pixels, and are not trained on
stripes."""

_FORMATS = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"RIFF": "WEBP",
}
_OTHERS = {
    b"%PDF": "a PDF; send pictures of its pages",
    b"BM": "a BMP",
    b"II*\0": "a TIFF",
    b"MM\0*": "a TIFF",
    b"PK\x03\x04": "a zip archive, or an office document",
    b"<": "an SVG or HTML",
    b"\0\0\1\0": "an icon",
    b"data:": "a data URL once more",
}
_BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIF", b"avif": "AVIF", b"avis": "AVIF"}
Image.MAX_IMAGE_PIXELS = None  # sizes are checked here, with errors for clients
_14_BITS = (1 << 14) - 1
_WHITE_SPACE = b" \t\r\n"
_LONGEST_REASON = 200


def read_image(data: str | bytes, limits: ReadingLimits) -> Image.Image:
    """The first image of a PNG, JPEG, WebP or GIF, of mode RGB, upright and on white.

    The file is given as it is or in base64. Raises ``InvalidImage``.
    """
    if isinstance(data, str):
        data = _decoded(data)
    if len(data) > limits.max_bytes:
        raise InvalidImage(
            f"the image has {len(data)} bytes and the limit is {limits.max_bytes}; send a smaller "
            "file"
        )
    format = _format_of(data)
    if format == "WEBP" and (size := _webp_size(data)) is not None:
        _check_size(*size, limits)  # Pillow makes room for the canvas when it opens the file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=[format]) as image:
                _check_size(*image.size, limits)
                image.load()
                _check_size(*image.size, limits)
                _turn_upright(image)
                return _on_white(_in_8_bits(image))
    except (InvalidImage, MemoryError):
        raise
    except Exception as error:  # a broken file makes decoders raise whatever they raise
        reason = "its header is broken" if "cannot identify" in str(error) else str(error)
        raise InvalidImage(
            f"the {format} cannot be decoded because it is corrupt or truncated: "
            f"{reason[:_LONGEST_REASON] or type(error).__name__}; create the file again"
        ) from None


def _decoded(data: str) -> bytes:
    try:
        # Line breaks are common (RFC 2045); anything else outside the alphabet is a mistake.
        return base64.b64decode(data.encode("ascii").translate(None, _WHITE_SPACE), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        reason = "it has other characters" if isinstance(error, UnicodeEncodeError) else str(error)
        raise InvalidImage(
            f"the image is not base64 (RFC 4648, section 4, with its padding): {reason}"
        ) from None


def _format_of(data: bytes) -> str:
    found = next((name for first, name in _FORMATS.items() if data.startswith(first)), None)
    if found is not None and (found != "WEBP" or data[8:12] == b"WEBP"):
        return found
    other = next((name for first, name in _OTHERS.items() if data.startswith(first)), None)
    if data[4:8] == b"ftyp" and data[8:12] in _BRANDS:
        other = _BRANDS[data[8:12]]
    guess = f"; this looks like {other}" if other else ""
    raise InvalidImage(f"the file is not a PNG, JPEG, WebP or GIF by its first bytes{guess}")


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a WebP, where its header has them (RFC 9649, sections 2.5 to 2.7)."""
    match data[12:16]:
        case b"VP8X":
            return _number(data[24:27]) + 1, _number(data[27:30]) + 1
        case b"VP8L":
            bits = _number(data[21:25])
            return (bits & _14_BITS) + 1, (bits >> 14 & _14_BITS) + 1
        case b"VP8 ":
            return _number(data[26:28]) & _14_BITS, _number(data[28:30]) & _14_BITS
    return None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _check_size(width: int, height: int, limits: ReadingLimits) -> None:
    pixels, most = width * height, limits.max_pixels
    if pixels == 0:
        raise InvalidImage(f"the image is {width} x {height} and has no pixels")
    if pixels > most:
        scale = math.sqrt(most / pixels)
        raise InvalidImage(
            f"the image is {width} x {height} ({pixels} pixels) and the limit is {most} pixels; "
            f"scale it down to {max(1, int(width * scale))} x {max(1, int(height * scale))}"
        )
    if max(width, height) > MOST_UNEQUAL * min(width, height):
        raise InvalidImage(
            f"the image is {width} x {height} pixels and one side may be at most {MOST_UNEQUAL} "
            "times as long as the other; split it"
        )


def _in_8_bits(image: Image.Image) -> Image.Image:
    """16-bit grey scaled to 8 bits, which Pillow would clip instead."""
    if not image.mode.startswith("I"):
        return image
    grey = np.asarray(image).astype(np.int64) >> 8
    return Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    seen = image.convert("RGBA")
    white = Image.new("RGB", seen.size, "white")
    white.paste(seen, mask=seen.getchannel("A"))
    return white


def _turn_upright(image: Image.Image) -> None:
    """Turn ``image`` by its EXIF orientation, if that can be read."""
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except MemoryError:
        raise
    except Exception:
        pass
