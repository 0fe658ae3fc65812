"""Decoding of image files to pixels."""

from __future__ import annotations

import base64
import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from app.core.errors import InvalidImage
from app.core.images import ReadingLimits
from app.serving.images.reading import MOST_UNEQUAL, read_image
from tests.serving.broken_images import BOMBS, FORMATS, chunk, mutants, png
from tests.serving.seeing import picture

ROOT = Path(__file__).parents[2]
LIMITS = ReadingLimits(max_bytes=10 << 20, max_pixels=1_000_000)


def saved(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def read(file: bytes | str) -> np.ndarray[Any, Any]:
    image = read_image(file, LIMITS)
    assert image.mode == "RGB"
    return np.asarray(image)


def refusal(file: bytes | str) -> str:
    with pytest.raises(InvalidImage) as caught:
        read_image(file, LIMITS)
    return str(caught.value)


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_read_as_pillow_reads_them(format: str) -> None:
    file = picture(30, 20, format=format)
    assert np.array_equal(read(file), np.asarray(Image.open(io.BytesIO(file)).convert("RGB")))
    assert np.array_equal(read(base64.b64encode(file).decode()), read(file))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_stand_upright(format: str, orientation: int) -> None:
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :16] = 255  # a white corner at the top left
    turns: dict[int, Any] = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: a.transpose(1, 0, 2)[::-1, ::-1],
        8: lambda a: np.rot90(a, -1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turns[orientation](upright)))
    options = {"quality": 100} if format == "JPEG" else {}
    if format == "WEBP":
        options = {"lossless": True}
    found = read(saved(stored, format, exif=exif, **options))
    assert found.shape == upright.shape
    assert np.abs(found.astype(int) - upright).max() < 8


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_means_nothing_is_passed_over(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = saved(Image.new("RGB", (4, 2)), "JPEG", exif=exif)
    assert read(file).shape == (2, 4, 3)
    assert read(file.replace(b"Exif\0\0", b"Exif\0\xff")).shape == (2, 4, 3)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_what_is_transparent_is_white(mode: str) -> None:
    black = Image.new("RGBA", (2, 1), (0, 0, 0, 255))
    black.putpixel((1, 0), (0, 0, 0, 0))
    file = saved(black.convert("LA") if mode == "LA" else black)
    if mode == "PA":
        file = saved(black, "GIF")  # a palette with one transparent colour
    assert read(file).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_a_colour_may_be_the_transparent_one() -> None:
    grey = Image.new("L", (2, 1), 7)
    grey.putpixel((1, 0), 9)
    assert read(saved(grey, transparency=9)).tolist() == [[[7] * 3, [255] * 3]]


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = Image.new("L", (2, 1), 0)
    image.putpixel((1, 0), 255)
    if mode == "I;16":
        file = saved(Image.fromarray(np.array([[255, 65535]], np.uint16)))
        assert read(file).tolist() == [[[0] * 3, [255] * 3]], "bright is bright, dark is dark"
        return
    format = "JPEG" if mode == "CMYK" else "PNG"
    large = image.resize((32, 16), Image.Resampling.NEAREST)
    found = read(saved(large.convert(mode), format))
    assert found[0, 0].max() < 8
    assert found[0, -1].min() > 247


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP"])
def test_of_an_animation_the_first_image_is_read(format: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    options: dict[str, Any] = {"save_all": True, "append_images": frames[1:], "duration": 10}
    if format == "WEBP":
        options["lossless"] = True
    assert (read(saved(frames[0], format, **options)) == [255, 0, 0]).all()


def test_bytes_behind_an_image_are_passed_over() -> None:
    assert np.array_equal(read(picture() + b"PK\x03\x04" + bytes(100)), read(picture()))


def test_bounds_are_told_in_numbers() -> None:
    assert "1100 x 1000 (1100000 pixels) and the limit is 1000000" in refusal(png(1100, 1000))
    assert "scale it down to 1048 x 953" in refusal(png(1100, 1000))
    assert LIMITS.max_pixels >= 1048 * 953
    assert f"at most {MOST_UNEQUAL} times as long" in refusal(png(101, 1))
    assert read(png(100, 1)).shape == (1, 100, 3)
    assert "11000000 bytes and the limit is 10485760" in refusal(bytes(11_000_000))


@pytest.mark.parametrize(
    "text", ["iVBORw0KGgo*", "iVBO%3D%3D", "iVBORw0KGg", "iVBÖ", "i-BO_w==", "===="]
)
def test_what_is_not_base64_is_refused(text: str) -> None:
    assert refusal(text).startswith("the image is not base64")


def test_line_breaks_in_base64_are_passed_over() -> None:
    assert np.array_equal(read(base64.encodebytes(picture()).decode()), read(picture()))


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str) -> None:
    reason = refusal(BOMBS[name])
    assert len(reason) > 20
    assert "object at" not in reason
    if " x " in name:
        assert "the limit is 1000000" in reason


def test_bombs_take_no_memory(tmp_path: Path) -> None:
    """In a new process, as its peak memory has no other cause."""
    for number, bomb in enumerate(BOMBS.values()):
        (tmp_path / str(number)).write_bytes(bomb)
    program = f"""
import pathlib
from app.core.errors import InvalidImage
from app.core.images import ReadingLimits
from app.serving.images.reading import read_image

def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])

before = peak()
for path in pathlib.Path({str(tmp_path)!r}).iterdir():
    try:
        read_image(path.read_bytes(), ReadingLimits())
    except InvalidImage:
        continue
    raise AssertionError(path)
print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert 0 < int(done.stdout) < 90 << 10, "KiB: Pillow keeps 64 MB of a file's texts at most"


def test_broken_files_are_read_or_refused_and_nothing_else() -> None:
    refused = 0
    for file in mutants(2000, seed=1):
        with contextlib.suppress(InvalidImage):
            assert read_image(file, LIMITS).mode == "RGB"
            continue
        refused += 1
    assert 500 < refused < 1900


def test_a_text_that_pillow_does_not_keep_is_no_reason_to_refuse() -> None:
    assert read(png(8, 8, chunk(b"tEXt", b"Software\0paint"))).shape == (8, 8, 3)


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 90),
    height=st.integers(1, 90),
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"]),
    format=st.sampled_from(FORMATS),
    seed=st.integers(0, 99),
    wraps=st.booleans(),
)
def test_whatever_pillow_opens_within_the_bounds_is_taken(
    width: int, height: int, mode: str, format: str, seed: int, wraps: bool
) -> None:
    image = Image.open(io.BytesIO(picture(width, height, seed=seed))).convert(mode)
    file = io.BytesIO()
    try:
        image.save(file, format)
    except (OSError, ValueError):  # the format does not support the mode
        return
    encode = base64.encodebytes if wraps else base64.b64encode
    assert read(encode(file.getvalue()).decode()).shape == (height, width, 3)
