"""Prompts with images, expanded for one loaded model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.errors import InvalidRequest
from app.core.images import (
    ExpandedPrompt,
    PreparedImage,
    PromptImage,
    PromptImages,
    TwoWay,
)
from app.model.vision.tower import Tower


class ModelVisionSpec:
    """See ``app.core.images.VisionSpec``."""

    def __init__(
        self, tower: Tower, marker: str, placeholder: int, two_way: TwoWay | None = None
    ) -> None:
        """``two_way`` as in ``PromptImage``."""
        self._tower = tower
        self.two_way = two_way
        self.marker = marker
        self.placeholder = placeholder

    def expand(self, tokens: Sequence[int], images: Sequence[PreparedImage]) -> ExpandedPrompt:
        found = [at for at, token in enumerate(tokens) if token == self.placeholder]
        if len(found) != len(images):
            raise InvalidRequest(
                f"the prompt has {len(images)} images and {len(found)} places for them: texts must "
                f"not hold {self.marker!r}, and the model's chat template has to write it once for "
                "each image",
                role="prompt",
            )
        expanded: list[int] = []
        seen: list[PromptImage] = []
        done = 0
        for at, image in zip(found, images, strict=True):
            expanded += tokens[done:at]
            seen.append(PromptImage(image, self._places(image, len(expanded)), self.two_way))
            expanded += image.expansion
            done = at + 1
        expanded += tokens[done:]
        if not images or not self._tower.has_axes:
            return ExpandedPrompt(expanded, PromptImages(seen))
        is_image = np.zeros(len(expanded), dtype=np.int64)
        for each in seen:
            for start, length in each.places:
                is_image[start : start + length] = 1
        positions = self._tower.positions(expanded, is_image, images)
        return ExpandedPrompt(expanded, PromptImages(seen, positions))

    def _places(self, image: PreparedImage, start: int) -> tuple[tuple[int, int], ...]:
        placed = np.concatenate([[False], self._tower.placed(image.expansion), [False]])
        borders = np.flatnonzero(placed[1:] != placed[:-1]).reshape(-1, 2)
        return tuple((start + low, high - low) for low, high in borders.tolist())
