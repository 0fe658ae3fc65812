"""The parts of the report, in their order; each is a module here with ``run(record, options)``.

A module is imported in its part's process alone, and imports only what it needs: a library that is
missing on a machine affects only the parts that need it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    """Also the name of the module."""
    title: str
    seconds: float
    """Time limit; less if less time is left."""
    timed: bool = True
    """Whether the part measures, and so has the device to itself; other parts run in parallel."""
    again: bool = False
    """Whether the part runs again without CUDA graphs if it fails without a row."""


PARTS = (
    Part("versions", "Versions and imports", 60, timed=False),
    Part("test_files", "The repository's own tests of the CUDA path", 160, timed=False),
    Part("kernels", "Paged attention against plain attention", 110, timed=False),
    Part("families", "Families of models, loaded and checked", 160, timed=False),
    Part("sampler", "The device's sampler against the CPU's", 110, timed=False),
    Part("floor", "What the device can do", 25),
    Part("forward", "8B: forward pass, prefill, memory", 120, again=True),
    Part("pieces", "Small kernels, draws and attention alone", 70),
    Part("engine", "8B: steps of the engine, first token", 130, again=True),
    Part("profile", "8B: kernels of a step", 60, again=True),
    Part("invariance", "8B: batch-invariant mode", 60),
    Part("small", "1B", 60),
)
