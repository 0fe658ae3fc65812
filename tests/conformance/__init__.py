"""The constraint core against the world: MaskBench, the official test suite, probes, random walks.

Each module is a command (``python -m tests.conformance.maskbench`` and the like) and gives a small
seeded part of itself to the tests beside it.
"""
