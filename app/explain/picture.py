"""The drawing of a constraint's graph as JSON, and walks over it, for the page."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from app.constraint.limits import Limits
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.graphs import GraphSpec, WalkSpec
from app.core.lru import GrowingLru
from app.core.specs import JsonSchema
from app.explain.drawing import Drawing, drawing_of
from app.explain.exploring import folded_graph
from app.explain.svg import dot_text, elements_of
from app.explain.walk import Resume, Walker

_STATE = re.compile(r"[0-9]{1,7}\.[0-9]{1,7}\.[0-9]{1,7}")
_NO_STATE = "the state does not belong to this text; leave it out"

_MOST_KEPT = 4
"""Graphs that a process keeps."""
_MOST_EXPRESSIONS = 200_000
"""Maximum expressions of their programs together, some 400 bytes each."""


def draw_graph(asked: GraphSpec, limits: Limits | None = None) -> bytes:
    """The picture as JSON; bounded by ``max_states``.

    Raises ``ConstraintError``. Cost: a compilation and a layout; not for a thread that others wait
    for.
    """
    drawing = drawing_of(_explored(asked, limits).graph)
    picture = picture_of(drawing)
    if asked.options.drawn:
        picture = with_elements(picture, drawing)
        picture["dot"] = dot_text(drawing, _title(asked.spec))
    return _json(picture)


def _title(spec: ConstraintSpec) -> str:
    """The title of a schema, "answer" where there is none."""
    schema = spec.schema if isinstance(spec, JsonSchema) else None
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) and title else "answer"


def walk_graph(asked: WalkSpec, limits: Limits | None = None) -> bytes:
    """The walk of a text over the ways of ``draw_graph``, as JSON.

    Raises ``ConstraintError``, and ``InvalidRequest`` where ``state`` is of no such walk. Cost:
    where this process has seen the graph lately, some microseconds for each character.
    """
    walker = _explored(asked.graph, limits).walker
    at = walker.start
    if asked.state is not None:
        if not _STATE.fullmatch(asked.state):
            raise InvalidRequest(_NO_STATE, param="state")
        at = Resume(*map(int, asked.state.split(".")))
    if not walker.can_resume(at, asked.text):
        raise InvalidRequest(_NO_STATE, param="state")
    walk = walker.walk(asked.text, at)
    steps = [
        {"way": f"w{step.way}", "start": step.start, "end": step.end, "leap": step.leap}
        for step in walk.steps
    ]
    resume = walk.resume
    return _json(
        {
            "steps": steps,
            "kept": at.steps,
            "at": f"s{walk.at}",
            "complete": walk.complete,
            "accepted": walk.accepted,
            "state": f"{resume.node}.{resume.offset}.{resume.steps}",
        }
    )


class _Explored:
    """A graph and its walker, with the expressions that walks add to."""

    def __init__(self, asked: GraphSpec, limits: Limits | None) -> None:
        self.graph, program = folded_graph(asked, limits)
        self.walker = Walker(self.graph, program.derivatives)
        self.pool = program.derivatives.pool


_explored_lately = GrowingLru[Hashable, _Explored](
    _MOST_EXPRESSIONS, lambda each: len(each.pool), most=_MOST_KEPT
)
"""Graphs of this process: a page walks over one graph many times a second."""


def _explored(asked: GraphSpec, limits: Limits | None) -> _Explored:
    options = replace(asked.options, drawn=False)  # walks are over the same graph
    key = type(asked.spec), asked.spec.cache_key(), options, limits
    explored = _explored_lately.get(key)
    if explored is None:
        explored = _Explored(asked, limits)
        _explored_lately.add(key, explored)
    return explored


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def picture_of(drawing: Drawing) -> dict[str, Any]:
    """The drawing as values of JSON."""
    return {
        "whole": drawing.graph.whole,
        "width": round(drawing.width, 1),
        "height": round(drawing.height, 1),
        "forced_share": round(drawing.graph.forced_share, 4),
        "states": [
            {
                "id": f"s{number}",
                "x": state.place.x,
                "y": state.place.y,
                "label": str(number),
                "note": state.note,
                "accepting": node.accepting,
                "repeats": node.repeats,
                "rule": node.rule,
                "pointer": node.pointer,
            }
            for number, (state, node) in enumerate(
                zip(drawing.states, drawing.graph.nodes, strict=True)
            )
        ],
        "ways": [
            {
                "id": f"w{number}",
                "source": f"s{way.edge.source}",
                "target": _name(way.edge.target),
                "kind": way.edge.kind,
                "choice": way.choice,
                "leap": way.leap,
                "pointer": way.edge.pointer,
                "open": way.edge.pointer if way.edge.kind == "fold" else None,
            }
            for number, way in enumerate(drawing.ways)
        ],
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
                "points": [[round(each.x, 1), round(each.y, 1)] for each in route.points],
                "back": route.back,
            }
            for route in drawing.routes
        ],
    }


def with_elements(picture: dict[str, Any], drawing: Drawing) -> dict[str, Any]:
    """``picture`` with the SVG element of each route, box and state beside its places."""
    return picture | {
        name: [part | {"svg": each} for part, each in zip(picture[name], elements, strict=True)]
        for name, elements in elements_of(drawing).items()
    }


def _name(state: int | None) -> str | None:
    return None if state is None else f"s{state}"
