"""Costs of a step, a schema and a context: ``python -m tools.bench.costs``."""
