"""Kernels by Triton's compiler, although tests interpret them and no GPU is here.

The interpreter accepts Python that the compiler rejects.
"""

from __future__ import annotations

import os
import subprocess
import sys

from triton.backends.compiler import GPUTarget


def in_compiled_mode(*arguments: str) -> str:
    """Output of Python with these arguments in a process that does not interpret kernels."""
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class NoGpu:
    """A driver for kernels that are compiled for an H100, and not run."""

    arch = 90

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return self.arch

    def get_current_stream(self, device: int) -> int:
        return 0
