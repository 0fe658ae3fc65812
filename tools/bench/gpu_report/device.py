"""Timing by the device's own clock, and other helpers of the parts for a device."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tools.bench.gpu_report.options import Options

_HELD_BACK_CYCLES = 2_000_000
"""About a millisecond: the device is kept busy while the host launches the work to be timed."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a call, from several calls."""

    median: float
    low: float
    high: float

    @property
    def ms(self) -> float:
        return 1e3 * self.median

    @property
    def spread(self) -> float:
        """Range from ``low`` to ``high``, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def timing(seconds: list[float]) -> Timing:
    """Median and range of ``seconds``; the range excludes a fifth at each end."""
    ordered = sorted(seconds)
    cut = len(ordered) // 5
    return Timing(statistics.median(ordered), ordered[cut], ordered[-1 - cut])


def device_of(options: Options) -> torch.device:
    """The device; on the CPU, kernels are interpreted."""
    if options.device == "cpu":
        from tests.model import interpreter

        interpreter.hasten()
    return torch.device(options.device)


def timed(
    work: Callable[[], object], device: torch.device, repeats: int = 20, launches: int = 10
) -> Timing:
    """Time of a call of ``work`` on the device, from its first kernel's start to its last end.

    ``launches``: approximate number of kernels that a call launches. If ``work`` waits for the
    device, the wait counts.
    """
    if device.type != "cuda":
        return timing([_seconds(work)])
    for _ in range(2):
        work()
    events = [(event(), event()) for _ in range(repeats)]
    torch.cuda.synchronize(device)
    for begin, end in events:
        # 10 us are 20,000 cycles: more than the host takes for one launch.
        torch.cuda._sleep(_HELD_BACK_CYCLES + 20_000 * launches)  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize(device)
    return timing([begin.elapsed_time(end) / 1e3 for begin, end in events])


def waited(work: Callable[[], object], device: torch.device, repeats: int = 20) -> Timing:
    """Time of a call of ``work`` by the host's clock, until the device has finished it."""

    def whole() -> None:
        work()
        synchronize(device)

    if device.type != "cuda":
        return timing([_seconds(whole)])
    for _ in range(2):
        whole()
    return timing([_seconds(whole) for _ in range(repeats)])


def replayed(work: Callable[[], object], device: torch.device, inner: int = 20) -> Timing:
    """Time of one call of ``work`` within a CUDA graph of ``inner`` calls; for single kernels."""
    if device.type != "cuda":
        return timed(work, device)
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            work()
    found = timed(graph.replay, device, repeats=10)
    return Timing(found.median / inner, found.low / inner, found.high / inner)


def bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, that a large copy reaches."""
    size = (1 << 30) if device.type == "cuda" else (1 << 20)
    source = torch.empty(size // 4, dtype=torch.int32, device=device).random_()
    target = torch.empty_like(source)
    return 2 * size / timed(lambda: target.copy_(source), device).median


def event() -> Any:
    made: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return made


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Free memory that is no longer in use."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextlib.contextmanager
def kernels_loaded() -> Iterator[list[str]]:
    """Names of the Triton kernels that are compiled or first loaded inside the block."""
    names: list[str] = []
    try:
        from triton import knobs
    except ImportError:
        yield names
        return

    def note(_module: Any, _function: Any, name: str, *_: Any) -> None:
        names.append(name)

    hooks: Any = knobs.runtime.kernel_load_start_hook
    hooks.add(note)
    try:
        yield names
    finally:
        hooks.remove(note)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
