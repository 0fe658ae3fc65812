"""An adapter (LoRA) as requests name it and the engine runs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Adapter:
    """One that is loaded. Two with the same name are different ones, where one was loaded later."""

    name: str
    slot: int
    """What ``Span.adapter`` has for its tokens; never 0."""
    number: int
    """How many were loaded before it, in this process."""
    root: str
    """The folder or the Hub's name that it was loaded from."""
    identity: str
    """Follows from its configuration and weights alone."""
    created: int
    """When it was loaded, in seconds since the epoch."""

    @property
    def scope(self) -> str:
        """Keys and values computed with it, and what drafts learn from its answers, are of no use
        to any other."""
        return f"{self.number} {self.name}"
