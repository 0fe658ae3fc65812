"""The graph as SVG elements: circles are branch points, boxes are the ways from one to the next.

A box has a line for each way: the choice, then the leap, which costs no step of the model. The
command line writes the elements as a file, the page of the server puts them into its own drawing;
both colour them by their classes. Plain SVG 1.1; equal graphs give equal elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from app.explain.drawing import (
    ADVANCE,
    HEAD,
    LINE,
    RADIUS,
    Box,
    Drawing,
    Route,
    State,
    more_text,
)

_MARGIN = 24.0
_TOP = 74.0
"""Height of the title and the legend."""
_RUN = LINE - 4
"""Height of the rectangle behind a text."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 (section 2.2) has no characters for."""

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


Attributes = dict[str, str | float]


@dataclass(frozen=True, slots=True)
class Element:
    tag: str
    attributes: Attributes
    inside: str | Sequence[Element] = ()

    def json(self) -> list[Any]:
        """``[tag, attributes, text]`` or ``[tag, attributes, [element, ...]]``."""
        inside = self.inside
        given = inside if isinstance(inside, str) else [each.json() for each in inside]
        return [self.tag, self.attributes, given]

    def xml(self) -> str:
        told = "".join(f" {name}={quoteattr(str(it))}" for name, it in self.attributes.items())
        if isinstance(self.inside, str):
            inside = escape(self.inside)
        else:
            inside = "".join(each.xml() for each in self.inside)
        text = f"<{self.tag}{told}>{inside}</{self.tag}>" if inside else f"<{self.tag}{told}/>"
        return text + "\n" if self.tag == "g" else text


def routes_of(drawing: Drawing) -> list[Element]:
    """By route its line and arrow's head; ids ``r0``, ``r1`` and so on."""
    return [_route(route, number) for number, route in enumerate(drawing.routes)]


def boxes_of(drawing: Drawing) -> list[Element]:
    """By box its frame and lines. A way that has a line is a group with its id: ``w0`` ..."""
    return [_box(drawing, box) for box in drawing.boxes]


def states_of(drawing: Drawing) -> list[Element]:
    """By state its circle and note; ids ``s0``, ``s1`` and so on."""
    nodes = drawing.graph.nodes
    return [
        _state(state, number, nodes[number].accepting)
        for number, state in enumerate(drawing.states)
    ]


def draw(drawing: Drawing, title: str) -> str:
    """An SVG document, with a title and a legend."""
    head: list[Element] = [_text(_MARGIN, 26, title, "heading")]
    x = _MARGIN
    for kind, name in _LEGEND:
        box: Attributes = {"x": _round(x), "y": 40, "width": 14, "height": 14, "rx": 3}
        head += [Element("rect", {"class": f"run {kind}", **box}), _text(x + 19, 51, name)]
        x += 34 + len(name) * ADVANCE
    wide = max(drawing.width + 2 * _MARGIN, x, 2 * _MARGIN + len(title) * ADVANCE * 14 / 12)
    width, height = round(wide), round(drawing.height + _TOP + 2 * _MARGIN)
    place = f"translate({(wide - drawing.width) / 2:.0f} {_TOP + _MARGIN / 2:.0f})"
    parts = [*routes_of(drawing), *boxes_of(drawing), *states_of(drawing)]
    root: Attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "width": width,
        "height": height,
        "viewBox": f"0 0 {width} {height}",
        "xml:space": "preserve",
    }
    document = Element(
        "svg",
        root,
        [
            Element("title", {}, _NO_XML.sub("\ufffd", title)),
            Element("style", {}, _STYLE),
            Element("rect", {"class": "paper", "width": width, "height": height}),
            *head,
            Element("g", {"transform": place}, parts),
        ],
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{document.xml()}\n'


def _state(state: State, number: int, accepting: bool) -> Element:
    place = state.place
    circle: Attributes = {"cx": place.x, "cy": place.y}
    inside = [Element("circle", {"class": "rim", **circle, "r": RADIUS - 2})]
    if accepting:
        inside.append(Element("circle", {"class": "dot", **circle, "r": RADIUS - 6}))
    else:
        inside.append(_text(place.x, place.y + 3.5, str(number), "number"))
    if state.note:
        inside.append(_text(place.x + RADIUS + 3, place.y + 4, state.note, "note"))
    return Element("g", {"id": f"s{number}", "class": "state"}, inside)


def _box(drawing: Drawing, box: Box) -> Element:
    left, top = box.place.x - box.width / 2, box.place.y - box.height / 2
    size: Attributes = {"width": _round(box.width), "height": _round(box.height)}
    at: Attributes = {"x": _round(left), "y": _round(top), "rx": 6}
    inside = [Element("rect", {"class": "frame", **at, **size})]
    y = top + 4
    for number in box.ways:
        way = drawing.ways[number]
        name = "way folded" if way.edge.kind == "fold" else "way"
        runs = _runs(left + 5, y, way.runs)
        inside.append(Element("g", {"id": f"w{number}", "class": name}, runs))
        y += LINE
    if box.more:
        inside.append(_text(left + 7, y + 14, more_text(box.more), "more"))
    if box.target is None:
        inside.append(_text(box.place.x, top + box.height + 14, "more, not drawn", "cut"))
    return Element("g", {"class": "box"}, inside)


def _runs(x: float, y: float, runs: Sequence[tuple[str, str]]) -> list[Element]:
    """The line of a way whose top is ``y``: a rectangle and a text for each run."""
    parts = []
    for text, kind in runs:
        wide = len(text) * ADVANCE + 4
        at: Attributes = {"x": _round(x), "y": _round(y + 2)}
        size: Attributes = {"width": _round(wide), "height": _RUN, "rx": 3}
        parts += [
            Element("rect", {"class": f"run {kind}", **at, **size}),
            _text(x + 2, y + 14, text),
        ]
        x += wide + 2
    return parts


def _route(route: Route, number: int) -> Element:
    """A smooth line through the points, with an arrow's head behind the last one."""
    points, last = route.points, route.points[-1]
    path = f"M{_round(points[0].x)} {_round(points[0].y)}"
    for a, b in pairwise(points):
        middle = _round((a.y + b.y) / 2)
        path += f" C{_round(a.x)} {middle} {_round(b.x)} {middle} {_round(b.x)} {_round(b.y)}"
    x, y = _round(last.x), _round(last.y)
    head = f"M{_round(x - 4)} {y} h8 L{x} {_round(y + (-HEAD if route.back else HEAD))}Z"
    return Element(
        "g",
        {"id": f"r{number}", "class": "route back" if route.back else "route"},
        [
            Element("path", {"class": "line", "d": path}),
            Element("path", {"class": "head", "d": head}),
        ],
    )


def _text(x: float, y: float, text: str, name: str = "") -> Element:
    told: Attributes = {"class": name} if name else {}
    at: Attributes = {"x": _round(x), "y": _round(y)}
    return Element("text", told | at, _NO_XML.sub("\ufffd", text))


def _round(value: float) -> float:
    return round(value, 1)
