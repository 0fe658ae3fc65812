"""What seeing takes of a device beside the weights and the steps: measured before there is a
cache, and left alone when that is sized."""

from __future__ import annotations

from PIL import Image

from app.core.images import PreparedImage
from app.model.config import ModelConfig
from app.model.vision.self_check import LoadedVision

_SIDE = 4096
"""Pixels a side of a picture that any processor makes smaller, or that a model sees whole in some
16,000 tokens."""


class VisionMemory:
    """Of a model whose sequences may have ``context`` tokens, prompt and answer together."""

    def __init__(self, vision: LoadedVision, config: ModelConfig, context: int) -> None:
        self._eyes = vision
        self._config = config
        self._image_tokens = min(config.image_tokens, context)
        self._prompt_tokens = min(config.prompt_images * self._image_tokens, context)

    def largest_image(self) -> PreparedImage:
        """What becomes of a large picture: about as many tokens as are taken. It is square: others
        of as many tokens take about the same. Costs seconds."""
        picture = Image.new("RGB", (_SIDE, _SIDE), "white")
        return self._eyes.processor.prepare(picture, "auto", self._image_tokens)

    @property
    def feature_bytes(self) -> int:
        """The most that is held and kept at a time: the cache, or one prompt that is larger than
        that (see ``FeatureCache``)."""
        return max(self._config.image_cache_bytes, self._prompt_tokens * self._eyes.token_bytes)
