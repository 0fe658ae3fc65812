"""Counting the kernels that are compiled, so that one compiled while serving shows.

A kernel is compiled, or fetched from Triton's cache on disk, when a launch has arguments of a kind
that none had before. That takes up to two seconds on the engine's thread, and everybody waits. All
kinds are launched while the model loads; what comes later is counted, and named in the log.
"""

from __future__ import annotations

import logging
from typing import Any

from triton import knobs

_log = logging.getLogger(__name__)


class KernelCompilations:
    """Told by Triton of each kernel it compiles in this process."""

    def __init__(self) -> None:
        self.while_loading = 0
        self.while_serving = 0
        self._loaded = False
        self._others = knobs.runtime.jit_post_compile_hook

    def watch(self) -> None:
        """Begin to count; whom Triton told before, it goes on telling."""
        self._others = knobs.runtime.jit_post_compile_hook
        knobs.runtime.jit_post_compile_hook = self._note

    def loaded(self) -> None:
        """From now on no kernel should be compiled."""
        self._loaded = True

    def _note(self, **compiled: Any) -> bool | None:
        if self._loaded:
            self.while_serving += 1
            _log.warning("all requests waited for a kernel to compile: %s", compiled.get("repr"))
        else:
            self.while_loading += 1
        return self._others(**compiled) if self._others is not None else None
