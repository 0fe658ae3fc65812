"""Recurrent layers of a step on CUDA: two or three launches a layer, in place on states in slots.

The slots of states are in the step's buffer (``step_buffers.DeviceStates``), so the launches are
the same for every step with the same number of tokens, and a CUDA graph can hold them.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from transformers.activations import ACT2FN

from app.model.cuda.kernels import scans
from app.model.cuda.step_buffers import DeviceStates, DeviceStep
from app.model.cuda.tiles import power_of_2
from app.model.inputs import StepArrays
from app.model.layers.recurrent import SILU, DeltaRule, Mamba1, Mamba2
from app.model.state_storage import StateStorage

_STATE_NUMBERS = 4096
"""Numbers of a state that one program holds: 32 a thread with four warps."""
_CHANNELS = 256


class StepOnDevice(Protocol):
    @property
    def step(self) -> DeviceStep:
        """The current step."""


class TritonScan:
    """Advances states in their slots, for the current step of ``on_device``."""

    def __init__(self, storage: StateStorage, on_device: StepOnDevice) -> None:
        self.storage = storage
        self._on_device = on_device

    def begin(self, step: StepArrays) -> None:
        """Does nothing: the attention's ``begin`` copies the slots of states as well."""

    def convolve(
        self, layer: int, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        places, states = self._places, self.storage.conv[layer]
        x = _rows(x)
        tokens, channels = x.shape
        weight = weight.contiguous()
        out = x.new_empty(tokens, channels)
        kept = states.shape[1]
        blocks = -(channels // -_CHANNELS)
        silu = activation in SILU
        scans.convolve[(tokens, blocks)](
            x, weight, weight if bias is None else bias, states, out,
            places.rows, places.reads, places.row_spans, x.stride(0),
            CHANNELS=channels, BLOCK=_CHANNELS, TAPS=kept + 1,
            BIASED=bias is not None, ACTIVATES=silu,
        )  # fmt: skip
        # After all rows have read the states: a save may overwrite the slot that was read.
        scans.keep_inputs[(len(places.reads), blocks)](
            x, states, places.rows, places.reads,
            places.save_starts, places.save_rows, places.save_slots, x.stride(0),
            CHANNELS=channels, BLOCK=_CHANNELS,
            KEPT=kept, KEPT_PAD=power_of_2(kept),
        )  # fmt: skip
        if activation is None or silu:
            return out
        activated: Tensor = ACT2FN[activation](out)
        return activated

    def delta_rule(self, layer: int, scan: DeltaRule) -> Tensor:
        query, key, value, decay, rate, normalize = scan
        places, states = self._places, self.storage.scan[layer]
        _, heads, values, keys = states.shape
        query, key, value, decay, rate = map(_rows, (query, key, value, decay, rate))
        out = value.new_empty(value.shape)
        keys_pad = power_of_2(keys)
        block = _block(values, keys_pad)
        scans.delta_rule[(len(places.reads), heads, -(values // -block))](
            query, key, value, decay, rate, states, out, *_spans_and_saves(places),
            *_row_strides(query, key, value, decay, rate),
            HEADS=heads, GROUP=heads // key.shape[1], KEYS=keys, KEYS_PAD=keys_pad,
            VALUES=values, BLOCK=block,
            NORMALIZE=normalize, BY_CHANNEL=decay.ndim == 3, SCALE=keys**-0.5,
        )  # fmt: skip
        return out

    def mamba2(self, layer: int, scan: Mamba2) -> Tensor:
        x, dt, decay, write, read, skip = scan
        places, states = self._places, self.storage.scan[layer]
        _, heads, dims, size = states.shape
        x, dt, write, read = map(_rows, (x, dt, write, read))
        decay = decay.contiguous()
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        size_pad = power_of_2(size)
        block = _block(dims, size_pad)
        scans.mamba2[(len(places.reads), heads, -(dims // -block))](
            x, dt, decay, write, read, decay if skip is None else skip.contiguous(), states, out,
            *_spans_and_saves(places),
            *_row_strides(x, dt, write, read),
            HEADS=heads, GROUP=heads // write.shape[1], DIMS=dims, BLOCK=block,
            SIZE=size, SIZE_PAD=size_pad, SKIPS=skip is not None,
        )  # fmt: skip
        return out

    def mamba1(self, layer: int, scan: Mamba1) -> Tensor:
        x, dt, decay, write, read = scan
        places, states = self._places, self.storage.scan[layer]
        _, channels, size = states.shape
        x, dt, write, read = map(_rows, (x, dt, write, read))
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        size_pad = power_of_2(size)
        block = _block(channels, size_pad)
        scans.mamba1[(len(places.reads), -(channels // -block))](
            x, dt, decay.contiguous(), write, read, states, out, *_spans_and_saves(places),
            *_row_strides(x, dt, write, read),
            CHANNELS=channels, BLOCK=block, SIZE=size, SIZE_PAD=size_pad,
        )  # fmt: skip
        return out

    @property
    def _places(self) -> DeviceStates:
        places = self._on_device.step.states
        assert places is not None, "the step has no state slots"
        return places


def _spans_and_saves(places: DeviceStates) -> tuple[Tensor, ...]:
    return places.rows, places.reads, places.save_starts, places.save_rows, places.save_slots


def _block(columns: int, others: int) -> int:
    """Number of a state's columns that a program holds, a power of 2; ``others`` numbers each."""
    return min(power_of_2(columns), max(1, _STATE_NUMBERS // others))


def _rows(part: Tensor) -> Tensor:
    """``part`` [T, ...] with contiguous rows; rows may be slices of longer ones."""
    return part if part[0].is_contiguous() else part.contiguous()


def _row_strides(*parts: Tensor) -> list[int]:
    return [part.stride(0) for part in parts]
