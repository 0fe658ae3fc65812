"""Statistics of one constraint's earlier answers, for drafts, and caches of its leaps and trees."""

from __future__ import annotations

from collections.abc import Hashable

from app.core.lru import Lru
from app.engine.choices.ways import WayTree
from app.engine.leap import WINDOW_TOKENS, Change

MOST_CONTEXTS = 4096
"""Branches of one constraint that are remembered, the newest of them."""

_MOST_WAYS = 8
"""Distinct tokens of a branch above which its counts are halved."""

_HALVED_AFTER = 64
"""Count of a token above which a branch's counts are halved, so that they follow changes."""

_EVERY_SO_OFTEN = 16
"""One in this many guesses is tried although its rate is too low."""

_CHANGES_BYTES = 800_000
"""Memory of all cached changes."""

_TOKEN_BYTES = 200
"""Estimated memory of a token in a change."""

_MOST_NODES = 1 << 13
"""Maximum nodes of all cached trees."""


class DraftStatistics:
    """Statistics of one constraint in one scope. Takes up to 7 MB, most of it for trees."""

    def __init__(self) -> None:
        self.copies = Rate(0.75)
        """Success rate of tokens copied from the prompt."""
        self.changes: Lru[Hashable, Change] = Lru(
            _CHANGES_BYTES, lambda change: _TOKEN_BYTES * (WINDOW_TOKENS + len(change.tokens))
        )
        """Changes by leaps, keyed by state and end of the answer, on which alone they depend."""
        self.trees = Lru[Hashable, tuple[WayTree | None]](
            _MOST_NODES, lambda kept: len(kept[0].nodes) if kept[0] else 1
        )
        """Trees of choices; None stands for one that cannot be scored."""
        self.multi_token_places: dict[Hashable, None] = {}
        """States whose last draw did not add exactly one token: a leap, a draft or the end
        followed."""
        self._skipped = 0
        self._branches: dict[tuple[Hashable, int], _Branch] = {}

    def record(self, place: Hashable, last: int, token: int) -> None:
        """``token`` was drawn at a place, after the token ``last``."""
        key = (place, last)
        branch = self._branches.get(key)
        if branch is None:
            if len(self._branches) >= MOST_CONTEXTS:
                del self._branches[next(iter(self._branches))]
            branch = self._branches[key] = _Branch()
        branch.record(token)

    def expect(self, place: Hashable, *, plain: bool) -> None:
        """Record whether the draw at ``place`` added exactly one token (``plain``)."""
        if plain:
            self.multi_token_places.pop(place, None)
        elif place not in self.multi_token_places:
            if len(self.multi_token_places) >= MOST_CONTEXTS:
                del self.multi_token_places[next(iter(self.multi_token_places))]
            self.multi_token_places[place] = None

    def skips(self) -> bool:
        """Whether to skip a draft that would only serve statistics: all calls but one in 16."""
        self._skipped = (self._skipped + 1) % _EVERY_SO_OFTEN
        return self._skipped != 0

    def likeliest(self, place: Hashable, last: int) -> tuple[int, float]:
        """The most frequent token at ``place`` after ``last``, and its rate, which is below 1; -1
        and 0 if none was drawn there."""
        branch = self._branches.get((place, last))
        return (-1, 0.0) if branch is None else (branch.commonest, branch.rate)


class _Branch:
    """Counts of the tokens drawn at one place."""

    __slots__ = ("_total", "commonest", "counts", "rate")

    def __init__(self) -> None:
        self.commonest = -1
        """Of equally frequent tokens, the one that was counted first."""
        self.rate = 0.0
        self.counts: dict[int, int] = {}
        self._total = 0

    def record(self, token: int) -> None:
        counts = self.counts
        count = counts[token] = counts.get(token, 0) + 1
        self._total += 1
        if len(counts) > _MOST_WAYS or count > _HALVED_AFTER:
            counts = self.counts = {each: n // 2 for each, n in counts.items() if n > 1}
            self._total = sum(counts.values())
        elif token == self.commonest:
            self.rate = count / (self._total + 1)
            return
        self.commonest = max(counts, key=counts.__getitem__, default=-1)
        self.rate = counts.get(self.commonest, 0) / (self._total + 1)


class Rate:
    """Recent success rate of a kind of guess: a moving average over some 16 of them."""

    __slots__ = ("_refused", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._refused = 0

    def record(self, correct: bool) -> None:
        self.rate += (correct - self.rate) / 16

    def try_again(self) -> bool:
        """Whether to try a guess although its rate is too low: one call in 16."""
        self._refused = (self._refused + 1) % _EVERY_SO_OFTEN
        return self._refused == 0
