"""The walk of a text over a graph: its ways, and the choice and leap of each.

All ways that the text may be on are followed together (Thompson 1968), as free text may have texts
in common with another way. Of equal positions, that of the first way is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import Expression
from app.explain.graph import Graph

_DECIDING = -1
"""Value of ``leapt`` for a position in the choice of its way."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A way that was taken. Offsets are characters of the text."""

    way: int
    start: int
    leap: int | None
    """The beginning of its leap; None: none of it was written yet."""
    end: int
    before: Step | None


@dataclass(frozen=True, slots=True)
class Resume:
    """A point from which a walk can go on, whatever follows: all ways so far pass it."""

    node: int
    offset: int
    steps: int
    """Number of steps before it."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The walk of one text. Equal prefixes of texts have equal steps, up to ``resume``."""

    steps: list[Step]
    """In order, from where the walk began; the last one may not be finished."""
    at: int
    """The node that was reached last."""
    complete: bool
    """Whether an answer may end with the text."""
    accepted: int
    """Characters of the text up to where it leaves the graph."""
    resume: Resume


@dataclass(frozen=True, slots=True, eq=False)
class _Arrival:
    """A node that the text has reached, and the steps to it."""

    node: int
    offset: int
    whole: bool
    """Whether it is between two characters."""
    steps: int
    last: Step | None


@dataclass(frozen=True, slots=True)
class _Position:
    """A position on a way: in its choice, or ``leapt`` bytes into its leap. Equal ones came the
    same way, as steps and arrivals compare by identity."""

    way: int
    rest: Expression
    """Rest of the choice."""
    leapt: int
    start: Step
    """The step without its end."""
    origin: _Arrival


@dataclass(slots=True)
class _Front:
    """Positions and nodes that a text has reached."""

    positions: list[_Position] = field(default_factory=list)
    arrivals: list[_Arrival] = field(default_factory=list)
    seen: set[tuple[int, Expression, int]] = field(default_factory=set, compare=False)
    """Way, rest and leap of the positions so far, those that were passed at once included."""


class Walker:
    """Walks texts over one graph, whose program nothing else may use at that time."""

    def __init__(self, graph: Graph, derivatives: Derivatives) -> None:
        self._nodes = graph.nodes
        self._edges = graph.edges
        self._derivatives = derivatives
        self._empty = derivatives.pool.empty
        self._nullable = derivatives.pool.nullable
        self._ways: list[list[int]] = [[] for _ in graph.nodes]
        for number, edge in enumerate(self._edges):
            self._ways[edge.source].append(number)
        self._known: dict[tuple[Expression, int], Expression] = {}
        self._idle: dict[tuple[tuple[int, Expression, int], ...], set[str]] = {}

    @property
    def start(self) -> Resume:
        return Resume(0, 0, 0)

    def can_resume(self, at: Resume, text: str) -> bool:
        """Whether ``at`` may be where a walk of ``text`` goes on."""
        return (
            0 <= at.node < len(self._nodes)
            and 0 <= at.offset <= len(text)
            and 0 <= at.steps <= at.offset + 1
        )

    def walk(self, text: str, at: Resume) -> Walk:
        """The walk of ``text`` from ``at``, the start or where an earlier walk says.

        Cost: a derivative for each byte and position, most of them known.
        """
        front = _Front()
        self._arrive(_Arrival(at.node, at.offset, True, at.steps, None), front)
        settled, offset = front.arrivals[0], at.offset
        while offset < len(text):
            # Characters that are known to change nothing: most characters of a long text.
            key = tuple([(each.way, each.rest, each.leapt) for each in front.positions])
            idle: set[str] = set() if front.arrivals else self._idle.setdefault(key, set())
            while offset < len(text) and text[offset] in idle:
                offset += 1
            if offset == len(text):
                break
            before, written = front, text[offset].encode("utf-8", "surrogatepass")
            for index, byte in enumerate(written, start=1):
                front = self._push(front.positions, byte, offset, whole=index == len(written))
            if not front.positions and not front.arrivals:
                return replace(self._walk_to(before, settled, offset), complete=False)
            if text[offset].isascii() and before == front:
                idle.add(text[offset])
            first = front.arrivals[0] if front.arrivals else front.positions[0].origin
            others = any(each.origin is not first for each in front.positions)
            if len(front.arrivals) < 2 and not others and first.whole:
                settled = first
            offset += 1
        return self._walk_to(front, settled, len(text))

    def _push(self, positions: list[_Position], byte: int, offset: int, *, whole: bool) -> _Front:
        """``whole``: whether this is the last byte of the character at ``offset``."""
        after = _Front()
        for position in positions:
            leap = self._edges[position.way].leap
            if position.leapt == _DECIDING:
                rest = self._known.get((position.rest, byte))
                if rest is None:
                    rest = self._derivatives.derivative(position.rest, byte)
                    self._known[position.rest, byte] = rest
                if rest == self._empty:
                    continue
                moved = _Position(position.way, rest, _DECIDING, position.start, position.origin)
            elif leap[position.leapt] == byte:
                start = position.start
                if start.leap is None:
                    start = replace(start, leap=offset)
                leapt = position.leapt + 1
                moved = _Position(position.way, self._empty, leapt, start, position.origin)
            else:
                continue
            self._add(moved, offset + whole, whole, after)
        return after

    def _add(self, position: _Position, offset: int, whole: bool, front: _Front) -> None:
        """Add ``position``, and those after it where its choice or its leap may be over."""
        key = position.way, position.rest, position.leapt
        if key in front.seen:
            return
        front.seen.add(key)
        edge = self._edges[position.way]
        if position.leapt == _DECIDING:
            if position.rest != self._derivatives.pool.epsilon:
                front.positions.append(position)
            if self._nullable[position.rest]:
                leaping = replace(position, rest=self._empty, leapt=0)
                self._add(leaping, offset, whole, front)
        elif position.leapt < len(edge.leap):
            front.positions.append(position)
        elif edge.target is not None:
            last = replace(position.start, end=offset)
            arrival = _Arrival(edge.target, offset, whole, position.origin.steps + 1, last)
            self._arrive(arrival, front)

    def _arrive(self, arrival: _Arrival, front: _Front) -> None:
        front.arrivals.append(arrival)
        for way in self._ways[arrival.node]:
            start = Step(way, arrival.offset, None, arrival.offset, arrival.last)
            position = _Position(way, self._edges[way].decides, _DECIDING, start, arrival)
            self._add(position, arrival.offset, arrival.whole, front)

    def _walk_to(self, front: _Front, settled: _Arrival, offset: int) -> Walk:
        """The walk to a node where an answer may end, or else along the first position."""
        resume = Resume(settled.node, settled.offset, settled.steps)
        ends = [arrival for arrival in front.arrivals if self._nodes[arrival.node].accepting]
        if ends or not front.positions:
            arrival = (ends or front.arrivals)[0]
            step = arrival.last
        else:
            arrival = front.positions[0].origin
            step = arrival.last
            if arrival.offset < offset:
                step = replace(front.positions[0].start, end=offset)
        steps: list[Step] = []
        while step is not None:
            steps.append(step)
            step = step.before
        return Walk(steps[::-1], arrival.node, bool(ends), offset, resume)
