"""Draws a picture of printed text, and records the position of each character.

A `Sheet` takes runs of text, each with the field that it belongs to. `finished` then tilts and
blurs the picture and adds noise; the characters' positions follow the tilt.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from tools.demo_model.words import Split

SIDE: Final = 192
"""Width and height of a picture in pixels."""
ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,:-/#&'"
"""All characters that occur in pictures."""

_FONTS: Final = Path("/usr/share/fonts")
_FACES: Final[dict[Split, tuple[str, ...]]] = {
    "train": (
        "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansCondensed", "DejaVuSerif", "DejaVuSansMono",
        "LiberationSans-Regular", "LiberationSans-Bold", "LiberationSerif-Regular",
        "LiberationSerif-Bold", "LiberationMono-Regular", "Roboto-Regular", "Roboto-Medium",
        "OpenSans-Regular", "OpenSans-Semibold", "FreeSans", "FreeSerif", "FreeSerifBold",
        "Inconsolata", "Hack-Regular",
    ),
    "held_out": (
        "Lato-Regular", "Lato-Bold", "Carlito-Regular", "Carlito-Bold", "Cantarell-Regular",
        "Cantarell-Bold", "FiraCode-Regular",
    ),
}  # fmt: skip

Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Glyph:
    """A character and the position of its centre, in pixels from the top left corner."""

    character: str
    x: float
    y: float
    field: str
    """The field of the text around it, such as "receipt.total"."""
    before: str
    """The character before it in its run of text, empty at the first one."""
    last: bool
    """Whether its run of text ends with it."""


@dataclass(frozen=True, slots=True)
class Picture:
    """`pixels` are bytes: [SIDE, SIDE, 3], or [SIDE, SIDE] if the picture is grey."""

    pixels: NDArray[np.uint8]
    glyphs: tuple[Glyph, ...]


def missing_faces() -> list[str]:
    """The faces that this machine lacks; README.md lists the packages that have them."""
    found = _files()
    return [face for faces in _FACES.values() for face in faces if face not in found]


def faces(fonts: Split) -> tuple[str, ...]:
    """The faces of a split, which share no design with those of the other one."""
    return _FACES[fonts]


class Sheet:
    """A picture being drawn in one or two faces, dark on light.

    A `grey` one has only the mean of the three colours, and takes half the time.
    """

    def __init__(self, rng: random.Random, fonts: Split, grey: bool = False) -> None:
        self.rng = rng
        self._grey = grey
        self.face, self.strong = rng.choice(_FACES[fonts]), rng.choice(_FACES[fonts])
        if rng.random() < 0.5:
            self.strong = self.face
        self.paper, self.ink = self._colours()
        self._image = Image.new("L" if grey else "RGB", (SIDE, SIDE), self._shown(self.paper))
        self._draw = ImageDraw.Draw(self._image)
        self._glyphs: list[Glyph] = []

    def write(
        self,
        text: str,
        field: str,
        at: tuple[float, float],
        size: int,
        *,
        room: float,
        align: str = "l",
        strong: bool = False,
    ) -> None:
        """Writes a run of text, smaller if need be, so that it is at most `room` pixels wide.

        `at` is a point of the baseline: the left end, the right end or the middle, by `align`
        ("l", "r" or "m").
        """
        face = self.strong if strong else self.face
        font = _font(face, size)
        while font.getlength(text) > room:
            size -= 1
            font = _font(face, size)
        left = at[0] - font.getlength(text) * {"l": 0.0, "m": 0.5, "r": 1.0}[align]
        self._draw.text((left, at[1]), text, font=font, fill=self._shown(self.ink), anchor="ls")
        widths = [_width(face, size, character) for character in text]
        # With kerning, all letters are assumed to be a little narrower.
        kerned = font.getlength(text) / sum(widths)
        end = 0.0
        for index, (character, width) in enumerate(zip(text, widths, strict=True)):
            start, end = end, end + width * kerned
            self._glyphs.append(
                Glyph(
                    character,
                    left + (start + end) / 2,
                    at[1] - 0.34 * size,
                    field,
                    text[index - 1] if index else "",
                    index == len(text) - 1,
                )
            )

    def block(self, corners: Sequence[float], fill: Colour | None, edge: bool = False) -> None:
        """A filled rectangle, or with `edge` its outline."""
        outline = self._shown(self.ink) if edge else None
        self._draw.rectangle(list(corners), fill=fill and self._shown(fill), outline=outline)

    def line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """A thin line."""
        self._draw.line([start, end], fill=self._shown(self.ink))

    def finished(self) -> Picture:
        """The picture, a little tilted, blurred and noisy, as a photograph would be."""
        rng = self.rng
        degrees = rng.uniform(-1.2, 1.2) if rng.random() < 0.7 else 0.0
        image = self._image
        if degrees:
            image = image.rotate(
                degrees, Image.Resampling.BILINEAR, fillcolor=self._shown(self.paper)
            )
        if rng.random() < 0.4:
            image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.7)))
        pixels = np.asarray(image)
        grains = (SIDE, SIDE) if self._grey else (SIDE, SIDE, 1)
        if rng.random() < 0.7:
            noise = np.random.default_rng(rng.getrandbits(32)).standard_normal(
                grains, dtype=np.float32
            )
            pixels = np.clip(pixels + rng.uniform(2, 12) * noise, 0, 255).astype(np.uint8)
        return Picture(pixels, tuple(_turned(glyph, degrees) for glyph in self._glyphs))

    def _shown(self, colour: Colour) -> Colour | int:
        return round(sum(colour) / 3) if self._grey else colour

    def _colours(self) -> tuple[Colour, Colour]:
        rng = self.rng
        light: Colour = (rng.randint(205, 255), rng.randint(205, 255), rng.randint(200, 255))
        dark: Colour = (rng.randint(0, 80), rng.randint(0, 80), rng.randint(0, 90))
        return light, dark


def _turned(glyph: Glyph, degrees: float) -> Glyph:
    """The glyph after the picture is rotated, counterclockwise, about its middle."""
    turn, middle = math.radians(degrees), SIDE / 2
    x, y = glyph.x - middle, glyph.y - middle
    return Glyph(
        glyph.character,
        middle + x * math.cos(turn) + y * math.sin(turn),
        middle - x * math.sin(turn) + y * math.cos(turn),
        glyph.field,
        glyph.before,
        glyph.last,
    )


@cache
def _files() -> dict[str, Path]:
    return {path.stem: path for path in sorted(_FONTS.rglob("*.[ot]tf"))}


@cache
def _width(face: str, size: int, character: str) -> float:
    return _font(face, size).getlength(character)


@cache
def _font(face: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_files()[face]), size, layout_engine=ImageFont.Layout.BASIC)
