"""Faults of operation, injected into a real server, and measurements of its reaction."""
