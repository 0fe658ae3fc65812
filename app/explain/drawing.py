"""The layout of a graph, for the SVG file, the JSON of the server and the page.

Circles are states, boxes are the ways from one state to the next, with a line for each: what is
decided, then the leap. Lengths are in pixels of a monospace font of 12 px.

The layout is a layered one, top down (Sugiyama, Tagawa and Toda 1981), and deterministic. Edges
that lead back up are turned round for the layering. An edge over several layers passes a bend in
each, which keeps boxes out of its way; edges to one item share theirs, so that there are no more
bends than items times layers however many edges there are. Horizontal places are weighted means of
those of neighbours, kept apart by isotonic regression (pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise

from app.explain.graph import Edge, Graph
from app.explain.spelling import spell_bytes

ADVANCE = 7.3
"""Width of a character; a little more than that of the fonts named."""
LINE = 19.0
"""Height of a line of a box."""
RADIUS = 13.0
"""Radius of a state, with its margin."""
HEAD = 7.0
"""Length of an arrowhead: a route ends this far from the rim of its target."""

_LINES = 14
"""Maximum lines of a box."""
_LONGEST = 64
"""Characters of a line; longer leaps are cut in the middle."""
_STRAIGHT = 4.0
"""Maximum sideways offset of a route that is drawn straight: boxes are farther away."""


@dataclass(frozen=True, slots=True)
class Way:
    """An edge of the graph with the texts of its line."""

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
    """The text beside it."""


@dataclass(frozen=True, slots=True)
class Box:
    place: Placed
    width: float
    height: float
    source: int
    target: int | None
    """None: beyond the limit of the graph."""
    ways: Sequence[int]
    """Numbers of the ways that have a line."""
    more: int
    """Number of ways without a line."""


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
    """Ways, by number of the edge."""
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
        texts = [ways[number].runs for number in lines]
        if more := len(numbers) - len(lines):
            texts.append([(more_text(more), "start")])
        longest = max(sum(len(text) * ADVANCE + 6 for text, _ in line) for line in texts)
        sizes.append((longest + 10, len(texts) * LINE + 8))
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
    """The last line of a box, for the ways that have no line."""
    return f"... and {count} more"


def _way(edge: Edge) -> Way:
    is_name = edge.kind in ("text", "rule", "fold")
    choice = edge.choice if is_name else edge.choice.replace(" ", "·")
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


def _trimmed(points: Sequence[Placed], first: float, last: float, *, back: bool) -> list[Placed]:
    """The route between the rims, ``first`` and ``last`` from the centres, without extra points."""
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


_BEND_WIDTH = 12.0
_GAP_ACROSS = 22.0
_GAP_DOWN = 24.0
_ROUNDS = 12
_STILL = 0.5
"""Movement below which another round makes no visible difference."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The centre of an item of the drawing."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    places: list[Placed]
    """Centres of the items."""
    routes: list[list[Placed]]
    """Points of each edge, from its source to its target, both included."""
    width: float
    height: float


def lay_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place items of the given widths and heights.

    Cost: about linear in items, edges and bends (one per layer for the target of a long edge).
    """
    items, back = len(sizes), _back_edges(len(sizes), edges)
    downwards = [(b, a) if number in back else (a, b) for number, (a, b) in enumerate(edges)]
    layer_of = _layers_of(items, downwards)
    chains = []
    bends: dict[tuple[int, int, bool], int] = {}
    for number, (upper, lower) in enumerate(downwards):  # both ends and the bends between them
        up, chain = number in back, [upper]
        for layer in range(layer_of[upper] + 1, layer_of[lower]):
            bend = bends.setdefault((upper if up else lower, layer, up), len(layer_of))
            if bend == len(layer_of):
                layer_of.append(layer)
            chain.append(bend)
        chains.append([*chain, lower])
    sizes = [*sizes, *[(_BEND_WIDTH, 0.0)] * (len(layer_of) - items)]
    widths = [width for width, _ in sizes]
    above: list[list[int]] = [[] for _ in sizes]
    below: list[list[int]] = [[] for _ in sizes]
    for upper, lower in dict.fromkeys(pair for chain in chains for pair in pairwise(chain)):
        below[upper].append(lower)
        above[lower].append(upper)
    layers: list[list[int]] = [[] for _ in range(max(layer_of) + 1)]
    for item, layer in enumerate(layer_of):
        layers[layer].append(item)
    _order(layers, above, below)
    x = _across(layers, above, below, widths)
    top, y = 0.0, [0.0] * len(sizes)
    for members in layers:
        height = max(sizes[item][1] for item in members)
        for item in members:
            y[item] = top + height / 2
        top += height + _GAP_DOWN
    left = min(centre - width / 2 for centre, width in zip(x, widths, strict=True))
    right = max(centre + width / 2 for centre, width in zip(x, widths, strict=True))
    places = [Placed(round(a - left, 1), round(b, 1)) for a, b in zip(x, y, strict=True)]
    routes = [
        [places[item] for item in (reversed(chain) if edge in back else chain)]
        for edge, chain in enumerate(chains)
    ]
    return Layout(places[:items], routes, right - left, top - _GAP_DOWN)


def _layers_of(items: int, downwards: Iterable[tuple[int, int]]) -> list[int]:
    """Layer of each item, below those of its predecessors."""
    above: dict[int, list[int]] = {item: [] for item in range(items)}
    for upper, lower in downwards:
        if upper != lower:
            above[lower].append(upper)
    layers = [0] * items
    for item in TopologicalSorter(above).static_order():
        layers[item] = max((layers[upper] + 1 for upper in above[item]), default=0)
    return layers


def _order(layers: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sort every layer by the mean place of its neighbours, down and up in turn."""
    place = [0.0] * len(above)
    for layer in layers:
        for index, item in enumerate(layer):
            place[item] = float(index)
    still = 0
    for turn in range(_ROUNDS):
        down = turn % 2 == 0
        near = above if down else below
        before = place.copy()
        for layer in layers if down else reversed(layers):
            if len(layer) == 1:
                continue
            key = {item: (_mean(place, near[item], item), place[item]) for item in layer}
            layer.sort(key=key.__getitem__)
            for index, item in enumerate(layer):
                place[item] = float(index)
        still = still + 1 if place == before else 0
        if still == 2:  # no change, down or up
            break


def _across(
    layers: list[list[int]], above: list[list[int]], below: list[list[int]], widths: Sequence[float]
) -> list[float]:
    """Horizontal centre of each item, near to those of its neighbours."""
    x = [0.0] * len(widths)
    for layer in layers:
        _spread(layer, [0.0] * len(layer), widths, x)
    around = [[*higher, *lower] for higher, lower in zip(above, below, strict=True)]
    for turn in range(2 * _ROUNDS):
        before = x.copy()
        for layer in layers if turn % 2 == 0 else reversed(layers):
            wanted = [_mean(x, around[item], item) for item in layer]
            _spread(layer, wanted, widths, x)
        if all(abs(now - then) < _STILL for now, then in zip(x, before, strict=True)):
            break
    return x


def _mean(values: Sequence[float], near: Sequence[int], item: int) -> float:
    """The mean value of the neighbours of ``item``, its own where it has none."""
    if len(near) == 1:
        return values[near[0]]
    return sum([values[other] for other in near]) / len(near) if near else values[item]


def _spread(
    layer: Sequence[int], wanted: Sequence[float], widths: Sequence[float], x: list[float]
) -> None:
    """Set ``x`` as near to ``wanted`` as the widths allow (least squares), in the same order."""
    if len(layer) == 1:
        x[layer[0]] = wanted[0]
        return
    gaps = ((widths[a] + widths[b]) / 2 + _GAP_ACROSS for a, b in pairwise(layer))
    offsets = list(accumulate(gaps, initial=0.0))
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, members = blocks.pop()
            mean = (mean * count + other * members) / (count + members)
            count += members
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    for item, mean, offset in zip(layer, means, offsets, strict=True):
        x[item] = mean + offset


def _back_edges(items: int, edges: Sequence[tuple[int, int]]) -> set[int]:
    """Edges that lead back to an ancestor in a depth-first walk."""
    leaving: list[list[int]] = [[] for _ in range(items)]
    for number, (source, _) in enumerate(edges):
        leaving[source].append(number)
    entered, left, back = set[int](), set[int](), set[int]()
    for root in range(items):
        if root in entered:
            continue
        entered.add(root)
        stack = [(root, iter(leaving[root]))]
        while stack:
            item, rest = stack[-1]
            for number in rest:
                target = edges[number][1]
                if target not in entered:
                    entered.add(target)
                    stack.append((target, iter(leaving[target])))
                    break
                if target not in left:
                    back.add(number)
            else:
                left.add(item)
                stack.pop()
    return back
