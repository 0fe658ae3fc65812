"""A ragged forward pass: takes a laid-out step, gives logits of the rows that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.model.inputs import Ints, StepArrays
from app.model.layers.attention import AttentionRoute, LayerAttention
from app.model.layers.model_call import logits_of
from app.model.layers.recurrent import RecurrentRoute, StepScan


class StepAttention(LayerAttention, Protocol):
    def begin(self, step: StepArrays) -> None:
        """Set the step that the following calls of ``attend`` belong to."""


class RaggedForward:
    """A model, the routes of its layers, and the attention and scan that these call."""

    def __init__(
        self,
        model: PreTrainedModel,
        route: AttentionRoute,
        recurrent: RecurrentRoute,
        attention: StepAttention,
        scan: StepScan | None = None,
    ) -> None:
        """``scan`` None: the model has no recurrent layer."""
        self._model = model
        self._route = route
        self._recurrent = recurrent
        self.attention = attention
        self._scan = scan
        self.device = model.device

    @torch.inference_mode()
    def run(self, step: StepArrays) -> Tensor:
        """Logits of ``step.logits_rows``: [R, width], in the model's dtype, on its device.

        Writes keys and values of all the step's tokens, and the states its spans save. On CUDA it
        returns before that work is done.
        """
        self.attention.begin(step)
        if self._scan is not None:
            self._scan.begin(step)
        return self.compute(
            self._to_device(step.token_ids).unsqueeze(0),
            self.model_positions(step),
            self._to_device(step.logits_rows),
        )

    def compute(self, token_ids: Tensor, positions: Tensor, logits_rows: Tensor | int) -> Tensor:
        """The model's pass for the step given to ``attention.begin``; ids are [1, T], positions
        [1, T] or, by axis, [axes, 1, T].

        ``logits_rows`` 0 gives logits for all T rows.
        """
        self._route.target, self._recurrent.target = self.attention, self._scan
        try:
            return logits_of(self._model, token_ids, positions, logits_rows)
        finally:
            self._route.target = self._recurrent.target = None

    def interrupt_when(self, condition: Callable[[], bool] | None) -> None:
        """See ``TorchRunner.interrupt_when``."""
        self._route.interrupted = condition

    def model_positions(self, step: StepArrays) -> Tensor:
        """``position_ids`` for the model: [1, T], or by axis [axes, 1, T]."""
        shifted = None if step.vision_input is None else step.vision_input.positions
        return self._to_device(step.positions if shifted is None else shifted).unsqueeze(-2)

    def _to_device(self, values: Ints) -> Tensor:
        tensor = torch.from_numpy(values)
        return tensor if self.device.type == "cpu" else tensor.to(self.device, non_blocking=True)
