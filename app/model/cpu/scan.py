"""Recurrent layers of a step on the CPU, by compiled loops over all spans (``kernels.scans``)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers.activations import ACT2FN

from app.model.cpu.kernels.compiled import NUMBERS, spreading
from app.model.cpu.kernels.records import share
from app.model.cpu.kernels.scans import CALL, address_of_scan
from app.model.inputs import STATE_ARRAYS, StateArrays, StepArrays
from app.model.layers.recurrent import SILU, DeltaRule, Mamba1, Mamba2
from app.model.state_storage import StateStorage

_SPREAD_WORK = 1 << 18
"""State elements times tokens from which several threads are used: some 0.1 ms of one thread."""


class CpuScan:
    """Advances states in their slots. Used by one thread."""

    def __init__(self, storage: StateStorage) -> None:
        self.storage = storage
        self._call = np.zeros(1, dtype=CALL)
        self.step_states: StateArrays | None = None
        """State slots that the step reads and saves."""
        self._filters: dict[int, tuple[Tensor, Tensor]] = {}
        """By layer, the convolution's weight [K, C] and bias [C], float32."""

    def begin(self, step: StepArrays) -> None:
        """Set the step that the following calls belong to."""
        states = self.step_states = step.state_arrays
        self._call["tokens"] = len(step.token_ids)
        self._call["spans"] = len(states.reads)
        for name in STATE_ARRAYS:
            self._call[name] = getattr(states, name).ctypes.data

    def convolve(
        self, layer: int, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        if layer not in self._filters:
            offset = torch.zeros(len(weight)) if bias is None else bias.detach().float()
            self._filters[layer] = (weight.detach().float().t().contiguous(), offset)
        factors, offset = self._filters[layer]
        silu = activation in SILU
        x = x.contiguous()
        out = torch.empty_like(x)
        states = self.storage.conv[layer]
        self._run(
            "convolve", states, (x, factors, offset), out,
            heads=x.shape[1], height=states.shape[1], extra=int(silu), work=weight.numel(),
        )  # fmt: skip
        if activation is None or silu:
            return out
        activated: Tensor = ACT2FN[activation](out)
        return activated

    def delta_rule(self, layer: int, scan: DeltaRule) -> Tensor:
        query, key, value, decay, rate, normalize = scan
        numbers = _alike(query, key, value)
        states = self.storage.scan[layer]
        _, heads, height, width = states.shape
        out = torch.empty_like(numbers[2])
        self._run(
            "delta_rule", states, (*numbers, _floats(decay), _floats(rate)), out,
            heads=heads, sources=key.shape[1], height=height, width=width,
            extra=int(normalize) + 2 * (decay.ndim - 2), work=states[0].numel(),
        )  # fmt: skip
        return out.to(value.dtype)

    def mamba2(self, layer: int, scan: Mamba2) -> Tensor:
        x, dt, decay, write, read, skip = scan
        states = self.storage.scan[layer]
        _, heads, height, width = states.shape
        x, write, read = _alike(x, write, read)
        kept = torch.zeros(heads) if skip is None else _floats(skip)
        out = torch.empty(x.shape)
        self._run(
            "mamba2", states, (x, _floats(dt), _floats(decay), write, read), out,
            heads=heads, sources=write.shape[1], height=height, width=width,
            extra=kept.data_ptr(), work=states[0].numel(),
        )  # fmt: skip
        return out

    def mamba1(self, layer: int, scan: Mamba1) -> Tensor:
        x, dt, decay, write, read = scan
        states = self.storage.scan[layer]
        x, write, read = _alike(x, write, read)
        out = torch.empty(x.shape)
        self._run(
            "mamba1", states, (x, _floats(dt), _floats(decay), write, read), out,
            heads=x.shape[1], width=states.shape[2], work=states[0].numel(),
        )  # fmt: skip
        return out

    def _run(
        self,
        scan: str,
        states: Tensor,
        parts: tuple[Tensor, ...],
        out: Tensor,
        *,
        work: int,
        heads: int,
        sources: int = 0,
        height: int = 0,
        width: int = 0,
        extra: int = 0,
    ) -> None:
        """Run ``scan``; ``work``: numbers touched for a token, which decides about threads."""
        call = self._call
        spans, tokens = int(call["spans"][0]), int(call["tokens"][0])
        for name, part in zip("xabcd", parts, strict=False):
            call[name] = part.data_ptr()
        call["out"] = out.data_ptr()
        call["states"], call["slots"] = states.data_ptr(), len(states)
        call["heads"], call["sources"] = heads, sources
        call["height"], call["width"], call["extra"] = height, width, extra
        function = address_of_scan(scan, NUMBERS[parts[0].dtype])
        with spreading(tokens * work > _SPREAD_WORK) as threads:
            chunks = min(threads, heads)
            call["chunks"] = chunks
            share(function, call.ctypes.data, spans * chunks, chunks > 1)


def _alike(*parts: Tensor) -> tuple[Tensor, ...]:
    """``parts`` contiguous and of one dtype: their common one, or float32."""
    same = all(part.dtype == parts[0].dtype for part in parts)
    return tuple([part.contiguous() if same else _floats(part) for part in parts])


def _floats(part: Tensor) -> Tensor:
    return part.detach().to(torch.float32).contiguous()
