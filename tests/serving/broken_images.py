"""Files that are not images, broken images, and decompression bombs, all from a seed."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

from tests.serving.seeing import picture

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MEGABYTE = bytes(1 << 20)
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes, rows: bytes | None = None) -> bytes:
    """A grey PNG with this size in its header; ``rows`` are its compressed pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(width + 1) * height) if rows is None else rows
    parts = (chunk(b"IHDR", header), *chunks, chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return SIGNATURE + b"".join(parts)


def gif(width: int, height: int, frame: tuple[int, int] = (1, 1)) -> bytes:
    """A GIF with a screen of this size and one frame without pixels."""
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    return screen + b"," + struct.pack("<HHHHB", 0, 0, *frame, 0) + b"\x02\x02\x44\x01\x00;"


def webp(width: int, height: int) -> bytes:
    """A WebP with a canvas of this size and an image of 16 x 8 pixels on it."""
    inner = picture(format="WEBP", lossless=True)[12:]
    canvas = b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", len(canvas)) + canvas + inner
    return b"RIFF" + struct.pack("<I", len(body)) + body


def lossless_webp(width: int, height: int) -> bytes:
    """A lossless WebP whose bitstream claims this size."""
    file = bytearray(picture(format="WEBP", lossless=True))
    assert file[12:16] == b"VP8L"
    file[21:25] = struct.pack("<I", width - 1 | height - 1 << 14)
    return bytes(file)


def jpeg(width: int, height: int) -> bytes:
    """A JPEG whose frame header claims this size."""
    file = bytearray(picture(format="JPEG"))
    at = file.index(b"\xff\xc0") + 5
    file[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(file)


BOMBS = {
    "a PNG of 65,000 x 65,000 in 100 bytes": png(65_000, 65_000, rows=zlib.compress(b"")),
    "a PNG whose sides are as long as its format has it": png(2**31 - 1, 2**31 - 1, rows=b""),
    "a PNG without width": png(0, 8, rows=zlib.compress(bytes(8))),
    "a PNG with a colour profile of 64 MB in 64 kB": png(
        8, 8, chunk(b"iCCP", b"x\0\0" + zlib.compress(MEGABYTE * 64))
    ),
    "a PNG with a text of 64 MB in 64 kB": png(
        8, 8, chunk(b"zTXt", b"x\0\0" + zlib.compress(MEGABYTE * 64))
    ),
    "a PNG with 80 texts of nearly 1 MB": png(
        8, 8, *[chunk(b"zTXt", b"x\0\0" + zlib.compress(MEGABYTE[:-1]))] * 80
    ),
    "a PNG that ends behind its header": png(8, 8)[:33],
    "a GIF with a screen of 65,535 x 65,535": gif(65_535, 65_535),
    "a GIF with a frame of 65,535 x 65,535": gif(1, 1, frame=(65_535, 65_535)),
    "a WebP with a canvas of 16,384 x 16,384": webp(16_384, 16_384),
    "a WebP of 16,384 x 16,384 without a canvas": lossless_webp(16_384, 16_384),
    "a WebP with a canvas beyond its format": webp(1 << 24, 1 << 24),
    "a JPEG of 65,535 x 65,535": jpeg(65_535, 65_535),
    "a JPEG without height": jpeg(16, 0),
    "a PDF": b"%PDF-1.7\n" + picture(format="JPEG"),
    "a zip archive with an image in it": b"PK\x03\x04" + picture(),
    "an SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "a TIFF": b"II*\0" + bytes(64),
    "HEIC": b"\0\0\0\x18ftypheic" + bytes(64),
    "PostScript, which some readers run": b"%!PS-Adobe-3.0 EPSF-3.0\n" + bytes(64),
    "text": b"no image at all",
    "a data URL in a data URL": b"data:image/png;base64,AAAA",
    "zeros": bytes(1000),
}


def mutants(count: int, seed: int = 0) -> Iterator[bytes]:
    """Valid files with bytes changed, removed, duplicated, or cut off at the end."""
    drawn = random.Random(seed)
    files = [picture(48, 32, format=format, seed=each) for each, format in enumerate(FORMATS)]
    files += [
        picture(48, 32, format="JPEG", progressive=True),
        picture(48, 32, format="WEBP", lossless=True),
    ]
    for _ in range(count):
        file = bytearray(drawn.choice(files))
        match drawn.randrange(5):
            case 0:
                del file[drawn.randrange(len(file)) :]
            case 1:
                at = drawn.randrange(len(file))
                del file[at : at + drawn.randrange(1, 64)]
            case 2:
                at = drawn.randrange(len(file))
                file[at:at] = file[at : at + drawn.randrange(1, 64)]
            case 3:
                for _ in range(drawn.randrange(1, 32)):
                    file[drawn.randrange(len(file))] = drawn.randrange(256)
            case 4:  # in the headers
                for _ in range(drawn.randrange(1, 6)):
                    file[drawn.randrange(min(64, len(file)))] = drawn.choice((0, 1, 0x7F, 0xFF))
        yield bytes(file)
