"""The graph as a picture: circles are branch points, boxes are the ways from one to the next.

A box has a line for each way: what is decided, then the leap, which costs no step of the model.
Plain SVG 1.1 with text in the reader's own monospace font; equal graphs give equal files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from app.explain.drawing import ADVANCE, HEAD, LINE, RADIUS, Box, Drawing, Route, more_text

_FONT = "'DejaVu Sans Mono', ui-monospace, Menlo, Consolas, monospace"
_SIZE = 12
_MARGIN = 24.0
_TOP = 74.0
"""Height of the title and the legend."""

_FILLS = {
    "start": "#ffffff",
    "byte": "#ffd9a8",
    "class": "#ffd9a8",
    "text": "#cfe3ff",
    "rule": "#e5d4f7",
    "fold": "#f3d9e6",
    "leap": "#cdeccd",
}
_LEGEND = (
    ("byte", "decided byte"),
    ("text", "free text, number"),
    ("rule", "another rule"),
    ("fold", "folded value"),
    ("leap", "leap: forced bytes (· is a space)"),
)


def draw(drawing: Drawing, title: str) -> str:
    """An SVG document. States and ways are elements with an id: ``s0``, ``w0`` and so on."""
    parts = list(map(_route, drawing.routes))
    parts += [_state(drawing, number) for number in range(len(drawing.states))]
    parts += [_box(drawing, box) for box in drawing.boxes]
    return _document(title, parts, drawing.width, drawing.height)


def _state(drawing: Drawing, number: int) -> str:
    state = drawing.states[number]
    place = state.place
    circle = f'<circle cx="{place.x}" cy="{place.y}" r='
    text = circle + f'"{RADIUS - 2}" fill="#ffffff" stroke="#444444" stroke-width="1.4"/>'
    if drawing.graph.nodes[number].accepting:
        text += circle + f'"{RADIUS - 6}" fill="#444444"/>'
    else:
        text += _text(place.x, place.y + 3.5, str(number), anchor="middle", size=10)
    if state.note:
        text += _text(place.x + RADIUS + 3, place.y + 4, state.note, fill="#555555")
    return f'<g id="s{number}">{text}</g>'


def _box(drawing: Drawing, box: Box) -> str:
    left, top = box.place.x - box.width / 2, box.place.y - box.height / 2
    parts = [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        'rx="6" fill="#ffffff" stroke="#999999"/>'
    ]
    y = top + 4
    for number in box.ways:
        line = _line(left + 5, y, drawing.ways[number].runs)
        parts.append(f'<g id="w{number}">{line}</g>')
        y += LINE
    if box.more:
        parts.append(_line(left + 5, y, [(more_text(box.more), "start")]))
    if box.target is None:
        below = top + box.height + 14
        parts.append(_text(box.place.x, below, "more, not drawn", anchor="middle", fill="#777777"))
    return "".join(parts)


def _line(x: float, y: float, runs: Sequence[tuple[str, str]]) -> str:
    parts = []
    for text, kind in runs:
        wide = len(text) * ADVANCE + 4
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 2:.1f}" width="{wide:.1f}" height="{LINE - 4:.1f}" '
            f'rx="3" fill="{_FILLS[kind]}"/>'
        )
        parts.append(_text(x + 2, y + 14, text))
        x += wide + 2
    return "".join(parts)


def _route(route: Route) -> str:
    """A smooth line through the points, with an arrow's head behind the last one."""
    points, last = route.points, route.points[-1]
    path = f"M{points[0].x:.1f} {points[0].y:.1f}"
    for a, b in pairwise(points):
        middle = (a.y + b.y) / 2
        path += f" C{a.x:.1f} {middle:.1f} {b.x:.1f} {middle:.1f} {b.x:.1f} {b.y:.1f}"
    tip = last.y + (-HEAD if route.back else HEAD)
    head = f"M{last.x - 4:.1f} {last.y:.1f} L{last.x + 4:.1f} {last.y:.1f} L{last.x:.1f} {tip:.1f}Z"
    colour = "#b0563b" if route.back else "#666666"
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
        x += 34 + len(name) * ADVANCE
    width = max(inner + 2 * _MARGIN, x, 2 * _MARGIN + len(title) * ADVANCE * 14 / _SIZE)
    height += _TOP + 2 * _MARGIN
    left, top = (width - inner) / 2, _TOP + _MARGIN / 2
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
