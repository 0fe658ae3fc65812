"""The protocol of workloads, nonces, and mixed workloads."""

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
        """Whether every request needs a nonce, even with ``--cache warm``."""

    def request(self, number: int, nonce: str) -> Request:
        """The number-th request; a non-empty ``nonce`` makes its schema a new one."""


@dataclass(frozen=True, slots=True)
class Nonces:
    """Suffixes of six letters, different for every request and run.

    ``run`` identifies the run, so that a server that keeps running has not seen them either.
    """

    run: str

    def nonce(self, *place: object) -> str:
        rng = random.Random(f"{self.run} {place}")
        return "_" + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6))


@dataclass(frozen=True, slots=True)
class Mixed:
    """Requests of ``parts`` in turn, with the task names of their own workloads."""

    name: str
    parts: Sequence[Workload]
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        part = self.parts[number % len(self.parts)]
        return part.request(number // len(self.parts), nonce)
