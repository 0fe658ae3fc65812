"""Walks end valid within their budget; ``python -m tests.conformance.walks`` does more of them."""

from __future__ import annotations

import json
import random
from functools import cache

import jsonschema
import numpy as np
import pytest

from app.constraint import Compiler
from app.core.errors import DrawAgain
from app.core.specs import JsonSchema
from app.text import Vocabulary
from tests.conformance.walks import BruteForce, Report, instruments, walks
from tests.e2e.schemas import random_schema
from tests.wide import many
from tools import datasets

PIECES = [
    b'{"', b'": ', b'", "', b'"}', b'": "', b"na", b"name", b"12", b"[]", b'["', b'"]', b", ",
    b"null", b"}}", b'"a', b'a"', b"\\u", b"\\ud83d", b"\xf0\x9f", "é".encode(), b"-0", b"0.",
    b"T1",
]  # fmt: skip


@cache
def small() -> tuple[Vocabulary, Compiler, BruteForce]:
    """All single bytes, tokens that cross the borders of JSON syntax, one end of sequence."""
    singles = [bytes([byte]) for byte in range(256)]
    vocabulary = Vocabulary([*singles, *PIECES, None], eos_ids=[256 + len(PIECES)])
    return vocabulary, Compiler(vocabulary), BruteForce(vocabulary)


def test_every_walk_over_random_schemas_ends_valid_within_its_budget() -> None:
    vocabulary, compiler, check = small()
    total = Report()
    seeds = many(30, 3)
    for seed in range(seeds):
        schema = random_schema(random.Random(seed))
        total.add(walks(vocabulary, compiler, schema, seed, times=6, check=check))
    assert total.failures == []
    assert total.counts["walks"] == 6 * seeds
    assert total.counts["masks compared"] == 3 * seeds


UNIQUE_PARTS = {
    "names": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 20},
    "many names": {
        "type": "object",
        "additionalProperties": {"type": "null"},
        "minProperties": 300,
    },
    "integers": {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 30,
        "uniqueItems": True,
    },
    "many texts": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 300,
        "uniqueItems": True,
    },
    "a ranking": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 70},
        "minItems": 70,
        "uniqueItems": True,
    },
    "all of a list": {
        "type": "array",
        "items": {"enum": [f"option {number}" for number in range(30)]},
        "minItems": 30,
        "uniqueItems": True,
    },
    "objects in a list": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "minProperties": 9,
        },
        "minItems": 5,
    },
}


@pytest.mark.parametrize("name", UNIQUE_PARTS)
@pytest.mark.parametrize("tokens", ["small", "gpt2"])
def test_the_number_of_tokens_needed_is_a_sufficient_budget(name: str, tokens: str) -> None:
    schema = UNIQUE_PARTS[name]
    vocabulary, compiler, _ = small() if tokens == "small" else instruments(tokens)
    constraint = compiler.compile(JsonSchema(schema))
    needed = constraint.start().shortest_tokens(3)
    state, dice = constraint.start(), random.Random(1)
    assert needed > 3
    assert state.shortest_tokens(needed) <= needed
    answer = bytearray()
    for left in range(needed, max(needed - 60, 0), -1):
        while True:
            mask = np.unpackbits(state.mask(budget=left).view(np.uint8), bitorder="little")
            token = int(dice.choice(np.flatnonzero(mask)))
            try:
                state.accept(token, budget=left - 1)
            except DrawAgain:
                continue
            break
        answer += vocabulary.token_bytes[token] or b""
        if token in vocabulary.eos_ids:
            break
    else:
        assert state.fits(left - 1)
        answer += state.shortest_completion()
    jsonschema.validate(json.loads(answer), schema)


def test_the_budget_reported_for_a_very_long_answer_is_sufficient() -> None:
    for size in (70_000, 400_000):
        schema = JsonSchema({"type": "string", "minLength": size})
        start = small()[1].compile(schema).start()
        assert start.shortest_tokens(100) == size + 2
        assert start.shortest_tokens(size + 2) <= size + 2


@pytest.mark.parametrize("name", datasets.tokenizers())
def test_walks_over_maskbench_end_valid_within_their_budget(name: str) -> None:
    cases = datasets.maskbench(count=12, seed=len(name))
    vocabulary, compiler, check = instruments(name)
    total = Report()
    for seed, case in enumerate(cases):
        total.add(walks(vocabulary, compiler, case["schema"], seed, times=2, check=check))
        total.add(walks(vocabulary, compiler, case["schema"], seed + 100, times=many(6, 2)))
    assert total.failures == []
    assert total.counts["masks compared"] >= 9
