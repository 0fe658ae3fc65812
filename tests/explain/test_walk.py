"""The walk of a text over a graph: it accepts what the program accepts, and lists its edges."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from app.constraint.program import Program, compile_program
from app.core.constraint import ConstraintSpec
from app.core.specs import Grammar, JsonSchema, Regex
from app.explain.check import Checker
from app.explain.exploring import Exploration
from app.explain.graph import Graph
from app.explain.walk import Walk, Walker

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "nick": {"type": "string", "maxLength": 3},
        "age": {"type": "integer"},
        "state": {"enum": ["active", "paused", "äther", "ämter", 7, None]},
        "tags": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
        "at": {
            "anyOf": [
                {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                {"type": "null"},
            ]
        },
    },
    "required": ["name", "tags"],
}
ANSWERS = [
    {"name": "", "tags": []},
    {"name": 'Zoë "\\\n\u2028🙂', "age": -12, "state": "ämter", "tags": ["a", 1.5, "é"]},
    {"name": "n", "nick": "ünä", "state": None, "tags": [0], "at": {"x": 1e3}},
    {"name": "n", "tags": ["", "]}"], "at": None},
]


def walker_of(spec: ConstraintSpec, *, json: bool = True) -> tuple[Walker, Graph, Program]:
    program = compile_program(spec)
    graph = Exploration(program, json=json).graph(400)
    return Walker(graph, program.derivatives), graph, program


def taken(walk: Walk, text: str) -> list[str]:
    return [text[step.start : step.end] for step in walk.steps]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("whitespace", ["spaced", "indent:2"])
def test_an_answer_is_walked_to_its_end_and_its_steps_spell_it(
    answer: Any, whitespace: str
) -> None:
    walker, graph, _ = walker_of(JsonSchema(PERSON, close_objects=True, whitespace=whitespace))
    indent = 2 if whitespace == "indent:2" else None
    text = json.dumps(answer, ensure_ascii=False, indent=indent)
    walk = walker.walk(text, walker.start)
    assert (walk.complete, walk.accepted) == (True, len(text))
    assert "".join(taken(walk, text)) == text
    edges = graph.edges
    here = 0
    for step in walk.steps:
        edge = edges[step.way]
        assert edge.source == here
        leap = edge.leap.decode("utf-8", "ignore")  # a leap may begin inside a character
        assert text[: step.end].endswith(leap)
        if step.leap is not None:
            assert len(leap) <= step.end - step.leap <= len(leap) + 1
        assert edge.target is not None
        here = edge.target
    assert here == walk.at


def test_a_resumed_walk_equals_one_from_the_start() -> None:
    walker, _, _ = walker_of(JsonSchema(PERSON, close_objects=True))
    source = random.Random(5)
    for answer in ANSWERS:
        text = json.dumps(answer, ensure_ascii=False)
        for _ in range(20):
            cuts = sorted(source.sample(range(len(text) + 1), 3))
            steps: list[tuple[int, int, int | None, int]] = []
            at = walker.start
            for cut in [*cuts, len(text)]:
                walk = walker.walk(text[:cut], at)
                new = [(step.way, step.start, step.leap, step.end) for step in walk.steps]
                steps = steps[: at.steps] + new
                whole = walker.walk(text[:cut], walker.start)
                assert [(s.way, s.start, s.leap, s.end) for s in whole.steps] == steps
                assert (walk.at, walk.complete) == (whole.at, whole.complete)
                at = walk.resume
            assert at.offset == len(text)


def test_an_invalid_text_is_walked_up_to_its_error() -> None:
    """The walk ends where ``check`` finds the error, as counts do not matter here."""
    spec = JsonSchema(PERSON, close_objects=True)
    walker, _, program = walker_of(spec)
    checker = Checker(program, PERSON)
    source = random.Random(7)
    for _ in range(300):
        text = json.dumps(source.choice(ANSWERS), ensure_ascii=False)
        place = source.randrange(len(text))
        text = text[:place] + source.choice('"x,{]7é\ud800') + text[place + source.randrange(2) :]
        walk = walker.walk(text, walker.start)
        verdict = checker.check(text.encode("utf-8", "surrogatepass"))
        read = text.encode("utf-8", "surrogatepass")[: verdict.offset].decode("utf-8", "ignore")
        assert walk.accepted == len(read), text
        assert walk.complete == verdict.valid


@pytest.mark.parametrize(
    "pattern", ["(a|b)+abb?", "a*a*b", "(ab|a)(c|bc)d*", "x{2,5}y|x+", "ä+b?|äc"]
)
def test_a_pattern_of_which_several_ways_spell_a_beginning_is_walked_by_the_right_one(
    pattern: str,
) -> None:
    walker, _, _ = walker_of(Regex(pattern), json=False)
    source = random.Random(3)
    found = 0
    for _ in range(4_000):
        text = "".join(source.choices("aabbcdxä", k=source.randrange(6)))
        walk = walker.walk(text, walker.start)
        matches = re.fullmatch(pattern, text) is not None
        found += matches
        assert walk.complete == matches, text
        if matches:
            assert "".join(taken(walk, text)) == text
    assert found > 10


def test_a_rule_is_one_step_however_deep_it_goes() -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    }
    walker, graph, _ = walker_of(JsonSchema(schema, close_objects=True))
    text = '{"next": ' * 50 + "null" + "}" * 50
    walk = walker.walk(text, walker.start)
    assert walk.complete
    assert [graph.edges[step.way].kind for step in walk.steps] == ["start", "rule"]
    assert taken(walk, text) == ['{"next": ', text[9:]]


def test_a_grammar_is_walked_as_a_schema_is() -> None:
    grammar = 'start: "if " NAME (" and " NAME)* " then " NAME\nNAME: /[a-z]+/'
    walker, _, _ = walker_of(Grammar(grammar))
    walk = walker.walk("if a and b then c", walker.start)
    assert (walk.complete, walk.accepted) == (True, 17)
    assert not walker.walk("if a and b the", walker.start).complete


def test_a_walk_ends_where_the_picture_was_cut() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"type": "boolean"} for i in range(40)},
        "required": [f"p{i}" for i in range(40)],
    }
    program = compile_program(JsonSchema(schema, close_objects=True))
    graph = Exploration(program).graph(10)
    text = json.dumps({f"p{i}": True for i in range(40)})
    walker = Walker(graph, program.derivatives)
    walk = walker.walk(text, walker.start)
    assert not walk.complete
    assert 20 < walk.accepted < len(text)
