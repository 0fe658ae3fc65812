"""The input of a step on the device: one buffer, filled by one copy.

A layout divides the buffer into parts. Each begins at a multiple of 16 bytes, since kernels are
compiled for aligned pointers::

    ids   | positions | slots by group | logits rows | drawn rows | adapters | ancestors | ends
    N int64 N int64     N int64 each     R int64       N int32      N int32    N int64     N int64

    | states | lists by kind | tables
      int32    int32           int32

A captured graph has its own layout, for its maximum size; a step without a graph has one of exactly
its size. Only the used part of the tables, which come last, is copied. Host buffers are used in
turn, so that the next step can be laid out while this one is still being copied; the device's
buffer is read and written by one stream, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.model.cuda.kernels.attention import COUNTS, ITEM, MERGE, take_drawn
from app.model.cuda.work import Int32s, Wave, Work
from app.model.inputs import NO_INTS, Ints, StateArrays, StepArrays

_TURNS = 3
"""Number of host buffers: one is filled while the two before may still be copied."""
_ALIGNED = 4
"""Int32s in 16 bytes."""
_DRAWN_TOKENS = 128


@dataclass(frozen=True, slots=True)
class ListSizes:
    """Capacity of the lists of one kind of layer."""

    short: int
    long: int
    merges: int
    waves: int = 1

    @staticmethod
    def of(work: Work) -> ListSizes:
        return ListSizes(len(work.short), len(work.long), len(work.merges), len(work.waves))

    def hold(self, work: Work) -> bool:
        return (
            len(work.short) <= self.short
            and len(work.long) <= self.long
            and len(work.merges) <= self.merges
            and len(work.waves) <= self.waves
        )

    def whole(self) -> Wave:
        """A wave of the full capacity, as a captured graph has it for every step."""
        assert self.waves == 1
        return Wave(slice(0, self.short), slice(0, self.long), slice(0, self.merges))


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Capacity of the lists of recurrent state slots."""

    spans: int
    saves: int


class Layout:
    """Offsets of the parts of a step in a buffer, in int32s."""

    def __init__(
        self,
        tokens: int,
        rows: int,
        groups: int,
        lists: Sequence[ListSizes],
        tables: int,
        *,
        adapters: bool = False,
        states: StateSizes | None = None,
        trees: bool = False,
        later: bool = False,
    ) -> None:
        """``groups``: number of cache groups; ``tables``: blocks of all spans and groups together.

        The tokens' adapters have a part only with ``adapters``, state slots only with recurrent
        layers, ancestors only with ``trees``, and ends only with ``later``: rows that attend to
        later ones.
        """
        self.tokens = tokens
        self.rows = rows
        self.lists = tuple(lists)
        self.table_blocks = tables
        self._end = 0
        self.token_ids, self.positions = self._part(2 * tokens), self._part(2 * tokens)
        self.slots = [self._part(2 * tokens) for _ in range(groups)]
        self.logits_rows = self._part(2 * rows)
        self.drawn_rows = self._part(tokens)
        self.adapters = self._part(tokens if adapters else 0)
        self.ancestors = self._part(2 * tokens) if trees else None
        self.ends = self._part(2 * tokens) if later else None
        self.states = None
        if states is not None:
            self.states = (
                self._part(states.spans + 1),
                self._part(states.spans),
                self._part(states.spans + 1),
                self._part(states.saves),
                self._part(states.saves),
                self._part(tokens),
            )
        self.kinds = [
            (
                self._part(size.waves * COUNTS),
                self._part(size.short * ITEM),
                self._part(size.long * ITEM),
                self._part(size.merges * MERGE),
            )
            for size in lists
        ]
        self.tables = self._part(tables)
        self.end = self._end

    def _part(self, length: int) -> slice:
        start = self._end
        self._end = -((start + length) // -_ALIGNED) * _ALIGNED
        return slice(start, start + length)


@dataclass(frozen=True, slots=True)
class DeviceWave:
    """Lists of work on the device; see ``kernels.attention``. A list of None is not launched."""

    counts: Tensor
    """Shape [COUNTS]."""
    short: Tensor | None
    long: Tensor | None
    merges: Tensor | None


@dataclass(frozen=True, slots=True)
class DeviceStates:
    """``inputs.StateArrays`` on the device, int32: S spans, N saves. Unused spans are empty.

    A padding token is a span that reads the empty state and saves nothing.
    """

    rows: Tensor
    """Shape [S + 1]."""
    reads: Tensor
    """Shape [S]."""
    save_starts: Tensor
    """Shape [S + 1]."""
    save_rows: Tensor
    """Shape [N]."""
    save_slots: Tensor
    """Shape [N]."""
    row_spans: Tensor
    """Shape [T]: the span of each token."""


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A step's views of the buffer, for the model and the kernels; N tokens, R rows."""

    token_ids: Tensor
    """Shape [1, N]."""
    positions: Tensor
    """Shape [1, N]."""
    slots: Sequence[Tensor]
    """By cache group, shape [N]: slots for new keys and values."""
    logits_rows: Tensor
    """Shape [R]."""
    drawn_rows: Tensor
    """Shape [N]: row of the previous step that drew the token; -1: the id is in ``token_ids``."""
    adapters: Tensor
    """Shape [N]: the slot of each token's adapter, 0 for none; [0] without adapters."""
    ancestors: Tensor | None
    """Shape [N], as in ``StepArrays``; None: no trees."""
    ends: Tensor | None
    """Shape [N], as in ``StepImages``; None: no row attends to later ones."""
    waves: Sequence[Sequence[DeviceWave]]
    """By kind of layer."""
    tables: Tensor
    states: DeviceStates | None
    """None: the model has no recurrent layers."""
    windows_alone: bool = False
    """Whether ``ends`` apply to layers with a sliding window only."""


class StepBuffers:
    """A buffer on the device and the host buffers that fill it, for layouts of any size.

    If a layout needs a larger buffer, a new one is allocated; views of the old one stay valid, but
    are no longer filled.
    """

    def __init__(self, device: torch.device, ints: int) -> None:
        self._device = device
        self._make(ints)

    @property
    def size(self) -> int:
        """Size of the device's buffer in int32s."""
        return len(self._buffer)

    def device_step(self, layout: Layout, waves: Sequence[Sequence[Wave]]) -> DeviceStep:
        """Views for a layout; ``waves`` by kind. Empty lists become None and are not launched."""
        if layout.end > self.size:
            self._make(max(layout.end, 2 * self.size))
        ints = self._buffer

        def longs(part: slice) -> Tensor:
            return ints[part].view(torch.int64)

        def device_waves(parts: Sequence[slice], waves: Sequence[Wave]) -> list[DeviceWave]:
            counts, short, long, merges = (ints[part] for part in parts)
            return [
                DeviceWave(
                    counts[COUNTS * i : COUNTS * (i + 1)],
                    _lines(short, wave.short, ITEM),
                    _lines(long, wave.long, ITEM),
                    _lines(merges, wave.merges, MERGE),
                )
                for i, wave in enumerate(waves)
            ]

        return DeviceStep(
            token_ids=longs(layout.token_ids).unsqueeze(0),
            positions=longs(layout.positions).unsqueeze(0),
            slots=[longs(part) for part in layout.slots],
            logits_rows=longs(layout.logits_rows),
            drawn_rows=ints[layout.drawn_rows],
            adapters=ints[layout.adapters],
            ancestors=None if layout.ancestors is None else longs(layout.ancestors),
            ends=None if layout.ends is None else longs(layout.ends),
            waves=[device_waves(*each) for each in zip(layout.kinds, waves, strict=True)],
            tables=ints[layout.tables],
            states=None
            if layout.states is None
            else DeviceStates(*[ints[part] for part in layout.states]),
        )

    def load(
        self,
        layout: Layout,
        step: StepArrays,
        works: Sequence[Work],
        spare_slots: Sequence[int],
    ) -> None:
        """Fill a host buffer with a step that fits ``layout``, and start its copy to the device.

        Padding tokens have id 0 and position 0, and write to ``spare_slots``, one for each cache
        group. Padding rows are those of the first token.
        """
        host, copied = next(self._turns)
        if copied is not None:
            # Wait for this buffer's last copy.
            copied.synchronize()
        ints = host.numpy()
        _fill(ints[layout.token_ids].view(np.int64), step.token_ids, 0)
        _fill(ints[layout.positions].view(np.int64), step.positions, 0)
        for part, slots, spare in zip(layout.slots, step.slots, spare_slots, strict=True):
            _fill(ints[part].view(np.int64), slots, spare)
        _fill(ints[layout.logits_rows].view(np.int64), step.logits_rows, 0)
        _fill(ints[layout.drawn_rows], step.drawn_rows, -1)
        if layout.adapters.stop > layout.adapters.start:
            _fill(ints[layout.adapters], NO_INTS if step.adapters is None else step.adapters, 0)
        if layout.ancestors is not None:
            ancestors = NO_INTS if step.ancestors is None else step.ancestors
            _fill(ints[layout.ancestors].view(np.int64), ancestors, 0)
        if layout.ends is not None:
            ends = None if step.vision_input is None else step.vision_input.ends
            _fill(ints[layout.ends].view(np.int64), NO_INTS if ends is None else ends, 0)
        if layout.states is not None:
            padding = layout.tokens - len(step.token_ids)
            places = _places_of_states(step.state_arrays, padding)
            for part, numbers in zip(layout.states, places, strict=True):
                _fill(ints[part], numbers, int(numbers[-1]) if len(numbers) else 0)
        for parts, work in zip(layout.kinds, works, strict=True):
            lists = (work.counts, work.short, work.long, work.merges)
            for part, values in zip(parts, lists, strict=True):
                flat = values.reshape(-1)
                ints[part][: len(flat)] = flat
        end = _fill_tables(ints, layout.tables, step)
        self._buffer[:end].copy_(host[:end], non_blocking=True)
        if copied is not None:
            copied.record()

    def _make(self, ints: int) -> None:
        cuda = self._device.type == "cuda"
        size = -(ints // -_ALIGNED) * _ALIGNED
        with torch.inference_mode(False):  # ``load`` may be called with or without that mode
            self._buffer = torch.zeros(size, dtype=torch.int32, device=self._device)
            # A buffer may be freed during a copy from it: torch's allocator of pinned memory waits
            # for the streams that read it.
            hosts = [torch.zeros(size, dtype=torch.int32, pin_memory=cuda) for _ in range(_TURNS)]
        events: list[Any] = [torch.cuda.Event() if cuda else None for _ in hosts]  # type: ignore[no-untyped-call]
        self._turns = cycle(list(zip(hosts, events, strict=True)))


def put_drawn(step: DeviceStep, drawn: Tensor) -> None:
    """Copy ``drawn``, int64 [previous rows], to the tokens that ``drawn_rows`` selects."""
    assert drawn.dtype == torch.int64
    if not drawn.is_contiguous() or drawn.data_ptr() % 16:
        drawn = drawn.clone(memory_format=torch.contiguous_format)
    tokens = step.token_ids.shape[1]
    take_drawn[(-(tokens // -_DRAWN_TOKENS),)](
        step.token_ids, step.drawn_rows, drawn, tokens, SIZE=_DRAWN_TOKENS
    )


def _lines(part: Tensor, which: slice, width: int) -> Tensor | None:
    if which.start == which.stop:
        return None
    return part[which.start * width : which.stop * width].view(-1, width)


def _fill(part: NDArray[Any], values: NDArray[Any], rest: int) -> None:
    part[: len(values)] = values
    part[len(values) :] = rest


def _places_of_states(states: StateArrays, padding: int) -> tuple[Ints, ...]:
    """The arrays of ``DeviceStates``; the caller pads each with its last number."""
    tokens, saves = states.rows[-1], states.save_starts[-1]
    lengths = np.append(np.diff(states.rows), np.ones(padding, dtype=np.int64))
    return (
        np.append(states.rows, np.arange(tokens + 1, tokens + padding + 1)),
        np.append(states.reads, np.zeros(padding, dtype=np.int64)),
        np.append(states.save_starts, np.full(padding, saves)),
        states.save_rows,
        states.save_slots,
        np.repeat(np.arange(len(lengths)), lengths),
    )


def _fill_tables(ints: Int32s, part: slice, step: StepArrays) -> int:
    """Write all spans' tables, group by group; returns their end."""
    tables = [span.blocks[group] for group in range(len(step.slots)) for span in step.spans]
    end = int(part.start) + sum(map(len, tables))
    assert end <= part.stop, "more blocks than the layout has room for"
    if tables:
        np.concatenate(tables, out=ints[part.start : end], casting="same_kind")
    return end
