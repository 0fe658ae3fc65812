"""Commands that need no server: ``check`` and ``explain``."""
