"""A graph with its places: what the SVG file, the JSON of the server and a page draw alike.

Circles are states, boxes are the ways from one state to the next, with a line for each: what is
decided, then the leap. Lengths are in pixels of a monospace font of 12 px.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.explain.graph import Edge, Graph
from app.explain.layout import Placed, lay_out
from app.explain.spelling import spell_bytes

ADVANCE = 7.3
"""Width of a character; a little more than that of the fonts named."""
LINE = 19.0
"""Height of a line of a box."""
RADIUS = 13.0
"""Of a state, with the room around it."""
HEAD = 7.0
"""Length of an arrow's head: so far from a rim a route into something ends."""

_LINES = 14
"""Ways from one state to the same next one that get a line each."""
_LONGEST = 64
"""Characters of a line; longer leaps are cut in the middle."""
_STRAIGHT = 4.0
"""A route that goes no further to the side than so is drawn straight: boxes are farther away."""


@dataclass(frozen=True, slots=True)
class Way:
    """An edge of the graph as it is written."""

    edge: Edge
    choice: str
    leap: str

    @property
    def runs(self) -> list[tuple[str, str]]:
        """Its line: texts, each with the kind that colours it."""
        runs = [(self.choice, str(self.edge.kind))] if self.choice else []
        if self.leap:
            runs.append((self.leap, "leap"))
        return runs or [("(nothing)", "start")]


@dataclass(frozen=True, slots=True)
class State:
    place: Placed
    note: str
    """What is written beside it."""


@dataclass(frozen=True, slots=True)
class Box:
    place: Placed
    width: float
    height: float
    source: int
    target: int | None
    """None: beyond the limit of the graph."""
    ways: Sequence[int]
    """Numbers of those that have a line."""
    more: int
    """How many have none."""


@dataclass(frozen=True, slots=True)
class Route:
    """A line between a state and a box, from rim to rim, with room for an arrow's head."""

    box: int
    into: bool
    """Whether it leads into the box, else out of it."""
    points: Sequence[Placed]
    back: bool
    """Whether it goes up."""


@dataclass(frozen=True, slots=True)
class Drawing:
    graph: Graph
    ways: Sequence[Way]
    """By the number of the edge."""
    states: Sequence[State]
    boxes: Sequence[Box]
    routes: Sequence[Route]
    width: float
    height: float


def drawing_of(graph: Graph) -> Drawing:
    """The drawing of ``graph``; equal graphs have equal ones. Cost: that of ``lay_out``."""
    ways = [_way(edge) for edge in graph.edges]
    groups: dict[tuple[int, int | None], list[int]] = {}
    for number, way in enumerate(ways):
        groups.setdefault((way.edge.source, way.edge.target), []).append(number)
    notes = [_note(graph, number) for number in range(len(graph.nodes))]
    sizes = [(2 * RADIUS + 2 * ADVANCE * len(note), 2 * RADIUS) for note in notes]
    shown = [each if len(each) <= _LINES else each[: _LINES - 1] for each in groups.values()]
    for numbers, lines in zip(groups.values(), shown, strict=True):
        sizes.append(_box_size([ways[number] for number in lines], len(numbers) - len(lines)))
    arrows: list[tuple[int, int]] = []
    for item, (source, target) in enumerate(groups, start=len(notes)):
        arrows.append((source, item))
        if target is not None:
            arrows.append((item, target))
    layout = lay_out(sizes, arrows)
    places = layout.places
    boxes = [
        Box(places[item], *sizes[item], source, target, lines, len(numbers) - len(lines))
        for item, ((source, target), numbers, lines) in enumerate(
            zip(groups, groups.values(), shown, strict=True), start=len(notes)
        )
    ]
    routes = []
    for (start, end), points in zip(arrows, layout.routes, strict=True):
        into = end >= len(notes)
        back = points[-1].y < points[0].y
        trimmed = _trimmed(points, sizes[start][1] / 2, sizes[end][1] / 2 + HEAD, back=back)
        routes.append(Route((end if into else start) - len(notes), into, trimmed, back))
    states = [State(place, note) for place, note in zip(places, notes, strict=False)]
    return Drawing(graph, ways, states, boxes, routes, layout.width, layout.height)


def more_text(count: int) -> str:
    """What a box says of so many ways that have no line."""
    return f"... and {count} more"


def _way(edge: Edge) -> Way:
    choice = edge.choice
    if edge.kind not in ("text", "rule", "fold"):
        choice = choice.replace(" ", "·")
    choice = _shorten(choice, _LONGEST // 2)
    leap = _shorten(spell_bytes(edge.leap).replace(" ", "·"), _LONGEST - len(choice))
    return Way(edge, choice, leap)


def _note(graph: Graph, number: int) -> str:
    node = graph.nodes[number]
    notes = [f"rule {node.rule}"] if node.rule is not None else []
    if number == 0:
        notes.append("start")
    if node.repeats:
        notes.append(node.repeats)
    if node.accepting:
        notes.append("end" if not node.edges else "may end")
    return ", ".join(notes)


def _shorten(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def _box_size(ways: Sequence[Way], more: int) -> tuple[float, float]:
    lines = [way.runs for way in ways]
    if more:
        lines.append([(more_text(more), "start")])
    longest = max(sum(len(text) * ADVANCE + 6 for text, _ in line) for line in lines)
    return longest + 10, len(lines) * LINE + 8


def _trimmed(points: Sequence[Placed], first: float, last: float, *, back: bool) -> list[Placed]:
    """From rim to rim, ``first`` and ``last`` away from the centres, without needless points."""
    start, end = points[0], points[-1]
    if back:
        first, last = -first, -last
    kept = [Placed(start.x, start.y + first)]
    for here, after in pairwise(points[1:]):
        x = kept[-1].x
        if abs(x - here.x) > _STRAIGHT:
            kept.append(here)
        elif abs(x - after.x) > _STRAIGHT:
            kept.append(Placed(x, here.y))
    return [*kept, Placed(end.x, end.y - last)]
