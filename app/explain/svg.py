"""The graph as SVG elements: circles are branch points, boxes are the ways from one to the next.

A box has a line for each way: the choice, then the leap, which costs no step of the model. The
command line writes the elements as a file, the page of the server puts them into its own drawing;
both colour them by their classes. Plain SVG 1.1; equal graphs give equal elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from app.explain.drawing import ADVANCE, HEAD, LINE, RADIUS, Box, Drawing, Route, State, more_text

_MARGIN = 24.0
_TOP = 74.0
"""Height of the title and the legend."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Code points that are no characters of XML 1.0 (section 2.2)."""

_STYLE = """
svg { font: 12px 'DejaVu Sans Mono', ui-monospace, Menlo, Consolas, monospace; }
text { fill: #222222; white-space: pre; }
.paper { fill: #fafafa; }
.heading { font-size: 14px; }
.frame { fill: #ffffff; stroke: #999999; }
.byte, .class { fill: #ffd9a8; }
.text { fill: #cfe3ff; }
.rule { fill: #e5d4f7; }
.fold { fill: #f3d9e6; }
.leap { fill: #cdeccd; }
.start { fill: #ffffff; }
.rim { fill: #ffffff; stroke: #444444; stroke-width: 1.4px; }
.dot { fill: #444444; }
.number { font-size: 10px; text-anchor: middle; }
.note { fill: #555555; }
.cut { fill: #777777; text-anchor: middle; }
.line { fill: none; stroke: #666666; stroke-width: 1.2px; }
.head { fill: #666666; }
.back .line { stroke: #b0563b; }
.back .head { fill: #b0563b; }
"""
_LEGEND = (
    ("byte", "decided byte"),
    ("text", "free text, number"),
    ("rule", "another rule"),
    ("fold", "folded value"),
    ("leap", "leap: forced bytes (· is a space)"),
)


Element = list[Any]
"""``[tag, attributes, text]`` or ``[tag, attributes, [element, ...]]``, as the JSON has it."""


def elements_of(drawing: Drawing) -> dict[str, list[Element]]:
    """A line and an arrow's head for each of the ``routes``, a frame and lines for each of the
    ``boxes``, a circle and a note for each of the ``states``.

    Routes, states and the lines of ways have ids: ``r0``, ``s0``, ``w0`` and so on.
    """
    nodes = drawing.graph.nodes
    return {
        "routes": [_route(route, number) for number, route in enumerate(drawing.routes)],
        "boxes": [_box(drawing, box) for box in drawing.boxes],
        "states": [_state(each, n, nodes[n].accepting) for n, each in enumerate(drawing.states)],
    }


def draw(drawing: Drawing, title: str) -> str:
    """An SVG document, with a title and a legend."""
    head = [_text(_MARGIN, 26, title, "heading")]
    x = _MARGIN
    for kind, name in _LEGEND:
        head += [_rect(f"run {kind}", x, 40, 14, 14, 3), _text(x + 19, 51, name)]
        x += 34 + len(name) * ADVANCE
    wide = max(drawing.width + 2 * _MARGIN, x, 2 * _MARGIN + len(title) * ADVANCE * 14 / 12)
    width, height = round(wide), round(drawing.height + _TOP + 2 * _MARGIN)
    place = f"translate({(wide - drawing.width) / 2:.0f} {_TOP + _MARGIN / 2:.0f})"
    root = {
        "xmlns": "http://www.w3.org/2000/svg",
        "width": width,
        "height": height,
        "viewBox": f"0 0 {width} {height}",
        "xml:space": "preserve",
    }
    inside = [
        ["title", {}, _NO_XML.sub("\ufffd", title)],
        ["style", {}, _STYLE],
        ["rect", {"class": "paper", "width": width, "height": height}, []],
        *head,
        ["g", {"transform": place}, [*chain.from_iterable(elements_of(drawing).values())]],
    ]
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_xml(["svg", root, inside])}\n'


def _xml(element: Element) -> str:
    tag, attributes, inside = element
    written = "".join([f" {name}={quoteattr(str(value))}" for name, value in attributes.items()])
    text = escape(inside) if isinstance(inside, str) else "".join(map(_xml, inside))
    whole = f"<{tag}{written}>{text}</{tag}>" if text else f"<{tag}{written}/>"
    return whole + "\n" if tag == "g" else whole


def _state(state: State, number: int, accepting: bool) -> Element:
    x, y = state.place.x, state.place.y
    inside = [["circle", {"class": "rim", "cx": x, "cy": y, "r": RADIUS - 2}, []]]
    if accepting:
        inside.append(["circle", {"class": "dot", "cx": x, "cy": y, "r": RADIUS - 6}, []])
    else:
        inside.append(_text(x, y + 3.5, str(number), "number"))
    if state.note:
        inside.append(_text(x + RADIUS + 3, y + 4, state.note, "note"))
    return ["g", {"id": f"s{number}", "class": "state"}, inside]


def _box(drawing: Drawing, box: Box) -> Element:
    left, top = box.place.x - box.width / 2, box.place.y - box.height / 2
    inside = [_rect("frame", left, top, box.width, box.height, 6)]
    y = top + 4
    for number in box.ways:
        way = drawing.ways[number]
        name = "way folded" if way.edge.kind == "fold" else "way"
        inside.append(["g", {"id": f"w{number}", "class": name}, _line(left + 5, y, way.runs)])
        y += LINE
    if box.more:
        inside.append(_text(left + 7, y + 14, more_text(box.more), "more"))
    if box.target is None:
        inside.append(_text(box.place.x, top + box.height + 14, "more, not drawn", "cut"))
    return ["g", {"class": "box"}, inside]


def _line(x: float, y: float, runs: Sequence[tuple[str, str]]) -> list[Element]:
    """The line of a way whose top is ``y``: a rectangle and a text for each run."""
    parts = []
    for text, kind in runs:
        wide = len(text) * ADVANCE + 4
        parts += [_rect(f"run {kind}", x, y + 2, wide, LINE - 4, 3), _text(x + 2, y + 14, text)]
        x += wide + 2
    return parts


def _route(route: Route, number: int) -> Element:
    """A smooth line through the points, with an arrow's head behind the last one."""
    points = [(_round(each.x), _round(each.y)) for each in route.points]
    path = f"M{points[0][0]} {points[0][1]}"
    for (a, b), (x, y) in pairwise(points):
        middle = _round((b + y) / 2)
        path += f" C{a} {middle} {x} {middle} {x} {y}"
    x, y = points[-1]
    head = f"M{_round(x - 4)} {y} h8 L{x} {_round(y + (-HEAD if route.back else HEAD))}Z"
    parts = [["path", {"class": "line", "d": path}, []], ["path", {"class": "head", "d": head}, []]]
    return ["g", {"id": f"r{number}", "class": "route back" if route.back else "route"}, parts]


def _rect(name: str, x: float, y: float, width: float, height: float, rx: int) -> Element:
    size = {"width": _round(width), "height": _round(height), "rx": rx}
    return ["rect", {"class": name, "x": _round(x), "y": _round(y), **size}, []]


def _text(x: float, y: float, text: str, name: str = "") -> Element:
    style = {"class": name} if name else {}
    return ["text", {**style, "x": _round(x), "y": _round(y)}, _NO_XML.sub("\ufffd", text)]


def _round(value: float) -> float:
    return round(value, 1)


def dot_text(drawing: Drawing, title: str) -> str:
    """The graph for Graphviz, which lays it out itself; names are those of the SVG file.

    Nodes are states, and an edge has a line for each way, as a box has.
    """
    lines = [
        f"digraph {_quoted(title)} {{",
        f"  label={_quoted(title)}; labelloc=t; rankdir=TB;",
        '  node [shape=circle, fontname="monospace", fontsize=10, style=filled];',
        '  edge [fontname="monospace", fontsize=10];',
    ]
    for number, state in enumerate(drawing.states):
        accepting = drawing.graph.nodes[number].accepting
        shape, fill = ("doublecircle", "#444444") if accepting else ("circle", "#ffffff")
        lines.append(
            f'  s{number} [label="{number}", xlabel={_quoted(state.note)}, shape={shape}, '
            f'fillcolor="{fill}"];'
        )
    for number, box in enumerate(drawing.boxes):
        target = f"s{box.target}"
        if box.target is None:
            target = f"cut{number}"
            lines.append(f'  {target} [label="more, not drawn", shape=plaintext, style=""];')
        lines.append(f"  s{box.source} -> {target} [label={_label(drawing, box)}];")
    return "\n".join([*lines, "}", ""])


def _label(drawing: Drawing, box: Box) -> str:
    """The choice of each way in angle brackets, then its leap; lines aligned to the left."""
    lines = []
    for number in box.ways:
        way = drawing.ways[number]
        lines.append(" ".join(filter(None, [way.choice and f"<{way.choice}>", way.leap])))
    if box.more:
        lines.append(more_text(box.more))
    return '"' + "".join(_escaped(line) + r"\l" for line in lines) + '"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """``text`` escaped for a quoted string of the DOT language, where backslashes escape."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
