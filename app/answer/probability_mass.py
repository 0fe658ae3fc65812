"""A scored choice as shares of all its ways: what it says of the way that an answer went."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.answer.pieces import Alternative, AlternativeKind, Confidence
from app.core.choices import ScoredChoice, ScoredWay, Way

MOST_ALTERNATIVES = 64
MOST_ALTERNATIVE_BYTES = 512
"""Of one value; the rest of them are told together."""

Named = Callable[[Way], tuple[AlternativeKind, Any]]
"""What an alternative is called."""


def tell(entry: Confidence, choice: ScoredChoice, text: bytes, named: Named) -> Way | None:
    """Write into ``entry`` what ``choice`` says, where the answer went on with ``text``.

    The way that it went; None, and nothing is written, where the text ends before that is told, or
    where the model gives nothing to any way, or none was scored.
    """
    chosen, shares = _chosen(choice, text), _Shares.of(choice)
    if chosen is None or shares is None:
        return None
    entry.logprob = shares.logprob(chosen)
    entry.mass = shares.mass
    entry.alternatives = _alternatives(choice, chosen, shares, named)
    return chosen.way


@dataclass(frozen=True, slots=True)
class _Shares:
    """The ways of a choice, each as a share of all."""

    mass: float | None
    _log_sum: float

    @staticmethod
    def of(choice: ScoredChoice) -> _Shares | None:
        """None where the model gives nothing to any way, or there are none."""
        highest = max([way.logprob for way in choice.ways], default=-math.inf)
        if highest == -math.inf:
            return None
        total = math.fsum([math.exp(way.logprob - highest) for way in choice.ways])
        log_sum = highest + math.log(total)
        return _Shares(None if choice.is_open else min(1.0, math.exp(log_sum)), log_sum)

    def logprob(self, way: ScoredWay) -> float:
        return min(0.0, way.logprob - self._log_sum)

    def share(self, way: ScoredWay) -> float:
        return math.exp(self.logprob(way))


def _chosen(choice: ScoredChoice, text: bytes) -> ScoredWay | None:
    """The way that the text went; None where it ends before that is told."""
    for each in choice.ways:
        if text.startswith(each.way.texts):
            return each
        if each.way.ends_answer and text == each.way.text:
            return each
    return None


def _alternatives(
    choice: ScoredChoice, chosen: ScoredWay, shares: _Shares, named: Named
) -> list[Alternative]:
    """The other ways, the likeliest first."""
    others = sorted([way for way in choice.ways if way is not chosen], key=lambda way: -way.logprob)
    found: list[Alternative] = []
    size, left = 0, len(others)
    for each in others:
        size += len(each.way.text)
        if len(found) == MOST_ALTERNATIVES or size > MOST_ALTERNATIVE_BYTES:
            break
        found.append(Alternative(shares.share(each), *named(each.way)))
        left -= 1
    if left:
        rest = math.fsum([shares.share(each) for each in others[len(found) :]])
        found.append(Alternative(rest, "other", left))
    return found
