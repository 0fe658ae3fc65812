"""The compressed automaton of a program as a bounded graph that people can read.

A node is a branch point: a state in which more than one way leads on, or in which the answer may
end. An edge is a choice and the leap after it: the bytes that then are the only way on. What would
blow the graph up is one choice: the inside of a string, a number, one of many listed texts, and a
reference to a rule, whose body is drawn once by itself. Items of longer arrays come back to one
node, which says how often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from app.constraint.json.text import CHARACTER
from app.constraint.language.expressions import INFINITE, Expression, Kind, byte_set
from app.constraint.program import Program
from app.explain.measures import Measures
from app.explain.spelling import Spelling, first_bytes, members, spell_class

ChoiceKind = Literal["start", "byte", "class", "text", "rule"]

_LISTED = 40
"""Texts of an enum up to which each is an edge of its own."""
_LONGEST_COUNTED = 1 << 20
"""Bytes of one choice that are counted."""
_UNROLLED = 4
"""Items up to which an array is drawn item by item."""
_OUTSIDE, _INSIDE, _ESCAPED, _PLAIN = range(4)
"""Where a state stands: outside of JSON strings, inside, after a backslash; or not in JSON."""
_BY_NAME = (Kind.RULE, Kind.DISTINCT)
"""Forms that are named in the graph rather than followed."""
_ANY_VALUE_FIRST = byte_set(b'"-0123456789ntf[{')


@dataclass(frozen=True, slots=True)
class Edge:
    source: int
    target: int | None
    """None: beyond the limit of the graph."""
    kind: ChoiceKind
    choice: str
    """What is decided, for people; "" at the start."""
    decided: int
    """Bytes that are decided, at their shortest."""
    leap: bytes
    """The forced bytes that follow."""
    decides: Expression
    """The texts of the choice, in the program's pool."""


@dataclass(slots=True)
class GraphNode:
    accepting: bool
    repeats: str = ""
    """How often what leads back here may come, "" where nothing does."""
    rule: int | None = None
    """The rule whose body starts here."""
    edges: list[Edge] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: list[GraphNode]
    """The first one is the start."""
    whole: bool
    """Whether nothing was left out for the limit."""

    @property
    def edges(self) -> list[Edge]:
        return [edge for node in self.nodes for edge in node.edges]

    @property
    def forced_share(self) -> float:
        """Bytes of leaps by all bytes of the graph, each edge once, choices at their shortest."""
        leapt = sum(len(edge.leap) for edge in self.edges)
        decided = sum(edge.decided for edge in self.edges)
        return leapt / (leapt + decided) if leapt + decided else 0.0


def explore(program: Program, *, json: bool = True, max_nodes: int = 400) -> Graph:
    """The graph of ``program``; ``json`` says that its strings are JSON texts.

    The program's pool grows, so it should be one that nothing else uses.
    """
    return _Explorer(program, _OUTSIDE if json else _PLAIN, max_nodes).run()


class _Explorer:
    def __init__(self, program: Program, mode: int, max_nodes: int) -> None:
        self._derivatives = program.derivatives
        self._pool = program.derivatives.pool
        self._root = program.root
        self._mode = mode
        self._max_nodes = max_nodes
        self._measures = Measures(program.derivatives)
        self._spelling = Spelling(program.derivatives)
        self._nodes = [GraphNode(accepting=False)]
        self._known: dict[tuple[Expression, int], int] = {}
        self._states: list[tuple[int, Expression, int]] = []
        """Of every node but the first: its number, expression and mode."""
        self._rules: dict[int, int] = {}
        """Numbers of rules, in the order they are met."""
        self._whole = True

    def run(self) -> Graph:
        root = self._root
        if self._pool.kinds[root] == Kind.RULE:
            self._rules[self._pool.operands[root]] = 1
            self._nodes[0].rule = 1
            root = self._pool.body(root)
        self._add(0, "start", "", self._pool.epsilon, root, self._mode)
        for number, expression, mode in self._states:  # which grows
            self._add_ways(number, expression, mode)
        return Graph(self._nodes, self._whole)

    def _add(
        self,
        source: int,
        kind: ChoiceKind,
        choice: str,
        decides: Expression,
        on: Expression,
        mode: int,
    ) -> None:
        """An edge for a choice of ``decides`` that leaves ``on`` to come, in ``mode``."""
        leap, end, mode = self._leap(on, mode)
        decided = min(self._derivatives.length(decides), _LONGEST_COUNTED)
        if kind == "text":
            decided = max(1, decided)
        edge = Edge(source, self._node(end, mode), kind, choice, decided, leap, decides)
        self._nodes[source].edges.append(edge)

    def _node(self, expression: Expression, mode: int) -> int | None:
        expression, repeats = self._loosen(expression, mode)
        known = self._known.get((expression, mode))
        if known is not None:
            return known
        if len(self._nodes) >= self._max_nodes:
            self._whole = False
            return None
        number = self._known[expression, mode] = len(self._nodes)
        self._nodes.append(GraphNode(self._pool.nullable[expression], repeats))
        self._states.append((number, expression, mode))
        return number

    def _loosen(self, expression: Expression, mode: int) -> tuple[Expression, str]:
        """Forget how many items are still to come, so that all of them share their states."""
        head, tail = self._split(expression)
        if self._pool.kinds[head] != Kind.REPETITION or self._is_text(head, mode):
            return expression, ""
        inner, low, high = self._pool.operands[head]
        if high is not None and high <= _UNROLLED:
            return expression, ""
        repeats = f"{low} or more" if high is None else f"{low} to {high}"
        if low == high or (low, high) == (0, None):
            repeats = "any number of" if high is None else str(low)
        return self._pool.concatenate(self._pool.repeat(inner), tail), f"{repeats} times"

    def _leap(self, expression: Expression, mode: int) -> tuple[bytes, Expression, int]:
        """The forced bytes from here, where they lead, and whether that is inside a string."""
        pool, parts = self._pool, []
        while not pool.nullable[expression]:
            head, tail = self._split(expression)
            if pool.kinds[head] == Kind.LITERAL:
                text, expression = pool.operands[head], tail
            elif (
                pool.kinds[head] in _BY_NAME
                or self._is_text(head, mode)
                or self._loosen(expression, mode)[1]
                or self._apart(head, mode)
            ):
                break
            else:
                row = self._derivatives.live_row(expression)
                if len(row) != 1 or row[0][0].bit_count() > 1:
                    break
                text, expression = bytes(members(row[0][0])), row[0][1]
            parts.append(text)
            mode = _after(mode, text)
        return b"".join(parts), expression, mode

    def _add_ways(self, source: int, expression: Expression, mode: int) -> None:
        """Edges for the choices in a state that nothing is forced in."""
        pool = self._pool
        head, tail = self._split(expression)
        if self._is_text(head, mode):
            self._add_text(source, expression, mode)
            return
        if pool.kinds[head] in _BY_NAME:
            self._add(source, "rule", self._name(head), head, tail, mode)
            return
        apart = self._apart(head, mode)
        for first, rest in apart.values():
            way = pool.concatenate(first, rest, tail)
            if self._derivatives.length(way) < INFINITE:
                self._add_ways(source, way, mode)
        if apart:
            others = [member for member in pool.operands[head] if member not in apart]
            expression = pool.concatenate(pool.union(others), tail)
        for bits, target in self._derivatives.live_row(expression):
            single = bits.bit_count() == 1
            after = _after(mode, bytes(members(bits))) if single else mode
            kind: ChoiceKind = "byte" if single else "class"
            self._add(source, kind, spell_class(bits), pool.byte(bits), target, after)

    def _add_text(self, source: int, expression: Expression, mode: int) -> None:
        """One choice of all the text up to the next literal."""
        pool, parts, after = self._pool, [], mode
        while expression != pool.epsilon:
            head, tail = self._split(expression)
            if pool.kinds[head] == Kind.LITERAL or not self._is_text(head, mode):
                break
            parts.append(head)
            self._derivatives.length(head)  # which shortest builds on
            after = _after(after, self._derivatives.shortest(head))
            expression = tail
        whole = pool.concatenate(*parts)
        label = self._spelling.pattern(whole) if len(parts) > 1 and mode != _OUTSIDE else None
        label = label or " ".join(self._text_label(part, mode) for part in parts)
        self._add(source, "text", label, whole, expression, after)

    def _text_label(self, expression: Expression, mode: int) -> str:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.REPETITION and operand[0] == pool.landmarks.get(CHARACTER):
            return "string" + _spell_bounds(operand[1], operand[2], "characters")
        facts = self._measures.facts(expression)
        if facts.texts is not None and facts.texts > _LISTED:
            return f"one of {facts.texts} texts"
        if mode == _OUTSIDE and facts.numeric:
            pattern = self._spelling.pattern(expression, 24)
            return f"number {pattern}" if pattern else "number"
        if kind == Kind.INTERSECTION and (taken := self._excluded(operand)):
            return f"text, but none of {taken} names"
        low = self._derivatives.length(expression)
        return self._spelling.pattern(expression) or f"text{_spell_bounds(low, None, 'bytes')}"

    def _excluded(self, parts: tuple[Expression, ...]) -> int | None:
        """How many texts an intersection leaves out, where it is one of all texts but those."""
        complements = [part for part in parts if self._pool.kinds[part] == Kind.COMPLEMENT]
        if len(parts) != 2 or len(complements) != 1:
            return None
        return self._measures.facts(self._pool.operands[complements[0]]).texts

    def _name(self, head: Expression) -> str:
        """Of a rule, whose body then is a node of its own, or of a set of items."""
        operand = self._pool.operands[head]
        if self._pool.kinds[head] == Kind.DISTINCT:
            items, _, low, high = operand
            return f"{low} to {high} of {len(items)} items, all different"
        if operand not in self._rules:
            if first_bytes(self._derivatives.row(head)) == _ANY_VALUE_FIRST:
                return "any JSON value"
            number = self._rules[operand] = len(self._rules) + 1
            start = self._node(self._pool.body(head), self._mode)
            if start is not None:
                self._nodes[start].rule = number
        return f"rule {self._rules[operand]}"

    def _apart(
        self, head: Expression, mode: int
    ) -> dict[Expression, tuple[Expression, Expression]]:
        """Of a union's members those that are a way of their own: rules and free text.

        Each with what it begins with and what comes after. Free text may spell what another
        member spells, too; a row would tell them apart byte by byte.
        """
        if self._pool.kinds[head] != Kind.UNION:
            return {}
        parts = {member: self._split(member) for member in self._pool.operands[head]}
        return {
            member: (first, rest)
            for member, (first, rest) in parts.items()
            if self._pool.kinds[first] in _BY_NAME or self._is_text(first, mode)
        }

    def _is_text(self, head: Expression, mode: int) -> bool:
        """Whether ``head`` is to be one choice: a number, or free text inside a string."""
        pool = self._pool
        if pool.kinds[head] in (Kind.LITERAL, Kind.EPSILON) or not pool.regular[head]:
            return False
        texts, numeric, quoted = self._measures.facts(head)
        if texts is not None:
            return texts > _LISTED
        if mode == _OUTSIDE:
            return numeric
        return mode == _PLAIN or (mode == _INSIDE and not quoted)

    def _split(self, expression: Expression) -> tuple[Expression, Expression]:
        if self._pool.kinds[expression] == Kind.CONCATENATION:
            head, tail = self._pool.operands[expression]
            return head, tail
        return expression, self._pool.epsilon


def _after(mode: int, text: bytes) -> int:
    """Where a state stands after ``text``."""
    if mode == _PLAIN:
        return mode
    for byte in text:
        if mode == _ESCAPED:
            mode = _INSIDE
        elif mode == _INSIDE:
            mode = {0x22: _OUTSIDE, 0x5C: _ESCAPED}.get(byte, _INSIDE)
        elif byte == 0x22:
            mode = _INSIDE
    return mode


def _spell_bounds(low: int, high: int | None, unit: str) -> str:
    if high is None or high >= INFINITE:
        return f" of {low} or more {unit}" if low else ""
    return f" of {low} {unit}" if low == high else f" of {low} to {high} {unit}"
