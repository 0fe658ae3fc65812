"""The vision tower and projector of a model, run by the model's own code.

A vision model replaces the embeddings of placeholders by features, and calls its language model.
Here that is a stand-in, which only captures its arguments: so the features are those of
transformers, however a model joins its two parts.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import InvalidRequest
from app.core.images import ExpandedPrompt, PreparedImage, PromptImage, PromptImages, TwoWay

_LANGUAGE_MODELS = ("language_model", "text_model")


class _LanguageModelCalled(Exception):
    """Ends a forward pass at the language model, with the arguments of its call."""

    def __init__(self, embeddings: Tensor, deeper: Sequence[Tensor]) -> None:
        self.embeddings = embeddings
        self.deeper = deeper


class EncodingCancelled(Exception):
    """No request waits for the image any more."""


class _StandIn(nn.Module):
    """Replaces a language model; embeds every token as zeros."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.config = model.config
        self.embed_tokens = _Zeros(model.config.get_text_config().hidden_size, model)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def get_per_layer_inputs(self, *_: Any) -> None:
        """None: the real layers make these inputs from tokens (Gemma 3n, Gemma 4)."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **others: Any) -> None:
        raise _LanguageModelCalled(inputs_embeds, others.get("deepstack_visual_embeds") or ())


class _Zeros(nn.Module):
    def __init__(self, width: int, like: PreTrainedModel) -> None:
        super().__init__()
        self._width = width
        self._like = torch.empty(0, dtype=like.dtype, device=like.device)
        self.last_ids: Tensor | None = None
        """Argument of the last call."""

    @property
    def weight(self) -> Tensor:
        """Some models read the row of their padding token from it."""
        return self._like.new_zeros(1, 1).expand(1 << 24, self._width)

    def forward(self, token_ids: Tensor) -> Tensor:
        self.last_ids = token_ids
        return self._like.new_zeros(*token_ids.shape, self._width)


class Tower:
    """The parts of a model that encode images, without its language model."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Shares its parameters with ``model``, which may lose these parts afterwards."""
        whole: Any = getattr(model, model.base_model_prefix, model)
        self._placeholder = int(model.config.image_token_id)
        self.device = model.device
        self._encoder = copy.copy(whole)
        parts = dict(whole._modules)
        name = language_name(whole)
        parts[name] = self._reader = _StandIn(parts[name])
        vars(self._encoder)["_modules"] = parts
        copies: dict[int, Any] = {}
        for module in self._encoder.modules():  # so that the language model's may change
            if (config := vars(module).get("config")) is not None:
                vars(module)["config"] = copies.setdefault(id(config), copy.deepcopy(config))
        self._taken = frozenset(inspect.signature(type(whole).forward).parameters)
        self._is_wanted: Callable[[], bool] = lambda: True
        for module in self._encoder.modules():
            if isinstance(module, nn.ModuleList):
                for layer in module:
                    layer.register_forward_pre_hook(self._check_wanted)

    def set_attention(self) -> None:
        """Use torch's own attention where the tower supports it."""
        for module in self._encoder.modules():
            if isinstance(module, PreTrainedModel):
                module.config._attn_implementation = "sdpa" if module._supports_sdpa else "eager"

    @property
    def parts(self) -> frozenset[nn.Module]:
        """Its modules, submodules included."""
        return frozenset(self._encoder.modules())

    @property
    def nbytes(self) -> int:
        """Memory of its weights."""
        return sum(weight.nbytes for weight in self._encoder.parameters())

    def to(self, device: torch.device) -> None:
        self.device = device
        self._encoder.to(device)

    @torch.inference_mode()
    def encode(self, image: PreparedImage, is_wanted: Callable[[], bool] = lambda: True) -> Tensor:
        """The features of an image: [placeholders, 1 + D, H].

        The first replaces the embedding; each further one is added to the output of another of the
        first D layers (DeepStack; Meng et al., 2024). One thread at a time may call it. Raises
        ``EncodingCancelled`` before the next layer once ``is_wanted`` is false.
        """
        self._is_wanted = is_wanted
        ids = torch.tensor([list(image.expansion)], device=self.device)
        floats = self._encoder.dtype
        inputs = {
            name: torch.from_numpy(each).to(self.device, floats if each.dtype.kind == "f" else None)
            for name, each in image.inputs.items()
            if name in self._taken
        }
        positions = torch.arange(ids.shape[1], device=self.device).unsqueeze(0)
        try:
            self._encoder(input_ids=ids, position_ids=positions, use_cache=False, **inputs)
        except _LanguageModelCalled as call:
            first = call.embeddings[0][ids[0] == self._placeholder]
            return torch.stack([first, *[each.to(first) for each in call.deeper]], dim=1)
        raise AssertionError("the language model was not called")

    def _check_wanted(self, *_: Any) -> None:
        if not self._is_wanted():
            raise EncodingCancelled

    def embedded_as(self, image: PreparedImage) -> int:
        """The token that the language model gets at the placeholders of an image.

        Some models look up their padding token there and overwrite its embedding with features;
        per-layer inputs are then those of that token."""
        self.encode(image)
        ids = self._reader.embed_tokens.last_ids
        assert ids is not None, "the model embeds no tokens"
        (token,) = set(ids[0].cpu().numpy()[self.placed(image.expansion)].tolist())
        return int(token)

    @property
    def has_axes(self) -> bool:
        """Whether positions have axes for time, height and width."""
        return hasattr(self._encoder, "get_rope_index")

    def positions(
        self, tokens: Sequence[int], is_image: NDArray[np.int64], images: Sequence[PreparedImage]
    ) -> NDArray[np.int64]:
        """Positions of a prompt's tokens, by axis: [axes, T]. Any thread may call it.

        ``is_image`` [T] has a 1 for each placeholder.
        """
        grids = np.concatenate([image.inputs["image_grid_thw"] for image in images])
        found, _ = self._encoder.get_rope_index(
            torch.tensor([list(tokens)]),
            mm_token_type_ids=torch.from_numpy(is_image).unsqueeze(0),
            image_grid_thw=torch.from_numpy(grids),
        )
        positions: NDArray[np.int64] = found[:, 0].numpy()
        return positions

    def placed(self, tokens: Sequence[int]) -> NDArray[np.bool_]:
        """Which tokens of an expansion have features."""
        placed: NDArray[np.bool_] = np.asarray(tokens) == self._placeholder
        return placed


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


def has_vision(model: PreTrainedModel) -> bool:
    """Whether a whole model, as it was loaded, has the parts of a ``Tower``."""
    whole: Any = getattr(model, model.base_model_prefix, model)
    parts: Mapping[str, Any] = whole._modules
    has_language_model = sum(parts.get(name) is not None for name in _LANGUAGE_MODELS) == 1
    sees = hasattr(model, "get_image_features") and whole is not model
    return sees and has_language_model and hasattr(model.config, "image_token_id")


def language_name(whole: Any) -> str:
    """The name of the language model within a vision model."""
    (name,) = [name for name in _LANGUAGE_MODELS if whole._modules.get(name) is not None]
    return name
