"""A runner around a simulated accelerator: every step takes the same time.

The host does its usual work for a step (it lays out inputs, finds known masks by identity, gathers
keys), and a small compiled loop draws the tokens in place of the device. The times of the device
are computed, not slept through by a thread of its own, which would have to wait for the interpreter
to report the end::

    begins    at the launch, or at the end of the step before if that is later
    ends      some milliseconds later, but not before its draws are requested

``wait`` sleeps until then. A benchmark thus measures the time that the device was busy and the time
that it waited for Python.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.core.constraint import Mask
from app.core.kernels import kernel
from app.core.step import NOT_DRAWN, Draw, SampledToken, Span, StepResult
from app.model.inputs import lay_out
from app.model.kv_storage import CacheGroup

_LIKELY = 200
"""Draws out of 256 that follow the preference of the token before, so that answers repeat."""

_KINDS = 251
"""Number of kinds of tokens; tokens of a kind prefer the same next token."""

_MOST_MASKS = 1 << 13


class VirtualClock:
    """Processor time of all threads plus time slept, in seconds: other programs on the machine do
    not count. Threads that run in parallel count one after the other, as under the interpreter's
    lock."""

    def __init__(self) -> None:
        self._added = 0.0

    def __call__(self) -> float:
        return time.process_time() + self._added

    def sleep(self, seconds: float) -> None:
        """Let other threads run for ``seconds``."""
        begun = time.process_time()
        time.sleep(seconds)
        self._added += max(0.0, seconds - (time.process_time() - begun))

    def leave_out(self, seconds: float) -> None:
        """Exclude processor time that simulates the device."""
        self._added -= seconds


class FakeDevice:
    """See ``app.core.step.Runner``; draws respect the masks, and depend on key and token."""

    block_size = 16
    cache_groups = (CacheGroup(layers=(), num_blocks=1 << 15),)
    states = None
    max_model_len = 1 << 15
    trees = False

    def __init__(self, vocab_size: int, seconds: float, clock: VirtualClock) -> None:
        """``seconds``: duration of a step, from forward pass to draws."""
        self._vocab_size = vocab_size
        self._seconds = seconds
        self._clock = clock
        self._words = -(-vocab_size // 32)
        self._masks = np.zeros((_MOST_MASKS, self._words), np.uint32)
        self._masks[0] = 0xFFFFFFFF
        self._slots: dict[int, tuple[int, Mask | None]] = {id(None): (0, None)}
        self._launched: tuple[float, NDArray[np.int64], NDArray[np.int64]] | None = None
        self._drawn = np.zeros(1, np.int64)
        self._ends = 0.0
        self.busy = 0.0
        """Seconds that the device was busy with steps that have been waited for."""
        self.inputs = 0.0
        """Seconds that laying out the last step took."""
        one = np.zeros(1, np.int64)
        _draw(self._masks, one, one.view(np.uint64), one, one - 1, one, one.copy(), vocab_size)

    def launch(self, plan: Sequence[Span]) -> None:
        assert self._launched is None, "launch and sample alternate"
        begun = self._clock()
        step = lay_out(plan, self.block_size)
        now = self._clock()
        self.inputs = now - begun
        rows = step.logits_rows
        self._launched = (now, step.token_ids[rows], step.drawn_rows[rows])

    def sample(self, draws: Sequence[Draw | None]) -> _Queued:
        assert self._launched is not None, "sample before launch"
        (launched, tokens, rows), self._launched = self._launched, None
        slots = np.array(
            [-1 if each is None else self._slot(each.mask) for each in draws], np.int64
        )
        keys = np.array([0 if each is None else each.key for each in draws], np.uint64)
        ends = max(self._ends, launched) + self._seconds
        self._ends = max(ends, self._clock())
        return _Queued(self, self._ends, slots, keys, tokens, rows)

    def _slot(self, mask: Mask | None) -> int:
        """Slot of the mask on the device; a new mask is sent there first."""
        kept = self._slots.get(id(mask))
        if kept is not None:
            return kept[0]
        if len(self._slots) == _MOST_MASKS:
            self._slots = {id(None): (0, None)}
        assert mask is not None
        slot = len(self._slots)
        self._masks[slot] = mask
        self._slots[id(mask)] = (slot, mask)
        return slot

    def finish(self, queued: _Queued) -> StepResult:
        """Draw, and wait until the device would have drawn."""
        begun = time.thread_time()
        out = np.empty(len(queued.slots), np.int64)
        _draw(
            self._masks, queued.slots, queued.keys, queued.tokens, queued.rows, self._drawn, out,
            self._vocab_size,
        )  # fmt: skip
        self._drawn = out
        self._clock.leave_out(time.thread_time() - begun)
        self.busy += self._seconds
        left = queued.ends - self._clock()
        if left > 0:
            self._clock.sleep(left)
        ids = out.tolist()
        return StepResult([NOT_DRAWN if id < 0 else SampledToken(id) for id in ids])


class _Queued:
    """Inputs of a step's draws, by row."""

    def __init__(
        self,
        device: FakeDevice,
        ends: float,
        slots: NDArray[np.int64],
        keys: NDArray[np.uint64],
        tokens: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> None:
        self._device = device
        self.ends = ends
        self.slots = slots
        self.keys = keys
        self.tokens = tokens
        self.rows = rows

    def wait(self) -> StepResult:
        return self._device.finish(self)


@kernel()
def _draw(
    masks: NDArray[np.uint32],
    slots: NDArray[np.int64],
    keys: NDArray[np.uint64],
    tokens: NDArray[np.int64],
    rows: NDArray[np.int64],
    before: NDArray[np.int64],
    out: NDArray[np.int64],
    size: int,
) -> None:
    """Draw the first allowed token from a position that depends on the token before and the key."""
    for i in range(len(slots)):
        if slots[i] < 0:
            out[i] = -1
            continue
        token = tokens[i] if rows[i] < 0 else before[rows[i]]
        key = keys[i] * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(31)
        at = np.uint64(token % _KINDS)
        if key & np.uint64(255) >= np.uint64(_LIKELY):
            at += key >> np.uint64(8)
        at *= np.uint64(0xBF58476D1CE4E5B9)
        at ^= at >> np.uint64(29)
        first = np.int64(at % np.uint64(size))
        mask = masks[slots[i]]
        token = first
        while not (mask[token >> 5] >> np.uint32(token & 31)) & np.uint32(1):
            if token & 31 == 0 and mask[token >> 5] == 0:
                token += 32
            else:
                token += 1
            if token >= size:
                token = 0
            if token == first:
                break
        out[i] = token
