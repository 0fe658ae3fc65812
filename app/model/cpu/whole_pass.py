"""A model of fused layers from token ids to logits, without transformers' code around the layers.

That code is some hundred calls of Python and thirty small operations: 1 to 1.5 ms of a step, whose
products take 2 with weights of 4 bits (160M parameters, two cores).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.model.cpu.kernels import jobs
from app.model.cpu.kernels.compiled import as_numpy
from app.model.cpu.layers import FusedLayer
from app.model.cpu.mixers import Routes
from app.model.cpu.norms import Norm, read_norm
from app.model.cpu.workspace import CpuTeam, Workspace

_KNOWN = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
}
"""All are: embedding, layers, RMSNorm of the rows wanted, output layer; RoPE by position alone."""

_LEAST_TABLE, _MOST_TABLE = 1 << 9, 1 << 15
"""Positions whose rotations are kept; those of later ones are computed at every step."""


class WholePass:
    """Does what ``forward`` of the model does, for the step the attention has begun."""

    def __init__(
        self,
        model: PreTrainedModel,
        norm: Norm,
        routes: Routes,
        workers: CpuTeam,
        workspace: Workspace,
    ) -> None:
        body: Any = model.model
        self._embed, self._rotary, self._head = body.embed_tokens, body.rotary_emb, model.lm_head
        self._layers: list[FusedLayer] = list(body.layers)
        self._in_loops = all(layer.is_whole for layer in self._layers)
        self._norm = as_numpy(norm.weight), int(norm.shifted), norm.eps
        self._routes, self._team, self._workspace = routes, workers, workspace
        self._cos = self._sin = torch.empty(0)

    def __call__(
        self, *, input_ids: Tensor, position_ids: Tensor, logits_to_keep: Tensor | int, **_: Any
    ) -> SimpleNamespace:
        """Ids and positions [1, T] -> ``logits`` [1, R, V] of the rows to keep; 0: of all."""
        attention, scan = self._routes.targets()
        hidden = self._embed(input_ids)
        self._workspace.begin(hidden, attention, scan)
        self._workspace.rotate_by(self._rotations(hidden, position_ids))
        if attention.has_long or len(attention.slots) > 1 or not self._in_loops:
            for layer in self._layers:
                layer.run(hidden)
        elif self._routes.attention.interrupted is None:
            jobs.layers(*self._team.shared, 0, len(self._layers))
        else:
            for number in range(len(self._layers)):
                self._routes.attention.check()
                jobs.layers(*self._team.shared, number, number + 1)
        rows = logits_to_keep
        if isinstance(rows, int):
            assert rows == 0, "all rows, or those of a list"
            rows = torch.arange(hidden.shape[1])
        normed = hidden.new_empty(len(rows), hidden.shape[2])
        jobs.norm_rows(as_numpy(hidden[0]), rows.numpy(), *self._norm, as_numpy(normed))
        return SimpleNamespace(logits=self._head(normed)[None])

    def _rotations(self, hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions: [T, D] each."""
        positions = position_ids[0]
        most = int(positions.max()) if len(positions) else 0
        if most >= _MOST_TABLE:
            cos, sin = self._turned(hidden, position_ids)
            return cos[0], sin[0]
        if most >= len(self._cos):
            size = max(_LEAST_TABLE, 1 << most.bit_length())
            cos, sin = self._turned(hidden, torch.arange(size)[None])
            self._cos, self._sin = cos[0].contiguous(), sin[0].contiguous()
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)

    def _turned(self, hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """By the model's own code: [1, T, D] each."""
        if hasattr(self._rotary, "mrope_section"):  # time, height and width, which are one in text
            position_ids = position_ids.expand(3, -1, -1)
        cos, sin = self._rotary(hidden, position_ids)
        return cos, sin


def put_whole_pass(
    model: PreTrainedModel, routes: Routes, workers: CpuTeam, workspace: Workspace
) -> bool:
    """Give ``model`` this forward where it can have it; returns whether."""
    body: Any = getattr(model, "model", None)
    if type(model).__name__ not in _KNOWN or not all(
        isinstance(layer, FusedLayer) for layer in getattr(body, "layers", [None])
    ):
        return False
    norm = read_norm(body.norm)
    if norm is None:
        return False
    model.forward = WholePass(model, norm, routes, workers, workspace)
    return True
