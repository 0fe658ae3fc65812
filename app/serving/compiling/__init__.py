"""Constraints: compiled in processes of their own, each once, and kept."""
