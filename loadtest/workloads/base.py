"""A workload, and several in one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest.requests import Request

DEFAULT_MAX_TOKENS = 512


class Workload(Protocol):
    """An endless list of requests; the same number always gives the same request."""

    @property
    def name(self) -> str: ...

    @property
    def always_fresh(self) -> bool:
        """Every request wants a nonce, also where the run's schema caches are warm."""

    def request(self, number: int, nonce: str) -> Request:
        """The number-th request; a ``nonce`` that is not empty makes its schema a new one."""


@dataclass(frozen=True, slots=True)
class Nonces:
    """Suffixes that no other request of any run has, all equally long: six letters.

    ``run`` tells runs apart, so that servers which stay up have not seen them either.
    """

    run: str

    def nonce(self, *place: object) -> str:
        rng = random.Random(f"{self.run} {place}")
        return "_" + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6))


@dataclass(frozen=True, slots=True)
class Mixed:
    """``parts`` in turn. Requests keep the names of their own workloads' tasks."""

    name: str
    parts: Sequence[Workload]
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        part = self.parts[number % len(self.parts)]
        return part.request(number // len(self.parts), nonce)
