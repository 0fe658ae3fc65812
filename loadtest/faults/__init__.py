"""Fault injection into a real server, and measurements of its reaction."""
