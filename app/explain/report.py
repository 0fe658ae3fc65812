"""Facts about a constraint as JSON: what ``leapjson explain`` prints and the server answers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from app.constraint.automaton.automaton import START, Automaton
from app.constraint.distinct.places import Places
from app.constraint.distinct.plans import Plans
from app.constraint.language.rows import at_once
from app.constraint.limits import Limits
from app.constraint.program import Program, compile_program
from app.core.errors import ConstraintTooComplex
from app.core.specs import JsonSchema
from app.explain.exploring import Exploration
from app.explain.graph import Graph
from app.explain.keywords import keyword_uses
from app.explain.measures import Measures
from app.explain.spelling import cut

_NODES = 60
_SPELLED_BYTES = 1 << 14
_MOST_BYTES = 1 << 24
"""Maximum bytes of a shortest answer that is traced."""
_ENTRIES = 400
"""Maximum entries of a list in a bounded report."""


def explain_schema(spec: JsonSchema, limits: Limits | None = None) -> bytes:
    """A bounded report on ``spec``, as JSON: below a megabyte, whatever the schema.

    Long texts end in ``...``, and ``whole`` says whether no list was cut. Raises
    ``ConstraintError``. Cost: a compilation and a graph; not for a thread that others wait for.
    """
    program = compile_program(spec, limits)
    graph = Exploration(program).graph(_NODES)
    uses = [asdict(use) for use in keyword_uses(spec.schema)]
    described = {"keywords": uses} | program_facts(program)
    report = length_facts(program) | graph_facts(graph) | described
    whole = graph.whole and all(len(report[name]) <= _ENTRIES for name in ("edges", "keywords"))
    bounded = {name: _bounded(value) for name, value in report.items()} | {"whole": whole}
    return json.dumps(bounded, ensure_ascii=False).encode("utf-8", "replace")


def length_facts(program: Program) -> dict[str, Any]:
    """The shortest and the longest answer, and the forced bytes of the shortest."""
    automaton = Automaton(program)
    if (length := automaton.length(START)) > _MOST_BYTES:
        raise ConstraintTooComplex(
            f"its shortest answer has {length:,} bytes; the limit is {_MOST_BYTES:,}"
        )
    shortest = automaton.shortest(START)
    if len(shortest) <= _SPELLED_BYTES:  # and, where items or names have to differ, they do
        places = Places(automaton, program.notation)
        shortest = at_once(Plans(places).completion(places.start())) or shortest
    longest, exact = Measures(program.derivatives).longest(program.root)
    state, position, forced, states = START, 0, 0, 1
    while position < len(shortest):
        path = automaton.forced(state)
        # A path ends where the answer may end, and so never beyond a shortest answer.
        step = path.text or shortest[position : position + 1]
        forced += len(path.text)
        state = automaton.step(state, step)
        position += len(step)
        states += 1
    return {
        "shortest": shortest.decode("utf-8", "replace"),
        "shortest_bytes": len(shortest),
        "longest_bytes": longest,
        "longest_is_exact": exact,
        "shortest_forced_bytes": forced,
        "shortest_states": states,
    }


def program_facts(program: Program) -> dict[str, Any]:
    """Keywords that are not enforced, or only in one of several readings."""
    relaxed, inexact = [
        [
            {"pointer": each.pointer, "keyword": each.keyword or None, "reason": each.reason}
            for each in program.relaxed
            if each.inexact is inexact
        ]
        for inexact in (False, True)
    ]
    return {"relaxed": relaxed, "inexact": inexact}


def graph_facts(graph: Graph) -> dict[str, Any]:
    """The graph's figures and its edges."""
    edges = graph.edges
    return {
        "branch_points": len(graph.nodes),
        "ways": len(edges),
        "leaps": sum(1 for edge in edges if edge.leap),
        "leap_bytes": sum(len(edge.leap) for edge in edges),
        "graph_forced_share": round(graph.forced_share, 4),
        "graph_is_whole": graph.whole,
        "edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "kind": edge.kind,
                "choice": edge.choice,
                "leap": edge.leap.decode("utf-8", "replace"),
            }
            for edge in edges
        ],
    }


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [_bounded(each) for each in value[:_ENTRIES]]
    if isinstance(value, dict):
        return {name: _bounded(each) for name, each in value.items()}
    return value
