"""Features of images on their way into a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from app.model.inputs import StepArrays
from app.model.vision.encoder import TowerThread


@dataclass(frozen=True, slots=True)
class _Put:
    rows: Tensor
    """Shape [N]: of the step's tokens."""
    features: Tensor
    """Shape [N, 1 + D, H]."""


class ImageEmbeddings:
    """The way into a model's embeddings and first layers, for the features of a step."""

    def __init__(
        self, model: PreTrainedModel, vision_encoder: TowerThread, depth: int, embedded_as: int
    ) -> None:
        """``depth``: the layers behind which features are added; ``embedded_as``: see ``Tower``.
        ``model`` has the modules that it is served with. Costs a call of Python a pass where
        nothing is seen."""
        self._embedded_as = embedded_as
        self.vision_encoder = vision_encoder
        self._device = model.device
        self._now: _Put | None = None
        self._hooks = [model.get_input_embeddings().register_forward_hook(self._replace)]
        decoder: Any = model.get_decoder()
        for number in range(depth):
            self._hooks.append(self._add_behind(decoder.layers[number], number + 1))

    def remove(self) -> None:
        self.vision_encoder.close()
        for hook in self._hooks:
            hook.remove()

    @contextlib.contextmanager
    def of_step(self, step: StepArrays) -> Iterator[None]:
        """While this lasts a forward pass has in its rows what the step sees."""
        seen = () if step.vision_input is None else step.vision_input.seen
        if not seen:
            yield
            return
        parts = list[Tensor]()
        for each in seen:
            assert each.features is not None, "a step needs features that are not computed"
            features = cast(Tensor, each.features)[each.first : each.first + each.length]
            parts.append(features.to(self._device, non_blocking=True))  # in the steps' own stream
        rows = torch.cat([torch.arange(each.row, each.row + each.length) for each in seen])
        step.token_ids[rows.numpy()] = self._embedded_as
        self._now = _Put(rows.to(self._device), torch.cat(parts))
        try:
            yield
        finally:
            self._now = None

    def _replace(self, _: nn.Module, __: Any, embedded: Tensor) -> Tensor:
        """Of embeddings [1, T, H]."""
        if self._now is not None:
            embedded[0, self._now.rows] = self._now.features[:, 0].to(embedded.dtype)
        return embedded

    def _add_behind(self, layer: nn.Module, number: int) -> RemovableHandle:
        def add(_: nn.Module, __: Any, hidden: Tensor) -> Tensor:
            if self._now is not None:  # in place: loops of our own go on with the same memory
                hidden[0, self._now.rows] += self._now.features[:, number].to(hidden.dtype)
            return hidden

        return layer.register_forward_hook(add)
