from __future__ import annotations

import pytest
from hypothesis import given, settings

from app.constraint.automaton.automaton import START, Automaton
from app.constraint.automaton.trie import DEAD
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression, ExpressionPool, byte_set
from app.constraint.program import Program
from app.core.errors import ConstraintTooComplex
from tests.constraint.languages import UNIVERSE, Recipe, build, recipes, strings
from tests.wide import many


def automaton_of(pool: ExpressionPool, root: Expression, max_states: int = 500_000) -> Automaton:
    derivatives = Derivatives(pool)
    derivatives.measure()
    return Automaton(Program(root, derivatives), max_states)


def colours(pool: ExpressionPool) -> Expression:
    words = [pool.literal(b'{"colour": "' + word + b'"}') for word in (b"red", b"rose", b"blue")]
    return pool.union(words)


@given(recipes())
@settings(max_examples=many(200, 4))
def test_stepping_through_expressions_and_through_tables_agree(recipe: Recipe) -> None:
    pool = ExpressionPool()
    root = build(pool, recipe)
    derivatives = Derivatives(pool)
    derivatives.measure()
    if derivatives.length(root) >= INFINITE:
        return
    automaton = Automaton(Program(root, derivatives))
    expected = strings(recipe)
    for text in UNIVERSE:
        by_expression = automaton.step(START, text)
        by_table = START
        for byte in text:
            automaton.expand(by_table)
            row = int(automaton.rows[by_table])
            by_table = int(automaton.transitions[row, byte]) if by_table != DEAD else DEAD
        assert by_expression == by_table
        assert (by_table != DEAD and automaton.is_accepting(by_table)) == (text in expected)


def test_the_forced_path_runs_to_the_first_branch() -> None:
    pool = ExpressionPool()
    automaton = automaton_of(pool, colours(pool))
    path = automaton.forced(START)
    assert path.text == b'{"colour": "'
    assert path.end == automaton.step(START, path.text)
    assert automaton.forced(path.end).text == b""
    after_r = automaton.step(path.end, b"r")
    assert automaton.forced(after_r).text == b""
    assert automaton.forced(automaton.step(after_r, b"o")).text == b'se"}'


def test_a_forced_path_stops_where_the_text_may_end() -> None:
    pool = ExpressionPool()
    root = pool.union([pool.literal(b"ab"), pool.literal(b"abcd")])
    automaton = automaton_of(pool, root)
    path = automaton.forced(START)
    assert path.text == b"ab"
    assert automaton.is_accepting(path.end)
    assert not automaton.is_final(path.end)
    assert automaton.forced(path.end).text == b""
    assert automaton.is_final(automaton.step(START, b"abcd"))


def test_a_forced_path_costs_no_table_rows() -> None:
    pool = ExpressionPool()
    automaton = automaton_of(pool, colours(pool))
    automaton.step(automaton.forced(START).end, b"blue")
    assert not (automaton.rows >= 0).any()


def test_too_many_states_are_an_error() -> None:
    pool = ExpressionPool()
    letters = pool.byte(byte_set(b"ab"))
    automaton = automaton_of(pool, pool.repeat(letters, 0, 100), max_states=10)
    texts = [b"a" * size for size in range(1, 50)]
    with pytest.raises(ConstraintTooComplex, match="10 states"):
        [automaton.step(START, text) for text in texts]
