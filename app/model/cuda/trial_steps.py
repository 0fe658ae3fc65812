"""Random steps over a cache of noise, to check captured graphs before the server is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from app.core.step import Span
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage
from app.model.state_storage import StateStorage

T = TypeVar("T")

_MOST_BLOCKS = 4096
"""Blocks of each cache group that trials read and write."""
_CONTEXTS = (5000, 1200, 200)
"""Maximum positions: enough for keys in many chunks, in a few, in one."""
_MOST_IN_LEAP = 20
_MOST_SAVES = 3
"""Maximum saves of recurrent states in one span."""
_FIRST_CHUNKS = 0.2
"""Share of spans that start at position 0."""
_E4M3_NAN = 127
"""Bytes below this are numbers."""
_SCALES_DIMS = 2
"""Dimensions of scales: slots and heads. Keys, values and states have more."""
_IDS = 64
"""Number of token ids used; every vocabulary has them."""


def fill_with_noise(part: Tensor) -> None:
    """Fill keys, values or states, or the scales of 8-bit keys and values, with random numbers."""
    if part.dtype == torch.float8_e4m3fn:
        part.view(torch.uint8).random_(_E4M3_NAN)
    elif part.ndim == _SCALES_DIMS:
        part.uniform_(0.002, 0.01)
    else:
        part.normal_()


class TrialSteps:
    """Random mixes of decodes, leaps and prompt chunks, in the first blocks of the cache."""

    def __init__(
        self, storage: KvStorage, max_model_len: int, states: StateStorage | None = None
    ) -> None:
        """``states`` None: the model has no recurrent layers."""
        self._storage = storage
        self._states = states
        self._blocks = [min(group.num_blocks, _MOST_BLOCKS) for group in storage.groups]
        self._max_model_len = max_model_len
        self._rng = np.random.default_rng(0)

    @contextmanager
    def noise_in_cache(self) -> Iterator[None]:
        """Random keys, values and states, so that wrong reads show; set to zero at the end."""
        group_of = self._storage.group_of
        parts = [
            kept[: self._blocks[group] * self._storage.block_size]
            for layer, group in group_of.items()
            for kept in self._storage.of_layer(layer)
        ]
        if self._states is not None:
            slots = slice(1, self._states.slots.count)
            parts += [each[slots] for each in (*self._states.conv.values(),
                                               *self._states.scan.values())]  # fmt: skip
        for part in parts:
            fill_with_noise(part)
        yield
        for part in parts:
            part.view(torch.uint8).zero_()

    def step_that(
        self, fits: Callable[[StepArrays], T | None], tokens: int, rows: int
    ) -> tuple[StepArrays, T]:
        """A ``step`` for which ``fits`` does not return None, and the result of ``fits``.

        Tries shorter contexts until it finds one; contexts of one chunk of keys must fit.
        """
        for longest in _CONTEXTS:
            step = self.step(tokens, rows, longest)
            if (found := fits(step)) is not None:
                return step, found
        raise AssertionError("not even a step with short contexts fits")

    def step(self, tokens: int, rows: int, longest: int = _CONTEXTS[0]) -> StepArrays:
        """A step of ``tokens`` tokens (fewer if the cache is too small) and ``rows`` rows."""
        longest = min(longest, self._max_model_len)
        size = self._storage.block_size
        slots = self._slots()
        halves = [np.array_split(self._rng.permutation(count), 2) for count in self._blocks]
        free = [half.tolist() for half, _ in halves]
        spans: list[Span] = []
        while tokens > 0:
            # A span that begins inside a block may touch one block more.
            room = min([(len(own) - 1) * size for own in free], default=tokens)
            length = min(self._length(tokens), room, longest)
            if length < 1:
                break
            start = self._start(length, longest)
            written = (start + length - 1) // size - start // size + 1
            tables = [
                [*self._rng.choice(read, start // size), *(own.pop() for _ in range(written))]
                for own, (_, read) in zip(free, halves, strict=True)
            ]
            ids = self._rng.integers(_IDS, size=length).tolist()
            state = 0 if not start or not slots else slots.pop()
            spans.append(Span(ids, start, tables, None, state, self._saves(length, slots)))
            tokens -= length
        if not spans:  # the cache has one block
            spans = [Span([0], 0, [[0]] * len(free))]
        self._choose_rows(spans, rows)
        return lay_out(spans, size)

    def _slots(self) -> list[int]:
        """Slots for recurrent states in random order; each is used once in a step."""
        if self._states is None:
            return []
        slots: list[int] = (1 + self._rng.permutation(self._states.slots.count - 1)).tolist()
        return slots

    def _saves(self, length: int, slots: list[int]) -> list[tuple[int, int]]:
        """Saves after some of ``length`` tokens, to slots removed from ``slots``."""
        count = min(int(self._rng.integers(_MOST_SAVES + 1)), length, len(slots) // 2)
        done = 1 + self._rng.permutation(length)[:count]
        return [(at, slots.pop()) for at in sorted(done.tolist())]

    def _length(self, most: int) -> int:
        """Length of the next span, at most ``most``."""
        leap, chunk = self._rng.integers((2, 1), (_MOST_IN_LEAP, most + 1)).tolist()
        return min(most, int(self._rng.choice([1, leap, chunk], p=(0.5, 0.4, 0.1))))

    def _start(self, length: int, longest: int) -> int:
        at_first = self._rng.random() < _FIRST_CHUNKS
        return 0 if at_first else int(self._rng.integers(longest - length + 1))

    def _choose_rows(self, spans: list[Span], rows: int) -> None:
        places = [(span, at) for span in spans for at in range(len(span.tokens))]
        chosen = {*self._rng.permutation(len(places))[:rows].tolist()}
        wanted = [place for number, place in enumerate(places) if number in chosen]
        for span in spans:
            span.rows = [at for owner, at in wanted if owner is span]
