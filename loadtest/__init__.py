"""Measurements of running servers. Timings belong here and in ``tools.bench``, not in tests."""
