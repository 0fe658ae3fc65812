"""Several workloads in one: what a server meets that is not kept for one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.requests import Request
from loadtest.workloads.base import Workload


@dataclass(frozen=True, slots=True)
class Mixed:
    """``parts`` in turn. Requests keep the names of their own workloads' tasks."""

    name: str
    parts: Sequence[Workload]
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        part = self.parts[number % len(self.parts)]
        return part.request(number // len(self.parts), nonce)
