"""One ragged forward pass: a laid-out step in, logits of the rows wanted out."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.model.attention import AttentionRoute, LayerAttention
from app.model.inputs import Ints, StepArrays


class StepAttention(LayerAttention, Protocol):
    def begin(self, step: StepArrays) -> None:
        """Set the step that the following calls of ``attend`` belong to."""


class RaggedForward:
    """A model, the route into its layers, and the attention at the route's end."""

    def __init__(
        self, model: PreTrainedModel, route: AttentionRoute, attention: StepAttention
    ) -> None:
        self._model = model
        self._route = route
        self._attention = attention
        self._device = model.device

    @torch.inference_mode()
    def run(self, step: StepArrays) -> Tensor:
        """Logits of ``step.logits_rows``: [R, width], in the model's dtype, on its device.

        Writes keys and values of all the step's tokens. On CUDA it returns before they are done.
        """
        self._attention.begin(step)
        return self.compute(
            self._to_device(step.token_ids).unsqueeze(0),
            self._to_device(step.positions).unsqueeze(0),
            self._to_device(step.logits_rows),
        )

    def compute(self, token_ids: Tensor, positions: Tensor, logits_rows: Tensor | int) -> Tensor:
        """The bare pass for the step the attention has begun; ids and positions are [1, T].

        ``logits_rows`` 0 gives logits for all T rows.
        """
        self._route.target = self._attention
        try:
            out = self._model(
                input_ids=token_ids,
                position_ids=positions,
                use_cache=False,
                logits_to_keep=logits_rows,
            )
        finally:
            self._route.target = None
        logits: Tensor = out.logits[0]
        return logits

    def _to_device(self, values: Ints) -> Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)
