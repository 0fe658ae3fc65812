"""What a sequence sees: its images in spans, and in the names of its prefixes."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.images import PromptImages
from app.core.step import Sight

_MOST_FEATURES = 1 << 32
"""Of one image, to tell their numbers from its digest."""


class PromptSight:
    """The images of one prompt."""

    def __init__(self, prompt: Sequence[int], images: PromptImages) -> None:
        """Costs O(prompt)."""
        self._images = images
        self._length = len(prompt)
        positions = images.positions
        self._shift = 0 if positions is None else int(positions.max()) + 1 - len(prompt)
        self.identities = list(prompt)
        """The prompt as prefixes know it: what a token in an image's place stands for is the image,
        and which of its features lies there."""
        for each in images.images:
            number = int.from_bytes(each.image.digest, "big") * _MOST_FEATURES
            for start, length in each.places:
                for at in range(start, start + length):
                    number += 1
                    self.identities[at] = -number  # a token is 0 or more
        self._wholes = [
            (start, start + length)
            for each in images.images
            if each.two_way is not None
            for start, length in each.places
        ]
        assert positions is None or positions.shape[1] == len(prompt), "a position for each token"

    def uncut(self, start: int, count: int) -> int:
        """How many of ``count`` tokens from ``start`` on a step can compute: it cuts no image whose
        tokens see one another."""
        end = start + count
        for low, high in self._wholes:
            if low < end < high:
                return max(0, low - start)
        return count

    def whole(self, start: int) -> int:
        """How many tokens from ``start`` on are of one such image; 0: none."""
        return sum(high - start for low, high in self._wholes if low <= start < high)

    def of(self, start: int, end: int) -> Sight | None:
        """Of positions ``start`` to ``end - 1``; None: nothing is seen there."""
        if start >= self._length:
            return Sight(shift=self._shift) if self._shift else None
        images = [each for each in self._images.images if each.start < end and start < each.end]
        positions = self._images.positions
        if positions is None:
            return Sight(images) if images else None
        return Sight(images, self._shift, positions[:, start:end])
