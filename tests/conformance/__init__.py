"""Checks of the constraint core: MaskBench, the official test suite, probes, random walks.

Each module is a command (``python -m tests.conformance.maskbench`` and the like); the tests beside
it run a small seeded part of it.
"""
