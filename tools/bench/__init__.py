"""Instruments of our own code: costs of its parts, effects of its features, the report of a GPU.

Each file is a command, ``python -m tools.bench.NAME``. The load of a server is measured in
``loadtest``. Timings stay here and there, and out of tests.
"""
