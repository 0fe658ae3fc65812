"""Where tokens of an image see one another in both directions, read from a model's own masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from app.core.images import PromptImages, TwoWay


def two_way_of(masks: Any, images: PromptImages) -> TwoWay:
    """What ``masks`` [1, 1, T, T] of a prompt say, by kind of layer or one for all.

    Raises ``ValueError`` for what is not served: what sees on from one image to another, or a part
    of what is behind it, or in layers of another kind.
    """
    both = {name: _both_ways(mask, images) for name, mask in _by_kind(masks).items()}
    if all(both.values()):
        return "all"
    if both == {"full_attention": False, "sliding_attention": True}:
        return "windows"
    raise ValueError(f"tokens of an image see one another in some layers alone: {both}")


def _by_kind(masks: Any) -> Mapping[str, Any]:
    return masks if isinstance(masks, Mapping) else {"every layer": masks}


def _both_ways(mask: Any, images: PromptImages) -> bool:
    """Whether each run of an image sees what is behind it in that run; False: none does."""
    if not isinstance(mask, Tensor) or mask.ndim != 4:
        raise ValueError("tokens of an image see one another, and no mask says where")
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
        raise ValueError("its images see more or less behind them than their own tokens")
    return True
