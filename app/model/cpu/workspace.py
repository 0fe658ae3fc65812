"""Threads and memory that the fused layers of a model share."""

from __future__ import annotations

import threading
import weakref
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.model.cpu.attention import CpuAttention
from app.model.cpu.kernels import attention as kernels
from app.model.cpu.kernels import jobs, records
from app.model.cpu.kernels.team import close, new_board
from app.model.cpu.scan import CpuScan
from app.model.inputs import STATE_ARRAYS, Ints


class CpuTeam:
    """Threads for the products of one model, and their records. Used by one thread at a time."""

    def __init__(self, threads: int, layers: int = 0) -> None:
        board, job = new_board(), np.zeros(1, dtype=records.JOB)
        self.layers = np.zeros(max(layers, 1), dtype=records.LAYER)
        self.steps = np.zeros(1, dtype=records.STEP)
        job["run"] = jobs.entry()
        job["layers"], job["step"] = self.layers.ctypes.data, self.steps.ctypes.data
        self.shared: tuple[Any, Any] = (board, job)
        for number in range(1, threads):
            threading.Thread(
                target=jobs.help_out, args=self.shared, name=f"leapjson-pass-{number}", daemon=True
            ).start()
        self._rounded = torch.empty(0, dtype=torch.uint8)
        # The helpers hold the shared records, and nothing else of this object.
        weakref.finalize(self, close, board)

    def use_amx(self, rows: int, rounded_rows: int) -> None:
        """Minimum numbers of rows for AMX, in bfloat16 and of rounded rows; 0: never."""
        _, job = self.shared
        job["tiles_from"], job["rounded_tiles_from"] = rows, rounded_rows

    def reserve(self, size: int) -> None:
        """Allocate memory for at least ``size`` bytes of rounded rows."""
        if size > len(self._rounded):
            self._rounded = torch.empty(size + size // 4, dtype=torch.uint8)
            _, job = self.shared
            job["rounded"] = self._rounded.data_ptr()


class Workspace:
    """Memory for a step's intermediate values; all layers use it, one after the other."""

    def __init__(self, team: CpuTeam) -> None:
        self._team = team
        self._attention = kernels.new_call(torch.bfloat16)
        team.steps["attend"] = kernels.entry()
        team.steps["attention"] = self._attention.ctypes.data
        self._size = 0
        self._buffers: dict[str, Tensor] = {}
        self._group = -1
        self._storages: tuple[Any, Any] = (None, None)
        self._pools: Ints = np.empty((2, 0, 2), dtype=np.int64)
        self._rotations: tuple[Tensor, ...] = ()
        self._alive: tuple[Any, ...] = ()
        self.rounded_bytes = 0
        """Bytes of a token's rounded row, for the product with the longest one."""

    def begin(self, hidden: Tensor, attention: CpuAttention, scan: CpuScan | None) -> None:
        """Prepare the loops for ``hidden`` [1, T, H], in the step that both others have begun."""
        tokens = hidden.shape[1]
        self._make_room(tokens)
        self._address_pools(attention, scan)
        self._group, self._rotations = -1, ()
        step, short = self._team.steps, attention.short
        values = {
            "tokens": tokens,
            "hidden": hidden.data_ptr(),
            "spans": short.spans.ctypes.data,
            "span_count": len(short.spans),
            "block_size": short.block_size,
        }
        states = None if scan is None else scan.step_states
        if states is not None:
            values["state_spans"] = len(states.reads)
            for name in STATE_ARRAYS:
                values[name] = getattr(states, name).ctypes.data
        for name, value in values.items():
            step[name] = value
        if attention.slots:
            self.select(attention, 0)
        self._alive = (hidden, attention.slots, short, states)

    def rotate_by(self, position_embeddings: tuple[Tensor, Tensor]) -> None:
        """Set the cosines and sines of RoPE for the loops, [T, D] or [1, T, D] each."""
        if position_embeddings is self._rotations:
            return
        cos, sin = (part.contiguous() for part in position_embeddings)
        self._rotations = position_embeddings
        self._alive += (cos, sin)
        step = self._team.steps
        step["cos"], step["sin"], step["rotary_dim"] = cos.data_ptr(), sin.data_ptr(), cos.shape[-1]

    def normed(self, tokens: int, size: int) -> Tensor:
        """Output of the last norm: [T, H], a view."""
        return self._buffers["normed"][: tokens * size].view(tokens, size)

    def heads(self, tokens: int, width: int, dim: int) -> Tensor:
        """Output of a layer's first product, as heads: [T, heads, D], a view."""
        return self._buffers["heads"][: tokens * width].view(tokens, -1, dim)

    def attended(self, tokens: int, size: int, dim: int) -> Tensor:
        """Memory for the output of attention: [T, Hq, D], a view."""
        return self._buffers["attended"][: tokens * size].view(tokens, -1, dim)

    def select(self, attention: CpuAttention, group: int) -> None:
        """Have the loops read and write the blocks of a cache group."""
        if group == self._group:
            return
        self._group = group
        step, later = self._team.steps, attention.later[group]
        step["slots"] = attention.slots[group].ctypes.data
        step["blocks"] = attention.short.blocks[group].ctypes.data
        step["later"], step["later_count"] = later.ctypes.data, len(later)

    def _make_room(self, tokens: int) -> None:
        self._team.reserve(tokens * self.rounded_bytes)
        if tokens <= self._size:
            return
        self._size = tokens + tokens // 4
        layers = self._team.layers
        scanned = layers["mixer"] != 0
        channels = 2 * layers["kv_heads"] * layers["dim"] + layers["heads"] * layers["value_dim"]
        widths = {
            "normed": layers["hidden"],
            "heads": layers["width"],
            "attended": layers["mixed"],
            "intermediate": layers["intermediate"],
            "convolved": channels * scanned,
            "gates": 4 * layers["heads"] * scanned,  # two float32 for each
        }
        for name, width in widths.items():
            made = torch.empty(self._size * int(width.max()), dtype=torch.bfloat16)
            self._buffers[name] = made
            self._team.steps[name] = made.data_ptr()

    def _address_pools(self, attention: CpuAttention, scan: CpuScan | None) -> None:
        storages = (attention.storage, None if scan is None else scan.storage)
        if all(map(is_, storages, self._storages)):
            return
        self._storages = storages
        self._pools = np.zeros((2, len(self._team.layers), 2), dtype=np.int64)
        keys, values = attention.storage.keys, attention.storage.values
        for layer in keys:
            self._pools[0, layer] = keys[layer].data_ptr(), values[layer].data_ptr()
        step = self._team.steps
        if scan is not None:
            conv, states = scan.storage.conv, scan.storage.scan
            for layer in states:
                self._pools[1, layer] = conv[layer].data_ptr(), states[layer].data_ptr()
                step["state_slots"] = len(states[layer])
        step["pools"], step["state_pools"] = (part.ctypes.data for part in self._pools)
