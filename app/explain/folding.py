"""The graph of a specification with what would make it too large folded, value by value."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Set

from app.constraint.language.expressions import Expression
from app.constraint.limits import Limits
from app.constraint.program import Program, compile_program
from app.core.graphs import MOST_STATES, GraphSpec
from app.core.specs import Choice, Regex
from app.explain.exploring import Exploration
from app.explain.graph import Graph

_MOST_LOOKED_INTO = 200
"""Values whose size is found out."""
_ANSWER = ""
"""The pointer to the whole, which is always open."""
_ENDS = 2
"""Nodes of the graph of a value alone that are there anyway: its start and its end."""


def folded_graph(asked: GraphSpec, limits: Limits | None = None) -> tuple[Graph, Program]:
    """The graph, and the program that its expressions are of.

    Where all of it is too large, the values that fit are open, outer ones first; and beside them
    those that are asked for, which fold no other one. What is still too large is cut. Raises
    ``ConstraintError``. Cost: some explorations of the program, each bounded.
    """
    program = compile_program(asked.spec, limits, pointers=True)
    options = asked.options
    exploration = Exploration(program, json=not isinstance(asked.spec, Regex | Choice))
    graph = exploration.graph(options.max_states)
    if graph.whole:
        return graph, program
    fitting = _fitting(exploration, options.max_states)
    opened = fitting | set(_with_outer(options.open))
    most = options.max_states if opened == fitting else MOST_STATES
    return exploration.graph(most, _all_but(opened)), program


def _fitting(exploration: Exploration, most: int) -> set[str]:
    """Pointers of the values that can be open in a graph of so many nodes."""
    opened = {_ANSWER}
    graph = exploration.graph(most, _all_but(opened))
    size, looked_into = len(graph.nodes), 0
    waiting = deque(_folds(graph))
    while graph.whole and waiting and looked_into < _MOST_LOOKED_INTO:
        pointer, value, times = waiting.popleft()
        if pointer in opened:
            continue
        looked_into += 1
        inside = exploration.graph(most, _all_but({pointer}), value)
        more = times * max(0, len(inside.nodes) - _ENDS)
        if inside.whole and size + more <= most:
            opened.add(pointer)
            size += more
            waiting.extend(_folds(inside))
    return opened


def _all_but(opened: Set[str]) -> Callable[[str], bool]:
    return lambda pointer: pointer not in opened


def _folds(graph: Graph) -> list[tuple[str, Expression, int]]:
    """Pointers and expressions of what is folded, and how often it is there."""
    found = [(edge.pointer, edge.decides) for edge in graph.edges if edge.kind == "fold"]
    return [
        (pointer, value, times)
        for (pointer, value), times in Counter(found).items()
        if pointer is not None
    ]


def _with_outer(pointers: Iterable[str]) -> Iterable[str]:
    """``pointers`` and those that lead there."""
    for pointer in pointers:
        while pointer:
            yield pointer
            pointer = pointer.rpartition("/")[0]
