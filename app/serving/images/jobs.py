"""What the workers that read images are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.images import ImageDetail


@dataclass(frozen=True, slots=True)
class ImageJob:
    """An image to be prepared."""

    data: str | bytes
    """Its file; a text is base64."""
    detail: ImageDetail
    max_tokens: int
    """What it may count for in the prompt."""

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Bounds on one image."""

    max_bytes: int = 20 << 20
    """Of its file."""
    max_pixels: int = 50_000_000
