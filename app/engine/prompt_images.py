"""Images of a sequence: selects those in a span, and names them in prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from app.core.images import PromptImages
from app.core.step import SpanImages

_MOST_FEATURES = 1 << 32
"""Maximum features of an image: their identities are numbered from its digest."""


class Identities(Sequence[int]):
    """A live view of the token ids that key a sequence's prefixes; images have ids of their own."""

    def __init__(self, prompt: Sequence[int], tokens: Sequence[int]) -> None:
        """``prompt`` replaces the first of ``tokens``."""
        self._prompt = prompt
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        """Costs O(length of the result)."""
        length = len(self._prompt)
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self._tokens))
            assert step == 1
            behind = self._tokens[max(start, length) : stop]
            return [*self._prompt[start:stop], *behind] if start < length else behind
        at = range(len(self._tokens))[at]
        return self._prompt[at] if at < length else self._tokens[at]


class PromptImageMap:
    """The images of one prompt."""

    def __init__(self, prompt: Sequence[int], images: PromptImages) -> None:
        """Costs O(prompt)."""
        self._images = images
        self._length = len(prompt)
        positions = images.positions
        self._shift = 0 if positions is None else int(positions.max()) + 1 - len(prompt)
        self._identities = list(prompt)
        """Identities of the prompt: a token of an image is identified by the image's digest and the
        index of its feature."""
        for each in images.images:
            number = int.from_bytes(each.image.digest, "big") * _MOST_FEATURES
            for start, length in each.places:
                for at in range(start, start + length):
                    number += 1
                    self._identities[at] = -number  # a token is 0 or more
        self._wholes = [
            (start, start + length)
            for each in images.images
            if each.two_way is not None
            for start, length in each.places
        ]
        assert positions is None or positions.shape[1] == len(prompt), "a position for each token"

    def identities(self, tokens: Sequence[int]) -> Identities:
        """Identities of ``tokens``, which begin with the prompt."""
        return Identities(self._identities, tokens)

    def uncut(self, start: int, count: int) -> int:
        """How many of ``count`` tokens from ``start`` a step can compute without cutting an image
        whose tokens attend to each other."""
        end = start + count
        for low, high in self._wholes:
            if low < end < high:
                return max(0, low - start)
        return count

    def whole(self, start: int) -> int:
        """Tokens from ``start`` to the end of such an image; 0 if ``start`` is in none."""
        return sum(high - start for low, high in self._wholes if low <= start < high)

    def of(self, start: int, end: int) -> SpanImages | None:
        """Images of positions ``start`` to ``end - 1``; None: they have no effect there."""
        if start >= self._length:
            return SpanImages(shift=self._shift) if self._shift else None
        images = [each for each in self._images.images if each.start < end and start < each.end]
        positions = self._images.positions
        if positions is None:
            return SpanImages(images) if images else None
        return SpanImages(images, self._shift, positions[:, start:end])
