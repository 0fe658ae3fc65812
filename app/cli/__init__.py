"""Commands that need no server: ``batch``, ``check`` and ``explain``."""
