"""Counts compiled kernels, to detect compilations while serving.

A kernel is compiled, or loaded from Triton's cache on disk, when a launch has new kinds of
arguments. This takes up to two seconds on the engine thread, and all requests wait. While the model
loads, all kinds are launched; later compilations are counted and logged.
"""

from __future__ import annotations

import logging
from typing import Any

from triton import knobs

_log = logging.getLogger(__name__)


class KernelCompilations:
    """Counts Triton's compilations in this process from now on, through a hook.

    A hook that was already installed is still called.
    """

    def __init__(self) -> None:
        self.while_loading = 0
        self.while_serving = 0
        self._loaded = False
        self._others = knobs.runtime.jit_post_compile_hook
        knobs.runtime.jit_post_compile_hook = self._note

    def loaded(self) -> None:
        """The model is loaded: later compilations count as ``while_serving``."""
        self._loaded = True

    def _note(self, **compiled: Any) -> bool | None:
        if self._loaded:
            self.while_serving += 1
            _log.warning("all requests waited for a kernel to compile: %s", compiled.get("repr"))
        else:
            self.while_loading += 1
        return self._others(**compiled) if self._others is not None else None
