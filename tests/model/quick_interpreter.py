"""Triton's interpreter without what it does again where a kernel calls a function.

It replaces the functions of ``triton.language`` by interpreted ones before each such call, although
the kernel's own start has done so: milliseconds of each call, nine tenths of a test's time.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def hasten() -> None:
    """Let calls between functions of kernels replace only what is not replaced yet."""
    patch_language: Any = interpreter._patch_lang

    def call(self: Any, *given: Any, **named: Any) -> Any:
        modules = [each for each in self.fn.__globals__.values() if each is tl or each is tl.core]
        if any(tl.core.is_builtin(each.load) for each in modules):
            patch_language(self.fn)
        return self.rewrite()(*given, **named)

    interpreter.InterpretedFunction.__call__ = call
