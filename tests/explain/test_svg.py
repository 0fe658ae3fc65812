"""The elements of a drawing: the same in a file and for the page, and text is never markup."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from app.core.graphs import GraphOptions, GraphSpec
from app.core.specs import JsonSchema
from app.explain.drawing import drawing_of
from app.explain.exploring import folded_graph
from app.explain.picture import draw_graph
from app.explain.svg import draw

MARKUP = '<b onload="x">&amp;\\ \x00"'
SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "status": {"enum": ["active", MARKUP, "closed", *map(str, range(30))]},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["name", "status", "tags"],
}
SPEC = JsonSchema(SCHEMA, close_objects=True)


def elements_of(element: ElementTree.Element) -> list[Any]:
    """An element of a file, in the form that the JSON gives it."""
    told = {name: _number(value) for name, value in element.attrib.items()}
    inside = [elements_of(each) for each in element]
    return [element.tag.rpartition("}")[2], told, inside or element.text or []]


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def test_the_page_is_given_the_elements_of_the_file() -> None:
    options = GraphOptions(drawn=True)
    graph, _ = folded_graph(GraphSpec(SPEC, options))
    file = ElementTree.fromstring(draw(drawing_of(graph), MARKUP))
    picture = json.loads(draw_graph(GraphSpec(SPEC, options)))
    parts = [part["svg"] for name in ("routes", "boxes", "states") for part in picture[name]]
    assert [elements_of(each) for each in file[-1]] == parts
    assert {part[1].get("class") for part in parts} >= {"route", "route back", "box", "state"}
    assert picture["dot"].startswith('digraph "Order" {')


def test_no_text_of_a_schema_becomes_markup() -> None:
    graph, _ = folded_graph(GraphSpec(SPEC, GraphOptions()))
    root = ElementTree.fromstring(draw(drawing_of(graph), MARKUP))
    inside = list(root.iter())
    assert {each.tag.rpartition("}")[2] for each in inside} == {
        *("svg", "title", "style", "g", "rect", "circle", "path", "text")
    }
    assert not any(name.startswith("on") for each in inside for name in each.attrib)
    assert root.findtext("{http://www.w3.org/2000/svg}title") == MARKUP.replace("\x00", "\ufffd")
    assert "<b·onload=" in "".join(each.text or "" for each in inside)


def test_a_picture_without_elements_is_the_same_but_for_them() -> None:
    plain = json.loads(draw_graph(GraphSpec(SPEC, GraphOptions())))
    drawn = json.loads(draw_graph(GraphSpec(SPEC, GraphOptions(drawn=True))))
    assert drawn.pop("dot")
    for name in ("routes", "boxes", "states"):
        for part in drawn[name]:
            assert part.pop("svg")
    assert drawn == plain
