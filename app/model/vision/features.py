"""Features of images: computed once, kept by digest, and put into steps."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from app.core.images import PreparedImage, SightCounts
from app.model.inputs import StepArrays
from app.model.vision.tower import Tower


class FeatureCache:
    """The features of the images seen last. One thread uses it; ``counts`` any may read."""

    def __init__(self, tower: Tower, max_bytes: int) -> None:
        self._tower = tower
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._bytes = 0
        self._computed = self._found = 0
        self._seconds = 0.0

    @property
    def counts(self) -> SightCounts:
        return SightCounts(self._computed, self._found, self._seconds, self._bytes)

    def of(self, image: PreparedImage) -> Tensor:
        """As ``Tower.see``. What is used least recently goes where there is too much; the one that
        was just computed stays, however large it is, as the next step may want the rest of it."""
        features = self._kept.get(image.digest)
        if features is not None:
            self._kept.move_to_end(image.digest)
            self._found += 1
            return features
        started = time.perf_counter()
        features = self._tower.see(image)
        self._computed += 1
        self._seconds += time.perf_counter() - started
        self._kept[image.digest] = features
        self._bytes += features.nbytes
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            _, least = self._kept.popitem(last=False)
            self._bytes -= least.nbytes
        return features


@dataclass(frozen=True, slots=True)
class _Put:
    rows: Tensor
    """Shape [N]: of the step's tokens."""
    features: Tensor
    """Shape [1 + D, N, H]."""


class SeenEmbeddings:
    """The way into a model's embeddings and first layers, for the features of a step."""

    def __init__(
        self, model: PreTrainedModel, features: FeatureCache, depth: int, embedded_as: int
    ) -> None:
        """``depth``: the layers behind which features are added; ``embedded_as``: see ``Tower``.
        ``model`` has the modules that it is served with. Costs a call of Python a pass where
        nothing is seen."""
        self._embedded_as = embedded_as
        self._features = features
        self._device = model.device
        self._now: _Put | None = None
        self._hooks = [model.get_input_embeddings().register_forward_hook(self._replace)]
        decoder: Any = model.get_decoder()
        for number in range(depth):
            self._hooks.append(self._add_behind(decoder.layers[number], number + 1))

    @property
    def counts(self) -> SightCounts:
        return self._features.counts

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    @contextlib.contextmanager
    def of_step(self, step: StepArrays) -> Iterator[None]:
        """While this lasts a forward pass has in its rows what the step sees."""
        seen = () if step.sight is None else step.sight.seen
        if not seen:
            yield
            return
        parts = [
            self._features.of(each.image)[:, each.first : each.first + each.length] for each in seen
        ]
        rows = torch.cat([torch.arange(each.row, each.row + each.length) for each in seen])
        step.token_ids[rows.numpy()] = self._embedded_as
        self._now = _Put(rows.to(self._device), torch.cat(parts, dim=1))
        try:
            yield
        finally:
            self._now = None

    def _replace(self, _: nn.Module, __: Any, embedded: Tensor) -> Tensor:
        """Of embeddings [1, T, H]."""
        if self._now is not None:
            embedded[0, self._now.rows] = self._now.features[0].to(embedded.dtype)
        return embedded

    def _add_behind(self, layer: nn.Module, number: int) -> RemovableHandle:
        def add(_: nn.Module, __: Any, hidden: Tensor) -> Tensor:
            if self._now is not None:  # in place: loops of our own go on with the same memory
                hidden[0, self._now.rows] += self._now.features[number].to(hidden.dtype)
            return hidden

        return layer.register_forward_hook(add)
