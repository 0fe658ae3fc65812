"""The parts of the report, in their order; each is a module here with ``run(record, options)``.

A module is imported in its part's process alone, and imports only what it needs: what is missing on
a machine costs that part and no other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    """Of the module, too."""
    title: str
    seconds: float
    """The most it may take; less where less is left."""


PARTS = (
    Part("versions", "Versions and imports", 60),
    Part("test_files", "The repository's own tests of the CUDA path", 110),
    Part("floor", "What the device can do", 25),
    Part("kernels", "Paged attention against plain attention", 60),
    Part("layers", "Fused layers against transformers' own", 40),
    Part("sampler", "The device's sampler against the CPU's, and its speed", 60),
    Part("forward", "8B: forward pass, prefill, first token, memory", 120),
    Part("attention", "Attention alone", 40),
    Part("engine", "8B: steps of the engine", 120),
    Part("profile", "8B: kernels of a step", 60),
    Part("invariance", "8B: batch-invariant mode", 60),
    Part("small", "1B", 60),
)
