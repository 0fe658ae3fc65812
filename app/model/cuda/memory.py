"""The size of the KV cache: GPU memory that weights, steps and graphs leave.

    0 ------------------------- limit ----------------- total
    | weights | a step | graphs | cache |  left alone    |

``limit`` is the share of the whole GPU that this process may take. The cache is sized last, after
the largest step has run and graphs have been captured with a small cache, so that neither runs out
of memory later. Memory of other processes does not count towards the limit, but the limit must fit
into the memory that they leave.
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
        """Memory not allocated by any process."""

    @property
    def reserved(self) -> int:
        """Memory that torch has allocated in this process, in use or kept for later."""

    @property
    def peak(self) -> int:
        """The maximum of ``reserved`` since ``settle``."""

    def settle(self) -> None:
        """Wait for the device, release memory that torch keeps unused, and reset the peak."""


class CudaMemory:
    """Memory of a CUDA device."""

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
    """Memory that one process may take of a device. Create it before the process takes any."""

    def __init__(self, memory: DeviceMemory, share: float, fixed: int | None = None) -> None:
        """``share`` of the whole device, above 0 and at most 1. ``fixed``: a cache size in
        bytes, which makes ``share`` irrelevant.

        Raises ``UnsupportedModel`` if less than the share is free.
        """
        memory.settle()
        self._memory = memory
        self._share = share
        self._fixed = fixed
        self._foreign = memory.total - memory.free - memory.reserved
        """Memory of other processes, and of the driver for this process."""
        self._room = memory.total - self._foreign
        self._limit = int(memory.total * share)
        if fixed is None and self._limit > self._room:
            raise UnsupportedModel(
                f"cuda_memory_share is {share:g} ({_gib(self._limit)} of {_gib(memory.total)}), "
                f"but only {_gib(self._room)} of GPU memory are free; lower it to at most "
                f"{int(self._room / memory.total * 100) / 100:g}, or stop other processes on "
                "the GPU"
            )

    def most_tokens(self, token_bytes: int) -> int:
        """Upper bound of the cache's tokens, which take ``token_bytes`` each; at least 1."""
        return max(1, (self._fixed or self._limit) // token_bytes)

    def settle(self) -> None:
        """Release memory that torch keeps unused."""
        self._memory.settle()

    def cache_bytes(
        self,
        *,
        rehearsal_bytes: int,
        run_steps: Callable[[], None],
        capture: Callable[[], object],
    ) -> int:
        """Bytes for the cache: ``fixed``, or by default the rest of the limit.

        Call it with the model and a small cache of ``rehearsal_bytes`` on the device; both stay
        there. ``run_steps`` runs the largest steps; ``capture`` captures graphs and returns an
        object that keeps them alive. Raises ``UnsupportedModel`` with a remedy if there is too
        little memory.
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
        # Code of kernels, and memory of libraries and the driver.
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
        size = self._remaining(weights + step + captured + others, parts)
        _log.info("GPU memory: %s, cache %s of %s", parts, _gib(size), _gib(memory.total))
        return size

    def _remaining(self, needed: int, parts: str) -> int:
        if self._fixed is not None:
            if needed + self._fixed > self._room:
                left = _gib(max(0, self._room - needed))
                raise UnsupportedModel(
                    f"kv_cache_bytes is {self._fixed}, {_gib(self._fixed)}, but with {parts} only "
                    f"{left} of the GPU's memory are left; lower it"
                )
            return self._fixed
        if needed >= self._limit:
            raise UnsupportedModel(
                f"no memory is left for the cache: {parts}, and cuda_memory_share {self._share:g} "
                f"allows {_gib(self._limit)}; raise it, or lower max_batch_tokens, max_running or "
                "cuda_graph_tokens"
            )
        return self._limit - needed


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
