"""How much of a GPU's memory is left for the cache, once all else has been there.

    0 ------------------------- limit ----------------- total
    | weights | a step | graphs | cache |  left alone    |

``limit`` is a share of the whole GPU: what this process may take of it. The cache is sized last,
after the largest step has run and graphs have been captured over a small cache, so that neither
fails later for want of memory. What other processes hold counts neither way, but the limit has to
be free of it.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Protocol

import torch

from app.core.errors import UnsupportedModel

_log = logging.getLogger(__name__)


class DeviceMemory(Protocol):
    """One device's memory, in bytes."""

    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int:
        """What no process holds."""

    @property
    def reserved(self) -> int:
        """What torch holds in this process, used or kept for later use."""

    @property
    def peak(self) -> int:
        """The most that was ``reserved`` since ``settle``."""

    def settle(self) -> None:
        """Wait for the device, give back what torch keeps unused, and forget the peak."""


class CudaMemory:
    """The real one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def total(self) -> int:
        return torch.cuda.mem_get_info(self._device)[1]

    @property
    def free(self) -> int:
        return torch.cuda.mem_get_info(self._device)[0]

    @property
    def reserved(self) -> int:
        return torch.cuda.memory_reserved(self._device)

    @property
    def peak(self) -> int:
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_reserved(self._device)

    def settle(self) -> None:
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)


class MemoryBudget:
    """What one process may take of a device. Made before it takes anything."""

    def __init__(self, memory: DeviceMemory, share: float, asked: int | None = None) -> None:
        """``share`` of the whole device, above 0 and at most 1; ``asked`` bytes for the cache, for
        which the share does not count.

        Raises ``UnsupportedModel`` where less than the share is free.
        """
        memory.settle()
        self._memory = memory
        self._share = share
        self._asked = asked
        self._foreign = memory.total - memory.free - memory.reserved
        """What others hold, and the driver for this process."""
        self._room = memory.total - self._foreign
        self._limit = int(memory.total * share)
        if asked is None and self._limit > self._room:
            raise UnsupportedModel(
                f"cuda_memory_share is {share:g} ({_gib(self._limit)} of {_gib(memory.total)}), "
                f"but only {_gib(self._room)} of GPU memory are free; lower it to at most "
                f"{_rounded_down(self._room / memory.total)}, or stop other processes on the GPU"
            )

    def most_tokens(self, token_bytes: int) -> int:
        """Tokens that no cache holds more of, where each takes ``token_bytes``; at least 1."""
        return max(1, (self._asked or self._limit) // token_bytes)

    def settle(self) -> None:
        """Give back what torch keeps of what is gone."""
        self._memory.settle()

    def cache_bytes(
        self,
        *,
        rehearsal_bytes: int,
        run_steps: Callable[[], None],
        capture: Callable[[], object],
    ) -> int:
        """Bytes for the cache: those asked for, or by default what all else leaves of the limit.

        Called with the model on the device and a small cache of ``rehearsal_bytes``, both still
        there afterwards. ``run_steps`` runs the largest steps over it; ``capture`` captures graphs
        over it and returns what keeps them alive. Raises ``UnsupportedModel`` where memory does not
        suffice, saying what to change.
        """
        memory = self._memory
        memory.settle()
        held = memory.reserved
        weights = held - rehearsal_bytes
        try:
            run_steps()
        except torch.OutOfMemoryError as error:
            raise UnsupportedModel(
                f"the largest step does not fit in the memory that the weights leave "
                f"({_gib(weights)} of {_gib(memory.total)} are weights); lower max_batch_tokens or "
                f"max_running: {_first_line(error)}"
            ) from error
        step = memory.peak - held
        memory.settle()
        # Code of kernels, and what libraries and the driver take for themselves.
        others = max(0, memory.total - memory.free - memory.reserved - self._foreign)

        before = memory.free
        try:
            graphs = capture()
        except torch.OutOfMemoryError as error:
            raise UnsupportedModel(
                "the CUDA graphs do not fit in memory; lower cuda_graph_tokens, or set cuda_graphs "
                f"to false: {_first_line(error)}"
            ) from error
        memory.settle()
        captured = max(0, before - memory.free)
        del graphs
        memory.settle()

        parts = (
            f"weights {_gib(weights)}, the largest step {_gib(step)}, graphs {_gib(captured)}, "
            f"kernels and libraries {_gib(others)}"
        )
        size = self._what_is_left(weights + step + captured + others, parts)
        _log.info("GPU memory: %s, cache %s of %s", parts, _gib(size), _gib(memory.total))
        return size

    def _what_is_left(self, needed: int, parts: str) -> int:
        if self._asked is not None:
            if needed + self._asked > self._room:
                left = _gib(max(0, self._room - needed))
                raise UnsupportedModel(
                    f"kv_cache_bytes is {self._asked}, {_gib(self._asked)}, but with {parts} only "
                    f"{left} of the GPU's memory are left; lower it"
                )
            return self._asked
        if needed >= self._limit:
            raise UnsupportedModel(
                f"no memory is left for the cache: {parts}, and cuda_memory_share {self._share:g} "
                f"allows {_gib(self._limit)}; raise it, or lower max_batch_tokens, max_running or "
                "cuda_graph_tokens"
            )
        return self._limit - needed


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"


def _rounded_down(share: float) -> str:
    return f"{int(share * 100) / 100:g}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
