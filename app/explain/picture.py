"""The picture of a constraint's graph as JSON: states, ways, and where a page draws them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from app.constraint.limits import Limits
from app.constraint.program import compile_program
from app.core.graphs import GraphSpec
from app.core.specs import Choice, Regex
from app.explain.drawing import Drawing, drawing_of
from app.explain.graph import explore
from app.explain.layout import Placed


def draw_graph(asked: GraphSpec, limits: Limits | None = None) -> bytes:
    """The picture as JSON; bounded by ``max_states``.

    Raises ``ConstraintError``. Cost: a compilation and a layout; not for a thread that others wait
    for.
    """
    program = compile_program(asked.spec, limits)
    bare = isinstance(asked.spec, Regex | Choice)
    graph = explore(program, json=not bare, max_nodes=asked.options.max_states)
    told = picture_of(drawing_of(graph))
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def picture_of(drawing: Drawing) -> dict[str, Any]:
    """The drawing as values of JSON."""
    graph = drawing.graph
    return {
        "whole": graph.whole,
        "width": round(drawing.width, 1),
        "height": round(drawing.height, 1),
        "forced_share": round(graph.forced_share, 4),
        "states": list(_states(drawing)),
        "ways": list(_ways(drawing)),
        "boxes": [
            {
                "x": box.place.x,
                "y": box.place.y,
                "width": round(box.width, 1),
                "height": round(box.height, 1),
                "source": f"s{box.source}",
                "target": _name(box.target),
                "ways": [f"w{number}" for number in box.ways],
                "more": box.more,
            }
            for box in drawing.boxes
        ],
        "routes": [
            {
                "box": route.box,
                "end": "in" if route.into else "out",
                "points": _points(route.points),
                "back": route.back,
            }
            for route in drawing.routes
        ],
    }


def _states(drawing: Drawing) -> Iterable[dict[str, Any]]:
    for number, (state, node) in enumerate(zip(drawing.states, drawing.graph.nodes, strict=True)):
        yield {
            "id": f"s{number}",
            "x": state.place.x,
            "y": state.place.y,
            "label": str(number),
            "note": state.note,
            "accepting": node.accepting,
            "repeats": node.repeats,
            "rule": node.rule,
            "pointer": None,
        }


def _ways(drawing: Drawing) -> Iterable[dict[str, Any]]:
    for number, way in enumerate(drawing.ways):
        yield {
            "id": f"w{number}",
            "source": f"s{way.edge.source}",
            "target": _name(way.edge.target),
            "kind": way.edge.kind,
            "choice": way.choice,
            "leap": way.leap,
            "pointer": None,
            "open": None,
        }


def _name(state: int | None) -> str | None:
    return None if state is None else f"s{state}"


def _points(points: Iterable[Placed]) -> list[list[float]]:
    return [[round(point.x, 1), round(point.y, 1)] for point in points]
