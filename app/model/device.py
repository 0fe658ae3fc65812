"""The choice of a device and a number type by the hardware's features; the cores and memory that a
container may use; and device failures as errors that operators understand."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from app.core.errors import DeviceFailed, UnsupportedModel
from app.model.config import DeviceName, DTypeName

_BFLOAT16_CAPABILITY = (8, 0)
"""Ampere; earlier GPUs emulate it. Triton, too, names this as the least that it supports."""
_FLOAT16_CAPABILITY = (7, 0)
"""Volta, the first with fast float16 products."""
_FP8_CAPABILITY = (8, 9)
"""Ada, the first that converts E4M3."""
_SPARE_TOKENS = {"cpu": 16, "cuda": 256}
"""See ``spare_tokens``. CPU: measured on two cores in bfloat16. CUDA: from the data sheet of the
H200, 989 TFLOP/s in bfloat16 by 4.8 TB/s."""

_log = logging.getLogger(__name__)


def choose_device(name: DeviceName) -> torch.device:
    """The device to run on. Raises ``UnsupportedModel`` if CUDA is configured and missing."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UnsupportedModel("device is cuda, but torch finds no CUDA device")
    if not available or name == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def spare_tokens(device: torch.device) -> int:
    """Tokens whose computation takes as long as reading the weights once."""
    return _SPARE_TOKENS[device.type]


def choose_dtype(name: DTypeName, device: torch.device) -> torch.dtype:
    """The type of weights and activations; ``auto`` picks the fastest exact enough one.

    Raises ``UnsupportedModel`` for bfloat16 on a GPU that has none in hardware.
    """
    if name == "auto":
        if device.type != "cuda":
            return torch.bfloat16 if cpu_multiplies_bfloat16() else torch.float32
        capability = torch.cuda.get_device_capability(device)
        if capability >= _BFLOAT16_CAPABILITY:
            return torch.bfloat16
        return torch.float16 if capability >= _FLOAT16_CAPABILITY else torch.float32
    if name == "bfloat16" and device.type == "cuda":
        way_out = "set dtype to float16, float32 or auto"
        _require(_BFLOAT16_CAPABILITY, device, "dtype is bfloat16", way_out)
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def require_fp8(device: torch.device) -> None:
    """Raises ``UnsupportedModel`` where keys and values cannot be kept in 8 bits."""
    if device.type != "cuda":
        raise UnsupportedModel("kv_cache_dtype fp8 needs CUDA; set LEAPJSON_KV_CACHE_DTYPE to auto")
    way_out = "set LEAPJSON_KV_CACHE_DTYPE to auto"
    _require(_FP8_CAPABILITY, device, "kv_cache_dtype is fp8", way_out)


def _require(needed: tuple[int, int], device: torch.device, setting: str, way_out: str) -> None:
    """Raises ``UnsupportedModel`` if the GPU's compute capability is below ``needed``."""
    capability = torch.cuda.get_device_capability(device)
    if capability < needed:
        raise UnsupportedModel(
            f"{setting}, but {torch.cuda.get_device_name(device)} has no hardware for it (compute "
            f"capability {_spelled(capability)}, needs {_spelled(needed)}); {way_out}"
        )


def describe(device: torch.device, ranks: int = 1) -> None:
    """Log which GPU is used, and that others are not; ``ranks`` processes use one each."""
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    name, count = torch.cuda.get_device_name(device), torch.cuda.device_count()
    _log.info("the model runs on %s (compute capability %s)", name, _spelled(capability))
    if capability < _BFLOAT16_CAPABILITY:
        _log.warning(
            "this GPU is older than compute capability %s, the minimum for Triton: kernels may "
            "be slow, or fail to compile",
            _spelled(_BFLOAT16_CAPABILITY),
        )
    if ranks > 1:
        _log.info("%d of %d GPUs share the model", ranks, count)
    elif count > 1:
        _log.warning(
            "%d GPUs are visible and only number %s is used. Start one server for each with "
            "CUDA_VISIBLE_DEVICES, or share the model between them with tensor_parallel=%d",
            count,
            device.index,
            count,
        )


def cpu_multiplies_bfloat16() -> bool:
    """Whether this CPU has bfloat16 dot products (AMX or AVX512-BF16)."""
    # torch's own names for both questions are private.
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, name, bool)() for name in names)


def _spelled(capability: tuple[int, int]) -> str:
    return "{}.{}".format(*capability)


_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY = Path("/sys/fs/cgroup/memory.max")


def granted_cores(quota: Path = _QUOTA) -> int:
    """Cores this process may run on, by its affinity and the limit of its control group (v2).

    A limit of 2.5 cores counts as 2: threads beyond it are stopped for the rest of each period, and
    the others would wait for them. Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text().split()
        if limit != "max":
            cores = min(cores, max(1, math.floor(int(limit) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        pass  # no control group, or an older kind
    return cores


def granted_memory(limit: Path = _MEMORY) -> int:
    """Bytes of memory this process may use: the machine's, or the limit of its control group (v2).

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(memory, int(limit.read_text()))
    except (OSError, ValueError):  # no control group, an older kind, or "max"
        return memory


_LONGEST = 300
"""Maximum characters of an error message of torch or Triton; the rest is cut off."""
_HOST_MEMORY = "can't allocate memory"
_DRIVER_ERRORS = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]", "CUBLAS_STATUS_")
"""Parts of a message by which a plain ``RuntimeError`` counts as a device failure."""


@contextlib.contextmanager
def naming_failures() -> Iterator[None]:
    """Convert errors of a failing device to ``DeviceFailed``; others pass unchanged.

    A failed step has no result, nor has any step after an illegal access on a GPU: the engine ends
    with the first failure. The log omits messages of exceptions, which may quote a request; those
    of a driver never do, so they are passed on.
    """
    try:
        yield
    except Exception as error:
        reason = failure_of(error)
        if reason is None:
            raise
        raise DeviceFailed(reason) from error


def failure_of(error: Exception) -> str | None:
    """Message with the failure and a possible remedy; None if the device has not failed."""
    message = " ".join(str(error).partition("\n")[0].split())[:_LONGEST]
    if isinstance(error, torch.OutOfMemoryError) or _HOST_MEMORY in message:
        return (
            "out of memory in a step; lower max_batch_tokens, max_running or the cache "
            f"(cuda_memory_share or kv_cache_bytes): {message}"
        )
    if type(error).__module__.split(".")[0] == "triton":
        return f"a kernel could not be run ({type(error).__name__}): {message}"
    known = isinstance(error, RuntimeError) and any(name in message for name in _DRIVER_ERRORS)
    if known or isinstance(error, torch.AcceleratorError):
        return f"the device failed: {message}"
    return None
