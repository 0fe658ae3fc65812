"""What torch and Triton raise when a device fails, named for whoever runs the server.

A failed step has no result, and what follows an illegal access on a GPU has none either: the
engine ends with the first failure. The log shows no messages of exceptions, which may quote a
request; those of a driver never do, so here they are passed on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from app.core.errors import DeviceFailed

_LONGEST = 300
"""Characters passed on of what torch or Triton say."""
_HOST_MEMORY = "can't allocate memory"
_DRIVER_ERRORS = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]", "CUBLAS_STATUS_")
"""How messages of a plain ``RuntimeError`` are recognised."""


@contextlib.contextmanager
def naming_failures() -> Iterator[None]:
    """Raise ``DeviceFailed`` for what a failing device raises; other exceptions as they are."""
    try:
        yield
    except Exception as error:
        reason = failure_of(error)
        if reason is None:
            raise
        raise DeviceFailed(reason) from error


def failure_of(error: Exception) -> str | None:
    """What failed and, where it helps, what to change; None if the device is not at fault."""
    said = " ".join(str(error).partition("\n")[0].split())[:_LONGEST]
    if isinstance(error, torch.OutOfMemoryError) or _HOST_MEMORY in said:
        return (
            "out of memory in a step; lower max_batch_tokens, max_running, or what the cache "
            f"takes (cuda_memory_share or kv_cache_bytes): {said}"
        )
    if type(error).__module__.split(".")[0] == "triton":
        return f"a kernel could not be run ({type(error).__name__}): {said}"
    known = isinstance(error, RuntimeError) and any(name in said for name in _DRIVER_ERRORS)
    if known or isinstance(error, torch.AcceleratorError):
        return f"the device failed: {said}"
    return None
