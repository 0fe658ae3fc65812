"""Values that would make a drawing too large are folded to one edge each, and can be opened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.constraint.program import compile_program
from app.core.graphs import GraphOptions, GraphSpec
from app.core.specs import Choice, JsonSchema, Regex
from app.explain.exploring import Exploration, folded_graph
from app.explain.graph import Graph
from app.explain.measures import Measures
from app.explain.walk import Walker
from tests.explain.test_walk import ANSWERS, PERSON, taken


def group(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


LARGE = {
    "type": "object",
    "properties": {
        "small": group("s"),
        "large": {
            "type": "object",
            "properties": {"inner": group(*"abcdefgh"), "beside": group(*"abcdefgh")},
            "required": ["inner", "beside"],
        },
        "list": {"type": "array", "items": group(*"abcdefgh")},
        "either": {"anyOf": [group(*"abcdefgh"), {"type": "null"}]},
    },
    "required": ["small", "large", "list", "either"],
}
SCHEMAS = [
    PERSON,
    LARGE,
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    {"type": "array", "items": {"enum": ["a", 1, None]}, "uniqueItems": True},
    {"type": "object", "properties": {"a": {}}, "minProperties": 3, "additionalProperties": {}},
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "multipleOf": 7}, "b": {"multipleOf": 2.5}},
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
    {"oneOf": [group("k", "a"), group("k", "b"), {"const": "c"}, {"type": "integer"}]},
    {"type": "object", "properties": {"quote": {"type": "string", "x-verbatim": True}}},
]


def closed(schema: Any) -> JsonSchema:
    return JsonSchema(schema, close_objects=True)


def drawn(schema: Any, *open: str, max_states: int = 400) -> Graph:
    return folded_graph(GraphSpec(closed(schema), GraphOptions(open, max_states)))[0]


def folds(graph: Graph) -> list[str | None]:
    return sorted({edge.pointer for edge in graph.edges if edge.kind == "fold"}, key=str)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_marks_change_nothing_in_a_graph_but_that_places_are_known(schema: Any) -> None:
    plain = Exploration(compile_program(closed(schema))).graph(400)
    marked = Exploration(compile_program(closed(schema), pointers=True)).graph(400)
    assert marked.whole
    assert len(marked.nodes) <= len(plain.nodes)
    assert {edge.leap for edge in marked.edges} == {edge.leap for edge in plain.edges}
    assert "" in {edge.pointer for edge in marked.edges}


@pytest.mark.parametrize("schema", SCHEMAS[:-1])
def test_marks_change_nothing_in_what_answers_may_be(schema: Any) -> None:
    few = {"type": "array", "items": {"pattern": "^[ab]$", "type": "string"}, "uniqueItems": True}
    both = {"type": "array", "items": schema, "maxItems": 2, "prefixItems": [few]}
    plain, marked = (compile_program(closed(both), pointers=each) for each in (False, True))
    for program in (plain, marked):
        assert program.derivatives.length(program.root) == 2
    lengths = [Measures(each.derivatives).longest(each.root) for each in (plain, marked)]
    assert lengths[0] == lengths[1]


def test_every_place_that_is_told_is_one_of_the_schema() -> None:
    graph = drawn(LARGE)
    assert graph.whole
    found = {edge.pointer for edge in graph.edges} | {node.pointer for node in graph.nodes}
    assert "/properties/large/properties/inner/properties/a" in found
    for pointer in found - {None}:
        assert pointer is not None
        value: Any = LARGE
        for token in pointer.split("/")[1:]:
            value = value[int(token)] if isinstance(value, list) else value[token]


def test_values_fold_where_all_is_too_large_and_the_outer_ones_that_fit_stay_open() -> None:
    assert folds(drawn(LARGE)) == []
    graph = drawn(LARGE, max_states=24)
    assert graph.whole
    assert len(graph.nodes) <= 24
    assert "/properties/large" not in folds(graph)
    assert "/properties/large/properties/beside" in folds(graph)
    assert "/properties/small" not in folds(graph)


def test_what_is_opened_is_drawn_and_folds_nothing_else() -> None:
    before = drawn(LARGE, max_states=24)
    beside = "/properties/large/properties/beside"
    after = drawn(LARGE, beside, max_states=24)
    assert folds(after) == [each for each in folds(before) if each != beside]
    assert len(after.nodes) > len(before.nodes)
    assert {e.pointer for e in after.edges} > {f"{beside}/properties/{name}" for name in "abcdefgh"}
    everything = drawn(LARGE, *map(str, folds(before)), max_states=24)
    assert folds(everything) == []
    assert len(everything.nodes) == len(drawn(LARGE).nodes)


def test_a_folded_value_is_one_step_of_a_walk() -> None:
    graph, program = folded_graph(GraphSpec(closed(LARGE), GraphOptions(max_states=24)))
    inside = dict.fromkeys("abcdefgh", 'x"}')
    answer = {
        "small": {"s": ""},
        "large": {"inner": inside, "beside": inside},
        "list": [inside, inside],
        "either": None,
    }
    text = json.dumps(answer)
    walker = Walker(graph, program.derivatives)
    walk = walker.walk(text, walker.start)
    assert walk.complete
    assert "".join(taken(walk, text)) == text
    values = [
        text[step.start : step.leap if step.leap is not None else step.end]
        for step in walk.steps
        if graph.edges[step.way].kind == "fold"
    ]
    assert values
    assert set(values) == {json.dumps(inside)}


@pytest.mark.parametrize("most", [4, 12, 40])
@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_walk_over_folded_graphs_as_over_whole_ones(answer: Any, most: int) -> None:
    graph, program = folded_graph(GraphSpec(closed(PERSON), GraphOptions(max_states=most)))
    walker = Walker(graph, program.derivatives)
    text = json.dumps(answer, ensure_ascii=False)
    walk = walker.walk(text, walker.start)
    if graph.whole:
        assert walk.complete
    assert "".join(taken(walk, text)) == text[: walk.accepted]


def test_a_large_object_is_cut_at_the_limit_and_soon() -> None:
    properties = {f"property_{i}": {"type": "boolean"} for i in range(1_000)}
    required = {"type": "object", "properties": properties, "required": list(properties)}
    for schema in (required, {"type": "object", "properties": properties}):
        graph = drawn(schema, max_states=100)
        assert not graph.whole
        assert 20 < len(graph.nodes) <= 100
        assert len(graph.edges) < 1_000


def test_what_is_no_schema_has_a_graph_without_places() -> None:
    for spec in (Regex("[ab]+c|d"), Choice(("ab", "cd"))):
        graph, _ = folded_graph(GraphSpec(spec, GraphOptions()))
        assert graph.whole
        assert {edge.pointer for edge in graph.edges} == {None}
