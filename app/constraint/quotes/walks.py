"""Walks over the vocabulary and documents together: where tokens lead that reach into pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import DEAD, Int32s, Trie, walk
from app.constraint.automaton.vocabulary_index import ONCE, VocabularyIndex
from app.constraint.automaton.walks import Walks, with_room
from app.constraint.quotes.automaton import Inside, PieceAutomaton, Ways
from app.constraint.quotes.positions import walk as walk_piece

_NODES_PER_STEP = 128
"""Nodes of the trie that a kernel looks at in the time of one step of work."""
_MANY_NODES = 2_048
"""A walk from the beginning of a piece that looks at so many is kept with the document."""


@dataclass(slots=True)
class Reached:
    """Where tokens lead from a state."""

    ends: list[Int32s] = field(default_factory=list)
    """Arrays [N, 2]: tokens, and states that are in no piece."""
    within: list[tuple[Int32s, State]] = field(default_factory=list)
    """Arrays [N, 2]: tokens that end inside a piece, and bytes owed to it; what follows it."""

    def found(self) -> list[Int32s]:
        """All arrays of tokens."""
        return [*self.ends, *(found for found, _ in self.within)]

    def states(self) -> list[State]:
        """The states of ``ends``, each once."""
        if not self.ends:
            return []
        states: list[State] = np.unique(np.concatenate([each[:, 1] for each in self.ends])).tolist()
        return states

    def farthest(self, automaton: Automaton) -> int:
        """How many bytes a completion has at most after any of the tokens."""
        far = [automaton.length(state) for state in self.states()]
        far += [int(each[:, 1].max()) + automaton.length(tail) for each, tail in self.within]
        return max(far, default=0)


class PieceWalks(Walks):
    """Walks that stop at pieces, and ``reach``, which goes on inside them."""

    def __init__(self, automaton: PieceAutomaton, index: VocabularyIndex) -> None:
        super().__init__(automaton, index.longest)
        self.inside = automaton.inside
        self._index = index
        self._bound = automaton.bound
        self._ending = index.ending_of_tokens
        self._endings: dict[State, Int32s] = {}
        """By what follows a piece: the state after each ending of a token, or ``DEAD``."""

    def reach(self, state: State) -> Reached:
        """Where the vocabulary's tokens lead from ``state``."""
        reached = Reached()
        self._range(self._index.trie, 0, self._index.trie.nodes, state, reached)
        return reached

    def any(self, trie: Trie, state: State, tail: bytes) -> bool:
        node = trie.find(tail)
        if node < 0 or node + 1 >= trie.skip[node]:
            return False
        end = int(trie.skip[node])
        ways = self.inside(state)
        if ways is not None and any(
            len(self._walk(trie, each, node + 1, end, enough=1)[0]) for each in ways.pieces
        ):
            return True
        reached = Reached()
        self._range(trie, node + 1, end, state, reached)
        return bool(reached.found())

    def from_beginnings(self) -> None:
        """Walk from where each hole begins; what is kept with documents stays."""
        for hole, pieces in self._bound.pieces.items():
            if pieces.any:
                self._walk(self._index.trie, Inside(hole, DEAD), 0, self._index.trie.nodes)

    def _range(self, trie: Trie, node: int, end: int, state: State, reached: Reached) -> None:
        """Siblings from ``node`` on, up to ``end``, that follow ``state``."""
        if node >= end:
            return
        automaton = self._automaton
        stack = np.zeros(self._index.longest + 2, np.int32)
        base = int(trie.depth[node])
        stack[0] = state
        found = np.empty((512, 2), np.int32)
        count = 0
        while node < end:
            level = int(trie.depth[node]) - base
            here = int(stack[level])
            ways = self.inside(here)
            if ways is not None:
                until = end if level == 0 else int(trie.skip[node - 1])
                self.pieces(trie, node, until, ways, reached)
                node = until
                continue
            automaton.expand(here)
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk(
                *trie.arrays, node, end, base, rows, transitions, stack, found, count
            )
            found = with_room(found, count, trie.strings + 1)
        if count:
            reached.ends.append(found[:count].copy())

    def pieces(self, trie: Trie, node: int, end: int, ways: Ways, reached: Reached) -> None:
        """The same from inside pieces, and from what else the state may be."""
        for each in ways.pieces:
            found, quotes = self._walk(trie, each, node, end)
            if len(found):
                reached.within.append((found, each.tail))
            if node == 0 and self._is_between(each):
                self._endings_of(trie, quotes, each.tail, reached)
                continue
            for quote in quotes.tolist():
                self._range(trie, quote, int(trie.skip[quote]), each.tail, reached)
        if ways.rest != DEAD:
            self._range(trie, node, end, ways.rest, reached)

    def _walk(
        self, trie: Trie, inside: Inside, node: int, end: int, enough: int = 1 << 30
    ) -> tuple[Int32s, Int32s]:
        """Tokens within the piece with what they owe, and nodes of quotes that end it."""
        filled = self._bound.filled(inside.piece)
        assert filled is not None
        pieces, leaf = filled
        key = (node, end, leaf, pieces.bounds) if trie is self._index.trie else None
        if key is not None:
            kept = pieces.walks.get(key)
            if kept is not None:
                return kept
        found = np.empty((end - node, 2), np.int32)
        quotes = np.empty(end - node, np.int32)
        count, ends, visited = walk_piece(
            *pieces.places, leaf, pieces.is_end(leaf), *trie.arrays, node, end,
            self._index.longest, found, quotes, enough,
        )  # fmt: skip
        found, quotes = found[:count].copy(), quotes[:ends].copy()
        if key is not None and visited >= _MANY_NODES and enough > len(found):
            pieces.walks.keep(key, found, quotes)
        self._bound.spend(1 + visited // _NODES_PER_STEP)
        return found, quotes

    def _is_between(self, inside: Inside) -> bool:
        """Whether the piece is between two characters, as strings are for which tokens are sorted
        by their endings."""
        filled = self._bound.filled(inside.piece)
        assert filled is not None
        pieces, leaf = filled
        return pieces.is_between(leaf)

    def _endings_of(self, trie: Trie, quotes: Int32s, tail: State, reached: Reached) -> None:
        """Tokens below ``quotes``: a piece's end, and then something that ``tail`` admits."""
        states = self._endings.get(tail)
        if states is None:
            after = Reached()
            endings = self._index.strings[ONCE].endings
            self._range(endings, 0, endings.nodes, tail, after)
            if after.within:  # an ending that reaches into another piece: walked one by one
                for quote in quotes.tolist():
                    self._range(trie, quote, int(trie.skip[quote]), tail, reached)
                return
            states = np.zeros(endings.strings, np.int32)
            for ends in after.ends:
                states[ends[:, 0]] = ends[:, 1]
            self._endings[tail] = states
        parts = [trie.token[quote : trie.skip[quote]] for quote in quotes.tolist()]
        tokens = np.concatenate(parts) if parts else np.empty(0, np.int32)
        tokens = tokens[tokens >= 0]
        ends = states[self._ending[tokens]]
        alive = ends != DEAD
        if alive.any():
            reached.ends.append(np.stack([tokens[alive], ends[alive]], axis=1))
