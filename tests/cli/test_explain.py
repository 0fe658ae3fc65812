"""``leapjson explain``: the graph, its numbers and its drawing."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import app.demo
from app.__main__ import main
from app.constraint.program import compile_program
from app.core.errors import UnsupportedSchema
from app.core.specs import Choice, JsonSchema, Regex
from app.explain.drawing import HEAD, RADIUS, drawing_of, lay_out
from app.explain.exploring import Exploration
from app.explain.graph import Graph
from app.explain.keywords import keyword_uses
from app.explain.measures import Measures
from app.explain.picture import picture_of
from app.explain.svg import draw

CONTACT = {
    "title": "a <contact> & more",
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40, "description": "full name"},
        "status": {"enum": ["active", "paused", "closed"]},
        "nickname": {"type": "string", "format": "slug"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
        "address": {
            "type": "object",
            "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["zip"],
        },
    },
    "required": ["name", "status", "tags", "address"],
}
TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["value", "next"],
}


def graph_of(schema: Any, max_nodes: int = 400) -> Graph:
    program = compile_program(JsonSchema(schema, close_objects=True))
    return Exploration(program).graph(max_nodes)


def leaps(graph: Graph) -> set[bytes]:
    return {edge.leap for edge in graph.edges}


def test_the_graph_names_the_leaps_and_what_is_decided_before_them() -> None:
    graph = graph_of(CONTACT)
    assert graph.whole
    ways = {(edge.choice, edge.leap) for edge in graph.edges}
    assert {
        ("", b'{"name": "'),
        ("string of 0 to 40 characters", b'", "status": "'),
        ("a", b'ctive", "'),
        ("c", b'losed", "'),
        ("p", b'aused", "'),
        ("t", b'ags": ['),
        ("n", b'ickname": "'),
        ("string", b'", "tags": ['),
        ("]", b', "address": {"zip": "'),
        ("[0-9]{5}", b'"}}'),
    } <= ways


def test_items_of_an_array_come_back_to_one_branch_point() -> None:
    graph = graph_of({"type": "array", "items": {"type": "boolean"}, "maxItems": 1000})
    assert len(graph.nodes) < 8
    assert [node.repeats for node in graph.nodes if node.repeats] == ["0 to 999 times"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 100_000},
        {"type": "integer", "minimum": -(10**15), "maximum": 10**15},
        {"enum": [f"value {i}" for i in range(5_000)]},
        {"type": "string", "format": "email"},
        {"type": "string", "pattern": "^[ab]+$", "anyOf": [{"pattern": "^c+$"}, {"pattern": "a$"}]},
        TREE,
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
        {},
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True},
    ],
)
def test_the_graph_of_a_large_language_is_small(schema: Any) -> None:
    graph = graph_of(schema)
    assert graph.whole
    assert len(graph.nodes) < 40


def test_a_recursive_part_is_drawn_once_and_named_where_it_recurs() -> None:
    graph = graph_of(TREE)
    assert sum(node.rule is not None for node in graph.nodes) == 1
    assert "rule 1" in {edge.choice for edge in graph.edges}


def test_a_graph_over_its_limit_says_so() -> None:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "boolean"} for i in range(50)}}
    graph = graph_of(schema, max_nodes=20)
    assert len(graph.nodes) == 20
    assert not graph.whole
    assert any(edge.target is None for edge in graph.edges)


@pytest.mark.parametrize(
    "pattern", ["(ab|cd)+x", "a{2,4}b?", "(a|b|c){3}", "[ab]c|d", "abc", "(abc|abd|bbd)x*"]
)
def test_the_graph_of_a_pattern_spells_the_patterns_language(pattern: str) -> None:
    """Choices are patterns, too: Python's ``re`` matches texts along all paths of the graph."""
    graph = Exploration(compile_program(Regex(pattern)), json=False).graph(400)
    for text in map(
        "".join, itertools.chain(*(itertools.product("abcdx", repeat=n) for n in range(6)))
    ):
        assert walks(graph, 0, text) == bool(re.fullmatch(pattern, text)), text


def walks(graph: Graph, node: int | None, text: str) -> bool:
    assert node is not None
    if text == "" and graph.nodes[node].accepting:
        return True
    return any(
        walks(graph, edge.target, text[match.end() :])
        for edge in graph.nodes[node].edges
        for size in range(len(text) + 1)
        if (match := re.fullmatch(f"(?:{edge.choice}){re.escape(edge.leap.decode())}", text[:size]))
    )


@pytest.mark.parametrize(
    ("schema", "longest"),
    [
        ({"type": "string"}, None),
        ({"enum": ["a", "abc"]}, 5),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, 21),
        (TREE, None),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, len('{"a": null}')),
    ],
)  # fmt: skip
def test_the_longest_answer_is_known_or_unbounded(schema: Any, longest: int | None) -> None:
    program = compile_program(JsonSchema(schema, close_objects=True))
    assert Measures(program.derivatives).longest(program.root) == (longest, True)


def test_the_longest_of_a_choice_is_its_longest_option() -> None:
    program = compile_program(Choice(["a", "bcd", "ef"]))
    assert Measures(program.derivatives).longest(program.root) == (3, True)


def test_every_keyword_is_accounted_for() -> None:
    fates = {use.pointer: use.fate for use in keyword_uses(CONTACT)}
    assert fates["/title"] == fates["/properties/name/description"] == "annotation"
    assert fates["/properties/nickname/format"] == "not enforced"
    assert fates["/properties/address/properties/zip/pattern"] == "enforced"
    assert fates["/properties/name/maxLength"] == "enforced"


def test_a_keyword_for_another_type_has_no_effect_and_a_refused_one_is_marked() -> None:
    schema = {"type": "integer", "minLength": 3, "x-ui": 1, "a/b": 2, "minimum": 0}
    uses = {
        use.pointer: use for use in keyword_uses(schema, UnsupportedSchema("minimum", "/minimum"))
    }
    assert uses["/minLength"].fate == "no effect"
    assert uses["/minimum"].fate == "refused"
    assert uses["/x-ui"].fate == uses["/a~1b"].fate == "annotation"


def test_keywords_without_effect_at_their_place_are_reported() -> None:
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/x"}
    schemas: list[tuple[dict[str, Any], str]] = [
        ({**old, "minimum": 0, "definitions": {"x": True}}, "minimum"),
        ({"then": False}, "then"),
        ({"maxContains": 1}, "maxContains"),
        ({"items": {}, "additionalItems": False}, "additionalItems"),
    ]
    for schema, keyword in schemas:
        compile_program(JsonSchema(schema))
        assert {use.keyword: use.fate for use in keyword_uses(schema)}[keyword] == "no effect"


@pytest.mark.parametrize("schema", [CONTACT, TREE, {"const": 'a<&>"\u0001\x7f ü'}, {}])
def test_the_picture_is_well_formed_deterministic_and_shows_every_leap(schema: Any) -> None:
    graph = graph_of(schema)
    picture = draw(drawing_of(graph), "a <title> & more")
    assert picture == draw(drawing_of(graph), "a <title> & more")
    root = ElementTree.fromstring(picture.encode())
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "a <title> & more"
    for leap in leaps(graph):
        spelled = leap.decode().replace(" ", "·")
        if spelled.isprintable() and 0 < len(spelled) < 30:
            assert spelled in texts


def test_no_two_items_of_a_drawing_overlap() -> None:
    """A graph with branches that join again, a long edge and a loop."""
    edges = [(0, 1), (0, 2), (0, 5), (1, 3), (2, 3), (3, 4), (4, 1), (4, 5)]
    sizes = [(40.0 + 10 * item, 20.0) for item in range(6)]
    layout = lay_out(sizes, edges)
    for a, b in itertools.combinations(range(6), 2):
        across = abs(layout.places[a].x - layout.places[b].x) * 2 >= sizes[a][0] + sizes[b][0]
        down = abs(layout.places[a].y - layout.places[b].y) * 2 >= sizes[a][1] + sizes[b][1]
        assert across or down
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert (route[0], route[-1]) == (layout.places[source], layout.places[target])


def test_the_command_prints_figures_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, picture = tmp_path / "s.json", tmp_path / "o.svg"
    schema.write_text(json.dumps(CONTACT))
    assert main(["explain", "--schema", str(schema), "--svg", str(picture)]) == 0
    output = capsys.readouterr().out
    assert 'shortest answer  73 bytes: {"name": "", "status": "active"' in output
    assert "longest answer   unbounded" in output
    assert "not enforced: unknown format 'slug'" in output
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_the_command_prints_json_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "s.json"
    schema.write_text('{"const": [true, null]}')
    assert main(["explain", "--schema", str(schema), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["shortest"] == "[true, null]"
    assert report["shortest_forced_bytes"] == report["longest_bytes"] == report["leap_bytes"] == 12
    assert report["graph_forced_share"] == 1.0


def test_with_a_tokenizer_the_shortest_answer_is_counted_in_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "s.json"
    schema.write_text('{"const": true}')
    demo = Path(app.demo.__file__).parent / "weights"
    options = ["explain", "--schema", str(schema), "--json", "--tokenizer"]
    assert main([*options, str(demo)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert 1 <= report["shortest_tokens"] <= 4
    assert 1 <= report["first_mask_tokens"] <= 4
    assert main([*options, str(tmp_path / "none")]) == 2


def test_a_refused_schema_is_status_2_and_shows_which_keyword_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "s.json"
    schema.write_text('{"properties": {"a": {"$ref": "https://example.com/s.json"}}}')
    assert main(["explain", "--schema", str(schema)]) == 2
    shown = capsys.readouterr()
    assert "refused" in shown.out
    assert "/properties/a/$ref" in shown.err


def test_states_and_ways_of_the_picture_have_the_ids_of_the_json() -> None:
    drawing = drawing_of(graph_of(CONTACT))
    picture = ElementTree.fromstring(draw(drawing, "t").encode())
    ids = {element.get("id") for element in picture.iter()} - {None}
    told = picture_of(drawing)
    shown = {way for box in told["boxes"] for way in box["ways"]}
    routes = {f"r{number}" for number in range(len(told["routes"]))}
    assert ids == {state["id"] for state in told["states"]} | shown | routes
    assert shown == {way["id"] for way in told["ways"]}


def test_routes_lead_from_rim_to_rim() -> None:
    drawing = drawing_of(graph_of(TREE))
    assert {route.into for route in drawing.routes} == {True, False}
    for route in drawing.routes:
        box = drawing.boxes[route.box]
        assert box.target is not None
        node = drawing.states[box.source if route.into else box.target].place
        start, end = (node, box.place) if route.into else (box.place, node)
        half = [RADIUS, box.height / 2] if route.into else [box.height / 2, RADIUS]
        sign = -1 if route.back else 1
        assert route.points[0].y == pytest.approx(start.y + sign * half[0], abs=0.2)
        assert route.points[-1].y == pytest.approx(end.y - sign * (half[1] + HEAD), abs=0.2)
        assert (route.points[-1].y < route.points[0].y) == route.back


def test_the_command_writes_text_for_graphviz_and_opens_what_is_folded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, text = tmp_path / "s.json", tmp_path / "o.dot"
    schema.write_text(json.dumps({**CONTACT, "title": 'a "quoted" title'}))
    options = ["explain", "--schema", str(schema), "--dot", str(text), "--max-nodes", "9"]
    assert main(options) == 0
    assert f"for Graphviz: {text}" in capsys.readouterr().out
    folded = text.read_text(encoding="utf-8")
    assert folded.splitlines()[0] == 'digraph "a \\"quoted\\" title" {'
    assert "<array /properties/tags>" in folded
    assert main([*options, "--unfold", "/properties/tags"]) == 0
    opened = text.read_text(encoding="utf-8")
    assert "/properties/tags" not in opened
    states = set(re.findall(r"^  (s[0-9]+) .label", opened, re.MULTILINE))
    arrows = re.findall(r"^  (s[0-9]+) -> (s[0-9]+) .label", opened, re.MULTILINE)
    assert {end for arrow in arrows for end in arrow} <= states
    assert len(states) > 9


def test_an_answer_that_is_far_too_long_is_reported_and_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "array", "items": {"type": "null"}, "minItems": 10**9}))
    assert main(["explain", "--schema", str(schema)]) == 2
    assert "its shortest answer has 6,000,000,000 bytes" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "app", "explain", "--regex", "[ab]"]
    ran = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ran.stderr, ran.returncode) == (b"", 2)
