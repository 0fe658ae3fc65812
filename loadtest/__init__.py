"""Measurements against a running server; timings live here and never in a test."""
