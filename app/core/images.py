"""Images of a prompt: the types between their preparation, the engine and its runner.

An image is *prepared* in a worker process: resized and cut as the model's tower takes it. In the
prompt one *placeholder* token stands for it, until the prompt is *expanded*: the placeholder gives
way to as many as the image has features, among what separates its rows::

    rendered   a b [IMG] c                        tokens of the chat template
    expanded   a b [IMG] [IMG] | [IMG] [IMG] c    tokens that the engine runs
                   |--(2, 2)-| |--(5, 2)-|        places: runs of (start, length)

The engine computes tokens as ever. In the places of an image the runner puts its features where
the embeddings of tokens would be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

ImageDetail = Literal["auto", "low", "high"]
"""Resolution for the model. ``low``: at most 512 pixels a side. ``auto`` and ``high``: the maximum
that the model and the limits allow."""

TwoWay = Literal["all", "windows"]
"""Layers in which the tokens of an image also attend to later tokens of it: all (Gemma 3), or
only those with a sliding window (Gemma 4)."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedImage:
    """An image as the model's tower takes it. Made in a worker process, and pickled from there."""

    digest: bytes
    """32 bytes: ``digest_of`` what follows. Images of one digest look the same to the model."""
    expansion: Sequence[int]
    """Tokens that stand for it in the prompt: placeholders, and what separates its rows."""
    inputs: Mapping[str, NDArray[Any]]
    """Arguments of ``get_image_features``; the first dimension is one image, or its patches."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens that it takes in the prompt."""
        return len(self.expansion)

    @property
    def nbytes(self) -> int:
        """Memory of the inputs."""
        return sum(array.nbytes for array in self.inputs.values())


class Features(Protocol):
    """The output of a vision encoder for an image: rows in host memory, for the runner alone."""

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class PromptImage:
    """A prepared image and its place in a prompt."""

    image: PreparedImage
    places: Sequence[tuple[int, int]]
    """Runs of its placeholders in the expanded prompt (start and length), ascending, which the
    image's features fill in order."""
    two_way: TwoWay | None = None
    """Layers in which the tokens of a run see one another in both directions: then a step computes
    all that is left of a run, or nothing of it. None: no layers."""
    features: Features | None = None
    """None: it has not been encoded yet, and the engine cannot run it."""

    @property
    def start(self) -> int:
        return self.places[0][0]

    @property
    def end(self) -> int:
        """The position behind its last placeholder."""
        start, length = self.places[-1]
        return start + length


@dataclass(frozen=True, slots=True, eq=False)
class PromptImages:
    """All images of one prompt."""

    images: Sequence[PromptImage]
    """In the order of the prompt; the same image may be there twice."""
    positions: NDArray[np.int64] | None = None
    """Shape [axes, tokens of the prompt]: position of each token by time, height and width, for
    models with such positions (M-RoPE; Wang et al., 2024). Tokens after the prompt continue from
    the largest position, equally on all axes. None: positions are indices."""

    def encoded(self, features: Mapping[bytes, Features]) -> PromptImages:
        """The images with ``features``, by digest, instead of pixels."""
        images = [
            replace(
                each, image=replace(each.image, inputs={}), features=features[each.image.digest]
            )
            for each in self.images
        ]
        return replace(self, images=images)

    @property
    def longest_whole(self) -> int:
        """Maximum tokens that one step has to compute together."""
        two_way = [each for each in self.images if each.two_way is not None]
        return max([length for each in two_way for _, length in each.places], default=0)


@dataclass(frozen=True, slots=True, eq=False)
class ExpandedPrompt:
    """A prompt whose images have their places."""

    tokens: Sequence[int]
    images: PromptImages


class ImageProcessor(Protocol):
    """Prepares images of one model. It knows the model's files but its weights; one thread uses it.

    ``app.model.vision.load_image_processor`` makes it, in a worker process, from what the model
    is loaded from.
    """

    def prepare(self, image: Any, detail: ImageDetail, max_tokens: int) -> PreparedImage:
        """Resize and cut ``image``, a ``PIL.Image.Image`` of mode RGB.

        Where it would count for more than ``max_tokens`` it is made smaller first. Raises
        ``InvalidRequest`` where no size of it counts for so few. Costs processor time by pixels.
        """


class VisionSpec(Protocol):
    """The server's view of a vision model's prompt format. Any thread may call it."""

    @property
    def placeholder(self) -> int:
        """The token that the chat template writes once for each image."""

    @property
    def marker(self) -> str:
        """The placeholder in text prompts; text of clients must not contain it."""

    @property
    def two_way(self) -> TwoWay | None:
        """As in ``PromptImage``."""

    def expand(self, tokens: Sequence[int], images: Sequence[PreparedImage]) -> ExpandedPrompt:
        """Put each image in the place of its placeholder, in order. Costs O(tokens).

        Raises ``InvalidRequest`` unless there are as many placeholders as images.
        """


class VisionEncoder(Protocol):
    """Runs a model's vision encoder in a separate thread, beside the steps. Thread-safe."""

    def feature_bytes(self, image: PreparedImage) -> int:
        """Memory of the features of ``image``, at most."""

    def encode(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Future[Features]:
        """The features of ``image``, computed after those requested earlier.

        The encoder's thread polls ``is_wanted``; once it is false, the computation ends before its
        next layer, with an error.
        """


def digest_of(expansion: Sequence[int], inputs: Mapping[str, NDArray[Any]]) -> bytes:
    """Cache key of a prepared image: 32 bytes of BLAKE2b, so that no two collide."""
    digest = hashlib.blake2b(np.asarray(expansion, dtype=np.int64).tobytes(), digest_size=32)
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.tobytes())
    return digest.digest()


@dataclass(frozen=True, slots=True)
class ImageJob:
    """An image to be prepared."""

    data: str | bytes
    """Its file; a text is base64."""
    detail: ImageDetail
    max_tokens: int
    """Maximum tokens that it may take in the prompt."""

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Bounds on one image."""

    max_bytes: int = 20 << 20
    """Maximum size of its file."""
    max_pixels: int = 50_000_000
