"""A pruned pool has the same language, and no expressions that it does not need."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys

import pytest

from app.constraint.json.decimals import number
from app.constraint.json.multiples import integer
from app.constraint.json.ranges import Interval
from app.constraint.json.text import (
    CHARACTER,
    SPELLED_ONCE,
    SPELLINGS,
    JsonText,
    character,
    json_pool,
    spelled_once,
)
from app.constraint.language.expressions import ExpressionPool
from app.constraint.language.rewriting import pruned
from app.constraint.limits import Limits
from app.constraint.program import Program, build, compile_program
from app.core.constraint import ConstraintSpec
from app.core.specs import JsonSchema, Regex
from tests.constraint.walks import Walker

TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "below": {"$ref": "#"}},
    "required": ["name"],
}
SPECS: dict[str, ConstraintSpec] = {
    "a rule": JsonSchema(TREE),
    "different items": JsonSchema({"items": {"enum": [1, 2, "a"]}, "uniqueItems": True}),
    "a complement": JsonSchema({"type": "string", "not": {"pattern": "^a+$"}}),
    "free names": JsonSchema({"type": "object", "properties": {"a": {"type": "null"}}}),
    "counts": JsonSchema({"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
    "no JSON": Regex("[a-f]{2,4}|x*y"),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_pruned_pool_has_the_same_language(name: str) -> None:
    pool, root = build(SPECS[name])
    before, after = Walker(pool, root), Walker(*pruned(pool, root))
    rng = random.Random(name)
    for _ in range(40):
        assert after.accepts(before.sample(rng))
        assert before.accepts(after.sample(rng))


@pytest.mark.parametrize("name", SPECS)
def test_pruning_again_changes_nothing(name: str) -> None:
    once, root = pruned(*build(SPECS[name]))
    twice, same = pruned(once, root)
    assert (len(twice), same) == (len(once), root)


def test_a_program_names_the_characters_that_it_has() -> None:
    strings = compile_program(JsonSchema({"type": "string"}))
    numbers = compile_program(JsonSchema({"type": "integer"}))
    names = compile_program(JsonSchema({"properties": {"a": True}}))
    for json in (strings, numbers, names):
        found = [json.derivatives.pool.landmarks[name] for name in SPELLINGS]
        assert list(json.characters) == found
    bare = compile_program(Regex("a*"))
    assert bare.characters == (None, None)


def test_pools_that_begin_alike_grow_apart() -> None:
    one, other = json_pool(1_000), json_pool(2_000)
    size = len(other)
    one.literal(b"only here")
    assert len(one) == size + 1
    assert len(other) == size
    assert (one.max_nodes, other.max_nodes) == (1_000, 2_000)
    for pool in (one, other):
        assert (character(pool), spelled_once(pool)) == (
            pool.landmarks[CHARACTER],
            pool.landmarks[SPELLED_ONCE],
        )


def test_a_new_pool_has_the_expressions_that_most_schemas_need() -> None:
    pool = json_pool(100_000)
    size = len(pool)
    text = JsonText(pool, Limits())
    built = [
        text.any_value(),
        number(pool, Interval(), Limits()),
        integer(pool, Interval(), Limits()),
    ]
    assert len(pool) == size
    fewer = Limits(integer_digits=3)
    other = JsonText(pool, fewer).any_value()
    assert other not in built
    assert Walker(pool, built[0]).accepts("12345")
    assert not Walker(pool, other).accepts("12345")


def test_a_pool_builds_the_same_before_and_after_pickling() -> None:
    pool = ExpressionPool()
    letters = pool.repeat(pool.byte(0b110 << 0x60))
    root = pool.union((letters, pool.literal(b"abba")))
    again: ExpressionPool = pickle.loads(pickle.dumps(pool))
    assert root == letters
    assert again.union((letters, again.literal(b"abba"))) == letters


@pytest.mark.parametrize("name", SPECS)
def test_a_pickled_program_is_read_as_it_was(name: str) -> None:
    program = compile_program(SPECS[name])
    again: Program = pickle.loads(pickle.dumps(program))
    one, other = program.derivatives, again.derivatives
    for what in ("kinds", "operands", "nullable", "regular", "bodies", "index", "landmarks"):
        assert getattr(one.pool, what) == getattr(other.pool, what), what
    everything = range(len(one.pool))
    assert list(map(one.length, everything)) == list(map(other.length, everything))
    assert (again.root, again.characters) == (program.root, program.characters)


def test_a_pickle_leaves_out_what_every_process_has() -> None:
    program = compile_program(JsonSchema({"type": "array"}))
    pool = program.derivatives.pool
    own = len(pool) - pool.num_shared
    assert len(pickle.dumps(program)) < 1_000 + 50 * own
    again: Program = pickle.loads(pickle.dumps(program))
    assert again.derivatives.pool.base is pool.base is not None


def test_processes_begin_alike_whatever_their_hashes_are() -> None:
    show = (
        "from app.constraint.json.text import json_pool;"
        "pool = json_pool(9999); print(pool.kinds, pool.operands, pool.bodies, pool.landmarks)"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", show],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1
    assert shown != {b""}
