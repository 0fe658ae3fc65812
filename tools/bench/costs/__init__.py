"""What a step, a schema and a context cost: ``python -m tools.bench.costs``."""
