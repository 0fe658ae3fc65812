"""Features of images: those that prompts hold, and those seen last, by digest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from app.core.images import PreparedImage


@dataclass(slots=True, eq=False)
class Features:
    """What is known of one image; ``FeatureCache`` guards it."""

    image: PreparedImage
    nbytes: int
    """Memory of the features, at most: it is counted before they are there."""
    holders: int = 0
    tensor: Tensor | None = None
    """Shape [1 + D, placeholders, H]; None: not computed yet."""


class FeatureCache:
    """Features of images. Any thread may call it; every call is short."""

    def __init__(self, max_bytes: int, token_bytes: int) -> None:
        """``max_bytes``: of all that is held and kept, but for one prompt that is larger alone;
        ``token_bytes``: of the features in one place."""
        self._max_bytes = max_bytes
        self._token_bytes = token_bytes
        self._lock = threading.Lock()
        self._of: OrderedDict[bytes, Features] = OrderedDict()
        """By digest; least recently used first, of those that nobody holds."""
        self._held_bytes = 0
        """Of what is held, computed or not."""
        self._bytes = 0
        """Of what is computed."""

    @property
    def nbytes(self) -> int:
        return self._bytes

    def has_room(self, images: Sequence[PreparedImage]) -> bool:
        """See ``VisionEncoder``."""
        with self._lock:
            if not self._held_bytes:
                return True
            more = {image.digest: self._most_bytes(image) for image in images}
            held = [d for d in more if (f := self._of.get(d)) is not None and f.holders]
            new = sum(more.values()) - sum([more[digest] for digest in held])
            return self._held_bytes + new <= self._max_bytes

    def hold(self, image: PreparedImage) -> Features:
        """The features of ``image``, which stay, once they are there, until they are let go."""
        with self._lock:
            features = self._of.get(image.digest)
            if features is None:
                features = Features(image, self._most_bytes(image))
                self._of[image.digest] = features
            if not features.holders:
                self._held_bytes += features.nbytes
            features.holders += 1
            return features

    def let_go(self, features: Features) -> None:
        """One holder less."""
        with self._lock:
            features.holders -= 1
            if features.holders:
                return
            digest = features.image.digest
            self._held_bytes -= features.nbytes
            if features.tensor is None:
                del self._of[digest]
            else:
                self._of.move_to_end(digest)
            self._make_room()

    def put(self, features: Features, tensor: Tensor) -> None:
        """``features`` were computed. Of no effect where nobody wants them any more."""
        with self._lock:
            if not features.holders:
                return
            features.tensor = tensor
            self._bytes += tensor.nbytes
            self._make_room()

    def of(self, image: PreparedImage) -> Tensor:
        """Features that somebody holds."""
        with self._lock:
            features = self._of[image.digest]
            assert features.holders, "a step needs features that nobody holds"
            assert features.tensor is not None, "a step needs features that are not computed"
            return features.tensor

    def _most_bytes(self, image: PreparedImage) -> int:
        return image.num_tokens * self._token_bytes

    def _make_room(self) -> None:
        """Forget what nobody holds and was used least recently, where there is too much."""
        if self._bytes <= self._max_bytes:
            return
        for digest, each in list(self._of.items()):
            if not each.holders:
                assert each.tensor is not None
                del self._of[digest]
                self._bytes -= each.tensor.nbytes
                if self._bytes <= self._max_bytes:
                    return
