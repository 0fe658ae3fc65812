"""The compressed automaton of a program as a bounded graph that people can read.

A node is a branch point: a state with more than one way on, or one in which the answer may
end. An edge is a choice and the leap after it: the forced bytes. One choice stands for each part
that would make the graph too large: the inside of a string, a number, one of many listed texts, a
reference to a rule, whose body is drawn once by itself, and a value that is folded. Items of longer
arrays come back to one node, which says how often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from app.constraint.language.expressions import Expression

ChoiceKind = Literal["start", "byte", "class", "text", "rule", "fold"]


@dataclass(frozen=True, slots=True)
class Edge:
    source: int
    target: int | None
    """None: beyond the limit of the graph."""
    kind: ChoiceKind
    choice: str
    """The label of the choice; "" at the start."""
    decided: int
    """Minimum bytes of the choice."""
    leap: bytes
    """The forced bytes that follow."""
    decides: Expression
    """The texts of the choice, in the program's pool."""
    pointer: str | None = None
    """JSON Pointer to the subschema of the choice, if known."""


@dataclass(slots=True)
class GraphNode:
    accepting: bool
    repeats: str = ""
    """Number of repetitions of the ways that lead back here, as text; "" if none do."""
    rule: int | None = None
    """The rule whose body starts here."""
    edges: list[Edge] = field(default_factory=list)
    pointer: str | None = None
    """JSON Pointer to the subschema of the innermost value being written here."""


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
        """Share of leaps in the bytes of the graph: each edge once, choices at their shortest."""
        leapt = sum(len(edge.leap) for edge in self.edges)
        decided = sum(edge.decided for edge in self.edges)
        return leapt / (leapt + decided) if leapt + decided else 0.0
