"""Benchmarks of our own code: costs of its parts, effects of its features, the GPU report.

Each file is a command, ``python -m tools.bench.NAME``. Load tests of a server are in
``loadtest``. Only these two measure times; tests do not.
"""
