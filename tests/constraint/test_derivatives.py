from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import (
    INFINITE,
    Expression,
    ExpressionPool,
    Kind,
    byte_range,
    byte_set,
)
from app.constraint.language.rows import TooMuchWork, at_once
from app.core.errors import ConstraintTooComplex
from tests.constraint.languages import UNIVERSE, Recipe, accepts, build, recipes, strings
from tests.wide import many


def measured(pool: ExpressionPool, max_search: int = 20_000) -> Derivatives:
    derivatives = Derivatives(pool, max_search)
    derivatives.measure()
    return derivatives


def contains(derivatives: Derivatives, expression: int, text: bytes) -> bool:
    """Whether ``text`` is in the language: a derivative for each byte, then nullability."""
    for byte in text:
        targets = [target for bits, target in derivatives.row(expression) if bits >> byte & 1]
        if not targets:
            return False
        (expression,) = targets
    return derivatives.pool.nullable[expression]


@given(recipes())
@settings(max_examples=many(300, 4))
def test_derivatives_agree_with_set_algebra_on_every_short_string(recipe: Recipe) -> None:
    pool = ExpressionPool()
    expression = build(pool, recipe)
    derivatives = measured(pool)
    expected = strings(recipe)
    assert {text for text in UNIVERSE if contains(derivatives, expression, text)} == expected
    for text in list(UNIVERSE)[:20]:
        assert accepts(pool, expression, text) == (text in expected)


def test_derivatives_along_optional_parts_count_as_work() -> None:
    pool = ExpressionPool()
    letters = [pool.literal(bytes([byte])) for byte in b"abcdefgh"]
    expression = pool.epsilon
    for number in range(4_000):
        expression = pool.concatenate(pool.optional(letters[number % 8]), expression)
    derivatives = measured(pool)
    derivatives.allow(1 << 40)
    assert derivatives.derivative_of(expression, ord("z")) == pool.empty
    assert derivatives.work >= 4_000
    derivatives.allow(100)
    with pytest.raises(TooMuchWork):
        derivatives.derivative_of(expression, ord("z"))


def test_intersections_are_counted_where_they_are_new() -> None:
    pool = ExpressionPool()
    words = [pool.literal(bytes([a, b, 0])) for a in range(60) for b in range(3)]
    others = [pool.literal(bytes([a, b, 1])) for a in range(60) for b in range(3)]
    both = pool.intersect([pool.complement(pool.union(words)), pool.complement(pool.union(others))])
    derivatives = measured(pool)
    before = len(pool)
    derivatives.allow(1 << 40)
    derivatives.row(both)
    assert derivatives.work >= len(pool) - before


@given(recipes())
@settings(max_examples=many(300, 4))
def test_the_shortest_string_is_in_the_language_and_nothing_is_shorter(recipe: Recipe) -> None:
    pool = ExpressionPool()
    expression = build(pool, recipe)
    derivatives = measured(pool)
    length = derivatives.length(expression)
    known = strings(recipe)
    if known:
        assert length <= min(len(text) for text in known)
    if length < INFINITE:
        text = derivatives.shortest(expression)
        assert len(text) == length
        assert contains(derivatives, expression, text)


def test_the_same_expression_built_twice_is_the_same_number() -> None:
    pool = ExpressionPool()
    letters = pool.byte(byte_range(97, 122))
    first = pool.concatenate(pool.literal(b"x"), pool.repeat(letters, 1, 5))
    second = pool.concatenate(pool.literal(b"x"), pool.repeat(letters, 1, 5))
    assert first == second


def test_adjacent_literals_become_one() -> None:
    pool = ExpressionPool()
    parts = [pool.literal(b'{"'), pool.concatenate(pool.literal(b"na"), pool.literal(b"me"))]
    assert pool.concatenate(*parts) == pool.literal(b'{"name')


def test_a_recursive_rule_has_the_length_of_its_way_out() -> None:
    pool = ExpressionPool()
    nested = pool.declare_rule()
    brackets = pool.concatenate(pool.literal(b"["), nested, pool.literal(b"]"))
    pool.define_rule(nested, pool.union([brackets, pool.literal(b"null")]))
    derivatives = measured(pool)
    assert derivatives.shortest(brackets) == b"[null]"
    assert contains(derivatives, nested, b"[" * 50 + b"null" + b"]" * 50)
    assert not contains(derivatives, nested, b"[[null]")


def test_a_rule_without_a_way_out_is_infinite() -> None:
    pool = ExpressionPool()
    endless = pool.declare_rule()
    pool.define_rule(endless, pool.concatenate(pool.literal(b"["), endless, pool.literal(b"]")))
    assert measured(pool).length(endless) == INFINITE


def test_a_left_recursive_rule_is_refused_and_not_looped_over() -> None:
    pool = ExpressionPool()
    left = pool.declare_rule()
    pool.define_rule(
        left, pool.union([pool.concatenate(left, pool.literal(b"a")), pool.literal(b"b")])
    )
    with pytest.raises(ConstraintTooComplex, match="left recursion"):
        measured(pool).row(left)


def test_an_intersection_that_nothing_satisfies_is_pruned_from_rows() -> None:
    pool = ExpressionPool()
    letters = pool.byte(byte_set(b"ab"))
    ends_in_a = pool.concatenate(pool.repeat(letters), pool.literal(b"a"))
    ends_in_b = pool.concatenate(pool.repeat(letters), pool.literal(b"b"))
    never = pool.intersect([ends_in_a, ends_in_b])
    derivatives = measured(pool)
    assert derivatives.length(never) == INFINITE
    either = pool.union([pool.concatenate(pool.literal(b"x"), never), pool.literal(b"y")])
    assert [bits for bits, _ in derivatives.live_row(either)] == [1 << ord("y")]


def far_apart(pool: ExpressionPool) -> list[Expression]:
    """Languages of texts with an "a" at a distance from the end, a different one in each."""
    letters = pool.byte(byte_set(b"ab"))
    return [
        pool.concatenate(pool.repeat(letters), pool.literal(b"a"), pool.repeat(letters, n, n))
        for n in range(3, 12)
    ]


def test_a_search_over_its_limit_is_an_error_while_a_program_is_compiled() -> None:
    pool = ExpressionPool()
    pool.intersect(far_apart(pool))
    with pytest.raises(ConstraintTooComplex, match="search"):
        measured(pool, max_search=20)


def test_within_an_answer_such_a_search_finds_nothing() -> None:
    pool = ExpressionPool()
    derivatives = measured(pool, max_search=20)
    assert not derivatives.is_alive(pool.intersect(far_apart(pool)))


@pytest.mark.parametrize("call", [Derivatives.is_alive, Derivatives.length])
def test_a_search_goes_on_where_it_was_left(call: Callable[[Derivatives, int], int]) -> None:
    derivatives, interrupted = measured(ExpressionPool()), measured(ExpressionPool())
    whole, left = (
        each.pool.intersect([each.pool.repeat(each.pool.literal(b"ab" * n), 1) for n in (7, 9, 11)])
        for each in (derivatives, interrupted)
    )
    derivatives.allow(1 << 40)
    found, turns = call(derivatives, whole), 0
    work = derivatives.work
    while True:
        turns += 1
        interrupted.allow(300)
        known = interrupted.learned
        try:
            assert call(interrupted, left) == found
            break
        except TooMuchWork:
            assert interrupted.learned > known
    assert turns > 20
    assert 300 * turns < 1.3 * work + 600
    interrupted.allow(1 << 40)
    assert interrupted.shortest(left) == derivatives.shortest(whole) == b"ab" * 693


def test_few_searches_are_kept_to_be_taken_up_again() -> None:
    derivatives = measured(ExpressionPool())
    pool = derivatives.pool
    for number in range(100):
        sizes = (7, 9, 11 + number)
        parts = [pool.repeat(pool.literal(b"ab" * size), 1) for size in sizes]
        derivatives.allow(100)
        with pytest.raises(TooMuchWork):
            derivatives.is_alive(pool.intersect(parts))
    assert 0 < len(derivatives._searches) <= 32


def test_a_repeated_text_is_not_written_where_it_is_far_too_long() -> None:
    pool = ExpressionPool()
    derivatives = measured(pool)
    expression = pool.repeat(pool.literal(b"0, "), 10**9, None)
    assert derivatives.length(expression) == 3 * 10**9
    derivatives.allow(320_000)
    with pytest.raises(TooMuchWork):
        derivatives.shortest(expression)
    derivatives.allow(320_000)
    assert derivatives.shortest(pool.repeat(pool.literal(b"0, "), 10**4, None)) == b"0, " * 10**4


def test_a_known_string_replaces_a_search() -> None:
    pool = ExpressionPool()
    derivatives = measured(pool, max_search=20)
    both = pool.intersect(far_apart(pool))
    at_once(derivatives.note_string(both, b"a" * 12))
    assert derivatives.is_alive(both)
    assert len(derivatives.shortest(both)) == 12
    assert derivatives.length(both) == 12


class Counted(list[int]):
    """A list that counts its reads."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


def test_a_way_along_many_parts_looks_at_each_a_few_times() -> None:
    pool = ExpressionPool()
    parts = [pool.union([pool.literal(b"ab%d" % n), pool.literal(b"c%d" % n)]) for n in range(600)]
    derivatives = measured(pool)
    root = pool.concatenate(*parts)
    text = b"".join(b"c%d" % n for n in range(600))
    pool.kinds = Counted(pool.kinds)
    at_once(derivatives.note_string(root, text))
    assert pool.kinds.reads < 60 * len(text)


def test_a_union_of_many_literals_splits_by_first_byte() -> None:
    pool = ExpressionPool()
    words = [f"{letter}{number}{letter}" for letter in "abcdef" for number in range(2_000)]
    root = pool.union([pool.literal(word.encode()) for word in words])
    assert len(measured(pool).row(root)) == 6


def test_expressions_and_derivatives_survive_pickling() -> None:
    pool = ExpressionPool()
    word = pool.concatenate(pool.literal(b"a"), pool.repeat(pool.byte(byte_set(b"bc")), 2, 3))
    copy = pickle.loads(pickle.dumps(measured(pool)))
    assert copy.shortest(word) in (b"abb", b"acc")
    assert copy.pool.literal(b"a") == pool.literal(b"a")
    assert contains(copy, word, b"abcb")


def test_too_many_nodes_are_an_error() -> None:
    pool = ExpressionPool(max_nodes=10)
    words = [str(number).encode() for number in range(20)]
    with pytest.raises(ConstraintTooComplex, match="10 expression nodes"):
        pool.union(map(pool.literal, words))


@settings(max_examples=many(200, 4))
@given(st.sets(st.binary(max_size=5).map(lambda data: bytes(97 + byte % 2 for byte in data))))
def test_one_of_holds_its_texts_and_no_others(texts: set[bytes]) -> None:
    pool = ExpressionPool()
    expression = pool.one_of(texts)
    candidates = {bytes(letters) for n in range(6) for letters in product(b"ab", repeat=n)}
    assert {text for text in candidates if accepts(pool, expression, text)} == texts


def test_a_derivative_of_many_texts_costs_one_place_and_not_all_of_them() -> None:
    pool = ExpressionPool()
    expression = pool.one_of(b"value number %d" % number for number in range(10_000))
    before = len(pool)
    derivatives = Derivatives(pool)
    for byte in b"value number 1":
        expression = derivatives.derivative(expression, byte)
    assert len(pool) - before < 1000


@settings(max_examples=many(100, 4))
@given(st.lists(st.tuples(st.text("ab", max_size=5), st.sampled_from("xyz")), max_size=60))
def test_a_union_of_many_texts_keeps_its_language_when_it_branches_on_first_bytes(
    pairs: list[tuple[str, str]],
) -> None:
    pool = ExpressionPool()
    many = [
        pool.concatenate(pool.literal(text.encode()), pool.repeat(pool.literal(end.encode()), 1, 2))
        for text, end in pairs
    ]
    derivatives = measured(pool)
    expression = pool.union(many)
    expected = {text + end * times for text, end in pairs for times in (1, 2)}
    assert all(contains(derivatives, expression, text.encode()) for text in expected)
    for text in ("".join(letters) for n in range(5) for letters in product("abxy", repeat=n)):
        assert contains(derivatives, expression, text.encode()) == (text in expected)


def test_a_long_literal_is_followed_without_copying_what_is_left_of_it() -> None:
    pool = ExpressionPool()
    expression = pool.literal(b"ab" * 50_000)
    derivatives = measured(pool)
    assert derivatives.length(expression) == 100_000
    assert derivatives.shortest(expression) == b"ab" * 50_000
    for byte in b"ab" * 1_000:
        expression = derivatives.derivative(expression, byte)
    assert derivatives.shortest(expression) == b"ab" * 49_000
    longest = max(len(pool.operands[e]) for e in range(len(pool)) if pool.kinds[e] == Kind.LITERAL)
    assert longest <= 256


def test_work_over_what_is_allowed_is_an_error_and_can_be_tried_again() -> None:
    pool = ExpressionPool()
    letters = pool.byte(byte_set(b"ab"))
    far = pool.concatenate(pool.repeat(letters), pool.literal(b"a"), pool.repeat(letters, 9, 9))
    both = pool.intersect([far, pool.complement(pool.literal(b"a" * 10))])
    derivatives = Derivatives(pool)
    derivatives.allow(10)
    with pytest.raises(ConstraintTooComplex, match="10 steps"):
        derivatives.length(both)
    derivatives.allow(10_000)
    shortest = derivatives.shortest(both)
    assert 0 < derivatives.work < 10_000
    assert len(shortest) == 10
    assert contains(derivatives, both, shortest)


@pytest.mark.parametrize("combine", ["union", "intersect"])
def test_long_members_that_begin_alike_are_combined_without_recursion(combine: str) -> None:
    pool = ExpressionPool()
    some = [pool.byte(byte_set(b"ab")), pool.byte(byte_set(b"bc"))]
    parts = [some[index % 2] for index in range(5_000)]
    members = [pool.concatenate(*parts, pool.literal(end)) for end in (b"x", b"y")]
    members.append(pool.concatenate(*parts, pool.byte(byte_set(b"xy"))))
    combined = getattr(pool, combine)(members[1:])
    derivatives = Derivatives(pool)
    derivatives.measure()
    assert derivatives.length(combined) == 5_001
    assert derivatives.shortest(combined)[-1:] in b"xy"


def test_the_length_of_a_long_concatenation_is_found_without_recursion() -> None:
    pool = ExpressionPool()
    letter = pool.byte(byte_set(b"ab"))
    derivatives = Derivatives(pool)
    derivatives.measure()
    long = pool.concatenate(*[letter] * 5_000)
    assert derivatives.length(long) == 5_000
    assert (
        derivatives.length(derivatives.derivative(pool.concatenate(letter, long), ord("a")))
        == 5_000
    )
    both = pool.intersect([pool.concatenate(letter, long), pool.complement(long)])
    assert derivatives.length(both) == 5_001


def test_a_rule_with_a_string_of_one_byte_has_length_one_unless_it_is_nullable() -> None:
    pool = ExpressionPool()
    value, none = pool.declare_rule(), pool.declare_rule(nullable=True)
    inside = pool.concatenate(pool.literal(b"["), value, pool.literal(b"]"))
    pool.define_rule(value, pool.union((pool.literal(b"0"), inside)))
    pool.define_rule(none, pool.union((pool.epsilon, pool.literal(b"0"), inside)))
    derivatives = Derivatives(pool)
    derivatives.measure()
    assert [derivatives.length(each) for each in (value, none, inside)] == [1, 0, 3]
