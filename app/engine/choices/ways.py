"""The ways of a choice as a tree of tokens, with the token sets to score at each node.

Many token paths may spell the text of a way. Counted are paths that follow the tokenizer's own
split up to some token and cover the rest with one token, which may continue beyond the text::

    text           "po|sit|ive"          the tokenizer's split
    node 0          |    `- covers of  "positive"   (a token  "positive" , or  "positive",)
    node 1  "po     `- sit ...   covers of  sitive"
    node 2  "po|sit    `- ...    covers of  ive"

These paths are disjoint events, so the sum of their probabilities is a lower bound of the text's
probability. It is close, since a model trained on the tokenizer's splits hardly ever writes others.
A text that is not JSON is covered by tokens that continue with one of its borders, or by the end of
the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.core.choices import TokenIds, Way
from app.core.step import MOST_TREE_TOKENS
from app.engine.choices.cursor import Found

Split = Callable[[bytes], Sequence[tuple[int, int]] | None]
"""Splits a text that follows the sequence into pairs of a token and its number of bytes; None if
the tokenizer would change the text."""


@dataclass(slots=True)
class Node:
    """A prefix of some ways, in tokens. Its row of logits scores the tokens after it."""

    parent: int
    """-1 for the root, which stands for the tokens of the sequence."""
    token: int
    at: int
    """Bytes from the root."""
    children: dict[int, int] = field(default_factory=dict)
    """By token, the number of the node."""
    ends: list[tuple[int, TokenIds]] = field(default_factory=list)
    """Numbers of the ways that end after this node, with the tokens that end them."""
    enters: TokenIds | None = None
    """Tokens that reach the choice's place from here, and may go beyond it."""

    def sets(self) -> list[TokenIds]:
        """The token sets to score, in order: children, ends, ``enters``."""
        sets = [np.array([token], np.int32) for token in self.children]
        sets += [tokens for _, tokens in self.ends]
        return sets if self.enters is None else [*sets, self.enters]


@dataclass(frozen=True, slots=True)
class Pass:
    """A part of the tree that is computed in one step."""

    nodes: tuple[int, ...]
    """Parents before children, without the root."""
    scored: tuple[int, ...]
    """Nodes whose rows are needed; each node is scored in one pass."""


@dataclass(frozen=True, slots=True)
class WayTree:
    """Immutable once it is built; many sequences may share it."""

    nodes: Sequence[Node]
    passes: Sequence[Pass]
    enters: bool
    """Whether there is text between the root and the choice."""

    @staticmethod
    def of(
        found: Found, before: bytes, split: Split, eos: TokenIds, *, most: int, branching: bool
    ) -> WayTree | None:
        """The tree of ``found``'s ways, where ``before`` is between the root and the choice.

        A pass has at most ``most`` tokens; without ``branching`` it is one path. None if a way has
        no split, or one that is too long. Costs a tokenization for each text.
        """
        growing = _Growing(found, before, split, eos)
        if not growing.grow():
            return None
        passes = growing.passes(min(most, MOST_TREE_TOKENS), branching=branching)
        return None if passes is None else WayTree(growing.nodes, passes, bool(before))


class _Growing:
    """A tree while it is built."""

    def __init__(self, found: Found, before: bytes, split: Split, eos: TokenIds) -> None:
        self.nodes = [Node(-1, -1, 0)]
        self._found = found
        self._before = before
        self._split = split
        self._eos = eos

    def grow(self) -> bool:
        for number, way in enumerate(self._found.choice.ways):
            if not all(self._add(number, text) for text in way.scored):
                return False
            if way.ends_answer and not self._add_end(number, way):
                return False
        if self._before:
            for node in self.nodes:
                if node.at < len(self._before):
                    node.enters = self._found.state.beginning(self._before[node.at :])
        return True

    def _add(self, way: int, text: bytes) -> bool:
        whole = self._before + text
        path = self._path(whole, to_end=False)
        if path is None:
            return False
        for number in path:
            node = self.nodes[number]
            tokens = self._found.state.beginning(whole[node.at :])
            if len(tokens):
                node.ends.append((way, tokens))
        return True

    def _add_end(self, number: int, way: Way) -> bool:
        """Add a way's text, followed by the end of the answer or by one of the way's borders."""
        whole = self._before + way.text
        path = self._path(whole, to_end=True)
        if path is None:
            return False
        for each in path:
            node = self.nodes[each]
            over = self._over(whole[node.at :], way.borders)
            tokens = np.unique(np.concatenate([over, self._eos] if each == path[-1] else [over]))
            if len(tokens):
                node.ends.append((number, tokens))
        return True

    def _over(self, rest: bytes, borders: Sequence[bytes]) -> TokenIds:
        """The tokens that spell ``rest`` and a border."""
        beginning = self._found.state.beginning
        if not borders or (rest and not len(beginning(rest))):
            return np.empty(0, np.int32)
        return np.concatenate([beginning(rest + border) for border in borders])

    def _path(self, text: bytes, *, to_end: bool) -> list[int] | None:
        """The nodes along the split of ``text``, up to its last token or to its end."""
        tokens = self._split(text)
        if tokens is None:
            return None
        path = [0]
        for token, size in tokens:
            here = self.nodes[path[-1]]
            if here.at + size >= len(text) and not to_end:
                break
            if token not in here.children:
                here.children[token] = len(self.nodes)
                self.nodes.append(Node(path[-1], token, here.at + size))
            path.append(here.children[token])
        return path

    def passes(self, most: int, *, branching: bool) -> list[Pass] | None:
        """The nodes in passes of ``most`` tokens at most, the root's row in the first one."""
        scored: set[int] = set()
        found: list[Pass] = []
        taken: dict[int, None] = {}
        for leaf in self._leaves():
            way = self._way(leaf)
            if len(way) > most:
                return None
            new = [number for number in way if number not in taken]
            if taken and (not branching or len(taken) + len(new) > most):
                found.append(self._pass(taken, scored))
                taken = {}
            taken.update(dict.fromkeys(way))
        return [*found, self._pass(taken, scored)]

    def _pass(self, taken: dict[int, None], scored: set[int]) -> Pass:
        new = [number for number in (0, *taken) if number not in scored]
        scored.update(new)
        return Pass(tuple(taken), tuple(new))

    def _leaves(self) -> list[int]:
        """Nodes without children, those of one branch beside each other."""
        leaves, waiting = [], [0]
        while waiting:
            number = waiting.pop()
            children = self.nodes[number].children.values()
            waiting.extend(reversed([*children]))
            if not children and number:
                leaves.append(number)
        return leaves

    def _way(self, number: int) -> list[int]:
        """The nodes from the root, which is left out, to this one."""
        way: list[int] = []
        while number:
            way.insert(0, number)
            number = self.nodes[number].parent
        return way
