"""Measurements of a running server. Timings live here and in ``tools.bench``, never in a test."""
