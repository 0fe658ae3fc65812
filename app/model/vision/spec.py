"""Prompts with images, expanded for one loaded model; where its masks let images look ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
                f"the prompt has {len(images)} images but {len(found)} image markers: texts must "
                f"not contain {self.marker!r}, and the model's chat template must write it once "
                "for each image",
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


def two_way_of(masks: Any, images: PromptImages) -> TwoWay:
    """What ``masks`` [1, 1, T, T] of a prompt say, by kind of layer or one for all.

    Raises ``ValueError`` for what is not served: what sees on from one image to another, or a part
    of what is behind it, or in layers of another kind.
    """
    kinds = masks if isinstance(masks, Mapping) else {"every layer": masks}
    both = {name: _both_ways(mask, images) for name, mask in kinds.items()}
    if all(both.values()):
        return "all"
    if both == {"full_attention": False, "sliding_attention": True}:
        return "windows"
    raise ValueError(f"image tokens attend to each other only in some layers: {both}")


def _both_ways(mask: Any, images: PromptImages) -> bool:
    """Whether each run of an image sees what is behind it in that run; False: none does."""
    if not isinstance(mask, Tensor) or mask.ndim != 4:
        raise ValueError("image tokens attend to each other, but there is no mask for it")
    seen = (mask if mask.dtype == torch.bool else mask == 0)[0, 0]
    later = seen.triu(1).cpu()
    if not later.any():
        return False
    expected = torch.zeros_like(later)
    for image in images.images:
        for start, length in image.places:
            own = slice(start, start + length)
            expected[own, own] = True
    if not torch.equal(later, expected.triu(1)):
        raise ValueError("image tokens attend to tokens outside their image")
    return True
