"""The graph as a picture: circles are branch points, boxes are the ways from one to the next.

A box has a line for each way: what is decided, then the leap, which costs no step of the model.
Plain SVG 1.1 with text in the reader's own monospace font; equal graphs give equal files.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from app.explain.graph import Edge, Graph
from app.explain.layout import Placed, lay_out
from app.explain.spelling import spell_bytes

_FONT = "'DejaVu Sans Mono', ui-monospace, Menlo, Consolas, monospace"
_SIZE = 12
_ADVANCE = 7.3
"""Width of a character; a little more than that of the fonts named."""
_LINE = 19.0
_MARGIN = 24.0
_HEAD = 74.0
"""Height of the title and the legend."""
_RADIUS = 13.0
_LINES = 14
"""Ways from one branch point to the same next one that get a line each."""
_LONGEST = 64
"""Characters of a line; longer leaps are cut in the middle."""

_FILLS = {
    "start": "#ffffff",
    "byte": "#ffd9a8",
    "class": "#ffd9a8",
    "text": "#cfe3ff",
    "rule": "#e5d4f7",
    "leap": "#cdeccd",
}
_LEGEND = (
    ("byte", "decided byte"),
    ("text", "free text, number"),
    ("rule", "another rule"),
    ("leap", "leap: forced bytes (· is a space)"),
)

_Run = tuple[str, str]
"""Text and the kind that colours it."""


def draw(graph: Graph, title: str) -> str:
    """An SVG document."""
    points = len(graph.nodes)
    groups: dict[tuple[int, int], list[Edge]] = {}
    for edge in graph.edges:
        target = edge.target
        if target is None:  # where the graph is cut: a point of its own
            target = points
            points += 1
        groups.setdefault((edge.source, target), []).append(edge)
    notes = [_note(graph, point) for point in range(points)]
    boxes = [_lines(edges) for edges in groups.values()]
    sizes = [(2 * _RADIUS + 2 * _ADVANCE * len(note), 2 * _RADIUS) for note in notes]
    sizes += map(_box_size, boxes)
    arrows = []
    for box, (source, target) in enumerate(groups, start=points):
        arrows += [(source, box), (box, target)]
    layout = lay_out(sizes, arrows)
    parts = [
        _route(route, sizes[target][1])
        for (_, target), route in zip(arrows, layout.routes, strict=True)
    ]
    for point, (note, place) in enumerate(zip(notes, layout.places, strict=False)):
        parts.append(_point(graph, point, note, place))
    parts += map(_box, boxes, layout.places[points:])
    return _document(title, parts, layout.width, layout.height)


def _note(graph: Graph, point: int) -> str:
    """What is written beside a branch point."""
    if point >= len(graph.nodes):
        return "more, not drawn"
    node = graph.nodes[point]
    notes = [f"rule {node.rule}"] if node.rule is not None else []
    if point == 0:
        notes.append("start")
    if node.repeats:
        notes.append(node.repeats)
    if node.accepting:
        notes.append("end" if not node.edges else "may end")
    return ", ".join(notes)


def _point(graph: Graph, point: int, note: str, place: Placed) -> str:
    if point >= len(graph.nodes):
        return _text(place.x, place.y + 4, note, anchor="middle", fill="#777777")
    circle = f'<circle cx="{place.x}" cy="{place.y}" r='
    text = circle + f'"{_RADIUS - 2}" fill="#ffffff" stroke="#444444" stroke-width="1.4"/>'
    if graph.nodes[point].accepting:
        text += circle + f'"{_RADIUS - 6}" fill="#444444"/>'
    else:
        text += _text(place.x, place.y + 3.5, str(point), anchor="middle", size=10)
    if note:
        text += _text(place.x + _RADIUS + 3, place.y + 4, note, fill="#555555")
    return text


def _lines(edges: list[Edge]) -> list[list[_Run]]:
    shown = edges if len(edges) <= _LINES else edges[: _LINES - 1]
    lines = [_line(edge) for edge in shown]
    if len(shown) < len(edges):
        lines.append([(f"... and {len(edges) - len(shown)} more", "start")])
    return lines


def _line(edge: Edge) -> list[_Run]:
    choice = edge.choice if edge.kind in ("text", "rule") else edge.choice.replace(" ", "·")
    choice = _shorten(choice, _LONGEST // 2)
    leap = _shorten(spell_bytes(edge.leap).replace(" ", "·"), _LONGEST - len(choice))
    runs: list[_Run] = [(choice, edge.kind)] if choice else []
    if leap:
        runs.append((leap, "leap"))
    return runs or [("(nothing)", "start")]


def _shorten(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def _box_size(lines: list[list[_Run]]) -> tuple[float, float]:
    longest = max(sum(len(text) * _ADVANCE + 6 for text, _ in line) for line in lines)
    return longest + 10, len(lines) * _LINE + 8


def _box(lines: list[list[_Run]], place: Placed) -> str:
    width, height = _box_size(lines)
    left, top = place.x - width / 2, place.y - height / 2
    parts = [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" '
        'fill="#ffffff" stroke="#999999"/>'
    ]
    for number, line in enumerate(lines):
        x, y = left + 5, top + 4 + number * _LINE
        for text, kind in line:
            wide = len(text) * _ADVANCE + 4
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 2:.1f}" width="{wide:.1f}" height="{_LINE - 4:.1f}" '
                f'rx="3" fill="{_FILLS[kind]}"/>'
            )
            parts.append(_text(x + 2, y + 14, text))
            x += wide + 2
    return "".join(parts)


def _route(route: list[Placed], height: float) -> str:
    """A smooth line through the points, with an arrow's head at the rim of the target."""
    start, end = route[0], route[-1]
    up = end.y < start.y
    last = Placed(end.x, end.y + (height / 2 + 7 if up else -height / 2 - 7))
    points = [*route[:-1], last]
    path = f"M{start.x:.1f} {start.y:.1f}"
    for a, b in pairwise(points):
        middle = (a.y + b.y) / 2
        path += f" C{a.x:.1f} {middle:.1f} {b.x:.1f} {middle:.1f} {b.x:.1f} {b.y:.1f}"
    tip = last.y + (-7 if up else 7)
    head = f"M{last.x - 4:.1f} {last.y:.1f} L{last.x + 4:.1f} {last.y:.1f} L{last.x:.1f} {tip:.1f}Z"
    colour = "#b0563b" if up else "#666666"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>'
        f'<path d="{head}" fill="{colour}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    fill: str = "#222222",
    size: int = _SIZE,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{fill}" xml:space="preserve">{escape(text)}</text>'
    )


def _document(title: str, parts: Iterable[str], inner: float, height: float) -> str:
    head = [_text(_MARGIN, 26, title, size=14)]
    x = _MARGIN
    for kind, name in _LEGEND:
        head.append(
            f'<rect x="{x:.1f}" y="40" width="14" height="14" rx="3" fill="{_FILLS[kind]}"/>'
        )
        head.append(_text(x + 19, 51, name))
        x += 34 + len(name) * _ADVANCE
    width = max(inner + 2 * _MARGIN, x, 2 * _MARGIN + len(title) * _ADVANCE * 14 / _SIZE)
    height += _HEAD + 2 * _MARGIN
    left, top = (width - inner) / 2, _HEAD + _MARGIN / 2
    body = "\n".join(parts)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family={quoteattr(_FONT)}>\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fafafa"/>\n'
        + "\n".join(head)
        + f'\n<g transform="translate({left:.0f} {top:.0f})">\n{body}\n</g>\n</svg>\n'
    )
