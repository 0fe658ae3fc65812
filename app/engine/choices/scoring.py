"""One choice of one sequence while it is scored: the tokens that its steps compute, its result."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq

import numpy as np

from app.core.choices import ScoredChoice, ScoredWay
from app.core.request import SamplingParams
from app.core.step import Draw, SampledToken
from app.engine.choices.cursor import Found
from app.engine.choices.ways import Pass, WayTree

_GREEDY = SamplingParams(temperature=0.0)


class Scoring:
    """Goes through the passes of a tree, one step each.

    Together with a pass, its step computes the *chain*: the tokens before the tree that are not
    computed yet, at least the last one. If the chain is too long for one step, an ordinary step
    comes first::

        computed | chain .... last | nodes of the pass
                                ^ root
    """

    def __init__(
        self, found: Found, tree: WayTree, base: int, most: int, *, exact: bool, by_tokens: bool
    ) -> None:
        """``base``: tokens of the sequence before the tree; ``most``: maximum tokens of a step."""
        self._by_tokens = by_tokens
        self.found = found
        self.base = base
        self.exact = exact
        """Whether the sequence continues with a way sampled from the scores."""
        self._tree = tree
        self._most = most
        self._next = 0
        """Index of the next pass."""
        self._logprobs = [0.0] + [math.nan] * (len(tree.nodes) - 1)
        """Log-probability of the path to each node."""
        self._terms: list[list[float]] = [[] for _ in found.choice.ways]
        """Log-probabilities of the token paths of each way."""
        self._entering: list[float] = []

    @property
    def is_done(self) -> bool:
        return self._next == len(self._tree.passes)

    @property
    def _pass(self) -> Pass:
        return self._tree.passes[self._next]

    def gap(self, launched: int) -> int:
        """Tokens to compute next, if ``launched`` tokens are launched."""
        chain, nodes = self.base - launched, len(self._pass.nodes)
        return chain + nodes if chain + nodes <= self._most else chain - 1

    def is_whole(self, launched: int, granted: int) -> bool:
        """Whether ``granted`` tokens are the whole pass, and not only tokens before it."""
        return granted == self.base - launched + len(self._pass.nodes)

    def fits(self, launched: int, granted: int) -> bool:
        """Whether ``granted`` tokens can be computed next: a pass is not divided."""
        return launched + granted < self.base or self.is_whole(launched, granted)

    def span(self, tokens: Seq[int], launched: int) -> tuple[list[int], list[int], Seq[int]]:
        """The tokens of the next step, after ``launched`` tokens of the sequence, its rows and its
        tree."""
        chain, nodes = self.base - launched, self._pass.nodes
        computed = [*tokens[launched : self.base], *(self._tree.nodes[i].token for i in nodes)]
        parents = list(range(-1, chain - 1))
        place = {0: chain - 1} | {number: chain + i for i, number in enumerate(nodes)}
        parents += [place[self._tree.nodes[number].parent] for number in nodes]
        is_tree = parents != list(range(-1, len(parents) - 1))
        rows = [place[number] for number in self._pass.scored]
        return computed, rows, parents if is_tree else ()

    def draws(self) -> list[Draw]:
        """One for each row."""
        nodes = self._tree.nodes
        return [Draw(_GREEDY, 0, scored=nodes[number].sets()) for number in self._pass.scored]

    @property
    def num_rows(self) -> int:
        return len(self._pass.scored)

    def receive(self, drawn: Seq[SampledToken]) -> None:
        """Take the scores of a pass, and go to the next one."""
        for number, sampled in zip(self._pass.scored, drawn, strict=True):
            node, before = self._tree.nodes[number], self._logprobs[number]
            scores = iter(sampled.scores)
            for child in node.children.values():
                self._logprobs[child] = before + next(scores)
            for way, _ in node.ends:
                self._terms[way].append(before + next(scores))
            if node.enters is not None:
                self._entering.append(before + next(scores))
        self._next += 1

    def result(self) -> ScoredChoice:
        """The model's probability of each way, given that the answer reaches the choice."""
        entering = _log_sum(self._entering) if self._tree.enters else 0.0
        found = self.found
        ways = [
            ScoredWay(way, min(0.0, _log_sum(terms) - entering) if terms else -math.inf)
            for way, terms in zip(found.choice.ways, self._terms, strict=True)
        ]
        is_open = found.choice.is_open
        return ScoredChoice(found.start, found.place, tuple(ways), is_open, self._by_tokens)


def draw(logprobs: Seq[float], temperature: float, uniform: float) -> int:
    """Index of a way sampled by ``logprobs``; the likeliest one at temperature 0.

    ``uniform`` is a random number from 0 to 1, 1 excluded. If all probabilities are 0 the ways
    are equally likely.
    """
    logs = np.array(logprobs)
    if not np.isfinite(logs).any():
        logs = np.zeros(len(logs))
    if temperature == 0.0:
        return int(logs.argmax())
    ends = np.cumsum(np.exp((logs - logs.max()) / temperature))
    return min(int(np.searchsorted(ends, uniform * ends[-1], side="right")), len(logs) - 1)


def _log_sum(terms: Seq[float]) -> float:
    highest = max(terms, default=-math.inf)
    if highest == -math.inf:
        return -math.inf
    return highest + math.log(math.fsum([math.exp(term - highest) for term in terms]))
