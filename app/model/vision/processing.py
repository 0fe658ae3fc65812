"""Prepares images for a model's vision tower, by transformers' processor of that model."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.models.auto import processing_auto

from app.core.errors import InvalidRequest, UnsupportedModel
from app.core.images import ImageDetail, PreparedImage, digest_of
from app.core.model_name import is_gguf

_LOW_PIXELS = 512
"""Maximum side in pixels of an image with detail ``low``."""
_LEAST_PIXELS = 28
"""Smallest side in pixels that an image is scaled down to, to take fewer tokens."""
_OF_TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})


class HfImageProcessor:
    """See ``app.core.images.ImageProcessor``."""

    def __init__(self, processor: Any) -> None:
        self.whole = processor
        """transformers' processor, without video and sound."""
        self.marker: str = processor.image_token
        """Text that stands for an image in a prompt before it is expanded."""
        self.placeholder = int(processor.tokenizer.convert_tokens_to_ids(self.marker))
        """Token id of the marker."""

    def prepare(self, image: Any, detail: ImageDetail, max_tokens: int) -> PreparedImage:
        if detail == "low":
            image = _within(image, _LOW_PIXELS)
        prepared = self._prepared(image)
        if prepared.num_tokens <= max_tokens:
            return prepared
        least = self._prepared(_within(image, _LEAST_PIXELS))
        if least.num_tokens > max_tokens:
            raise InvalidRequest(
                f"an image of {image.width} x {image.height} pixels takes {prepared.num_tokens} "
                f"tokens ({least.num_tokens} when scaled down as far as possible) and the limit "
                f"is {max_tokens}"
            )
        side = max(image.size)
        while side > _LEAST_PIXELS and prepared.num_tokens > max_tokens:
            # Tokens are proportional to the area, unless the processor scales images down.
            side = int(side * min(0.9, math.sqrt(max_tokens / prepared.num_tokens)))
            prepared = self._prepared(_within(image, side))
        return prepared if prepared.num_tokens <= max_tokens else least

    def _prepared(self, image: Any) -> PreparedImage:
        try:
            found = self.whole(
                images=[image], text=[self.marker], return_tensors="pt", add_special_tokens=False
            )
        except ValueError as error:  # for example, too long for its width
            raise InvalidRequest(
                f"the model's image processor refuses an image of {image.width} x {image.height} "
                f"pixels: {error}"
            ) from error
        expansion = tuple(found["input_ids"][0].tolist())
        inputs = {name: each.numpy() for name, each in found.items() if name not in _OF_TEXT}
        return PreparedImage(digest_of(expansion, inputs), expansion, inputs)


def load_image_processor(model: str) -> HfImageProcessor:
    """The image processor of ``model``, a folder or a name on the Hub. Reads no weights.

    Raises ``UnsupportedModel`` if it cannot be loaded. Costs seconds and the memory of torch and
    transformers.
    """
    if is_gguf(model):
        raise UnsupportedModel(f"{model} has no image processor: GGUF files are text models")
    try:
        kind = AutoConfig.from_pretrained(model, trust_remote_code=False).model_type
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        return HfImageProcessor(_make(model, _class_for(kind), tokenizer))
    except Exception as error:  # files can be wrong in any way
        raise UnsupportedModel(f"cannot load the image processor of {model}: {error}") from error


def _class_for(kind: str) -> type[ProcessorMixin]:
    names: Mapping[str, str] = vars(processing_auto)["PROCESSOR_MAPPING_NAMES"]
    name = names[kind]
    found: Any = getattr(transformers, name)
    if getattr(found, "is_dummy", False):  # its module needs torchvision
        found = _WITHOUT_TORCHVISION[name]
    module = vars(sys.modules[found.__module__])
    if module.get("num2words", str) is None:  # with it SmolVLM's numbers a video's frames
        module["num2words"] = str
    # Without its parts for video and sound, which need libraries that are not installed.
    return type(
        found.__name__,
        (found, _WithoutOthers),
        {"get_attributes": classmethod(lambda _: ["image_processor", "tokenizer"])},
    )


def _make(model: str, kind: Any, tokenizer: PreTrainedTokenizerBase) -> Any:
    parts = {
        "image_processor": AutoImageProcessor.from_pretrained(model, trust_remote_code=False),
        "tokenizer": tokenizer,
    }
    settings, _ = kind.get_processor_dict(model)
    names: Sequence[str] = kind.__bases__[0].get_attributes()
    return kind.from_args_and_dict([parts.get(name) for name in names], settings)


def _within(image: Any, side: int) -> Any:
    """A copy of ``image`` that is no longer and no wider than ``side`` pixels."""
    smaller = image.copy()
    smaller.thumbnail((side, side))
    return smaller


class _WithoutOthers(ProcessorMixin):
    """Accepts missing parts, passed by name as None."""

    def __init__(self, *parts: Any, **given: Any) -> None:
        named = {name: each for name, each in given.items() if each is not None}
        super().__init__(*parts, **named)  # type: ignore[no-untyped-call]


class _RowsProcessor(ProcessorMixin):
    """Pixtral's processor, for Mistral 3: rows of placeholders with break tokens between them."""

    def __init__(
        self,
        image_processor: Any = None,
        tokenizer: Any = None,
        patch_size: int = 16,
        spatial_merge_size: int = 1,
        chat_template: str | None = None,
        image_token: str = "[IMG]",
        image_break_token: str = "[IMG_BREAK]",
        image_end_token: str = "[IMG_END]",
        **_: Any,
    ) -> None:
        super().__init__(image_processor, tokenizer, chat_template=chat_template)  # type: ignore[no-untyped-call]
        self.image_token = image_token
        self.image_token_id = tokenizer.convert_tokens_to_ids(image_token)
        self._patch = patch_size * spatial_merge_size
        self._marks = image_break_token, image_end_token

    def _process_images(self, images: Any, **options: Any) -> Any:
        options["patch_size"] = self._patch
        return super()._process_images(images, **options)

    def replace_image_token(self, image_inputs: dict[str, Any], image_idx: int, **_: Any) -> str:
        height, width = (int(side) for side in image_inputs["image_sizes"][image_idx])
        between, end = self._marks
        row = self.image_token * (width // self._patch)
        return between.join([row] * (height // self._patch)) + end

    @property
    def model_input_names(self) -> list[str]:
        return [*super().model_input_names, "image_sizes"]


_WITHOUT_TORCHVISION: dict[str, type[ProcessorMixin]] = {"PixtralProcessor": _RowsProcessor}
