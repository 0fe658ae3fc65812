"""Patterns with bounds on characters, counted words, and texts after heads."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest

from app.constraint import Compiler, JsonSchema
from app.constraint.constraint import CompiledConstraint
from app.text import Vocabulary
from tests.conformance.walks import BruteForce, tokens_of
from tests.constraint.test_masks import small_vocabulary

WORDS = [b"a b", b"word", b" of", b' x"', b"aaaa", b'."', b". ", b"\xc3\xa9 "]


@cache
def vocabulary() -> Vocabulary:
    few = small_vocabulary()
    tokens = [*few.token_bytes[:-1], *WORDS, None]
    return Vocabulary(tokens, eos_ids=[len(tokens) - 1])


@cache
def compiler() -> Compiler:
    return Compiler(vocabulary())


def words(most: int, longest: int, *, fewest: int = 0, shortest: int = 0) -> dict[str, Any]:
    """A string with bounds on its number of words and of characters."""
    pattern = rf"^(?:\S+\s+){{{fewest},{most - 1}}}\S+$"
    return {"type": "string", "pattern": pattern, "maxLength": longest, "minLength": shortest}


def object_of(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


SMALL = {
    "few words": object_of(a=words(4, 12)),
    "many words": object_of(a=words(90, 9)),
    "long words": object_of(a=words(3, 400)),
    "least words": object_of(a=words(6, 20, fewest=3)),
    "least characters": object_of(a=words(5, 16, shortest=7)),
    "words that hardly fit": object_of(a=words(6, 12, fewest=5)),
    "least of both": object_of(a=words(9, 24, fewest=4, shortest=15)),
    "no most characters": object_of(
        a={"type": "string", "pattern": r"^(?:[a-z]+ ){0,3}[a-z]+$", "minLength": 6}
    ),
    "fours": object_of(
        a={"type": "string", "pattern": "^(?:[a-z]{3} )*$", "minLength": 6, "maxLength": 9}
    ),
    "a look ahead": object_of(
        a={"type": "string", "pattern": r"^(?=.*x)(?:\S+\s+){1,4}\S+$", "maxLength": 9}
    ),
    "some character": {
        "type": "object",
        "patternProperties": {r"\w{1,3}": {"type": "boolean"}},
        "additionalProperties": {"type": "null"},
    },
    "long least": object_of(a=words(90, 900, shortest=40)),
    "a bound that ends inside": object_of(
        a={"type": "string", "pattern": "^(ab|éà)+c$", "maxLength": 6}
    ),
    "two patterns": object_of(
        a={"allOf": [words(5, 30), {"type": "string", "pattern": r"^[^.]*\.[^.]*$"}]}
    ),
    "names": {
        "type": "object",
        "properties": {"name": {"type": "integer"}, "al": {"type": "boolean"}},
        "additionalProperties": {"type": "string", "maxLength": 2},
    },
    "patterns of names": {
        "type": "object",
        "patternProperties": {"^[a-z]{1,7}$": words(3, 8), "^A": {"enum": ["a b", "a c"]}},
        "additionalProperties": False,
    },
    "lists": {"type": "array", "items": words(3, 8), "minItems": 1, "maxItems": 3},
}


@pytest.mark.parametrize("name", SMALL)
def test_masks_are_those_of_brute_force(name: str) -> None:
    tokens, check = vocabulary(), BruteForce(vocabulary())
    rng = random.Random(name)
    constraint = compiler().compile(JsonSchema(SMALL[name]))
    for _ in range(3):
        state = constraint.start()
        for _ in range(25):
            here = constraint.automaton.expression(state.state_id)
            language = tokens_of(constraint.masks.mask(state.state_id))  # ignores names seen
            assert set(language.tolist()) == check.tokens(constraint.automaton.derivatives, here)
            token = int(rng.choice(tokens_of(state.mask())))
            if token in tokens.eos_ids:
                break
            state.accept(token)


@pytest.mark.parametrize("name", SMALL)
def test_any_budget_that_suffices_is_kept(name: str) -> None:
    tokens = vocabulary()
    constraint = compiler().compile(JsonSchema(SMALL[name]))
    rng = random.Random(name)
    for spare in (0, 1, 7, 30):
        state = constraint.start()
        budget = state.shortest_tokens() + spare
        while budget:
            token = int(rng.choice(tokens_of(state.mask(budget=budget))))
            if token in tokens.eos_ids:
                break
            state.accept(token)
            budget -= 1
        assert state.is_complete


LARGE = {
    "99 words in 300": (object_of(a=words(100, 300)), {"a": "ab " * 99 + "c"}),
    "200 words in 5000": (object_of(a=words(200, 5000)), {"a": "sometimes " * 199 + "c"}),
    "several in one object": (
        object_of(a=words(100, 300), b=words(200, 2000), c=words(30, 400, fewest=9)),
        {"a": "ab " * 99 + "c", "b": "even so " * 99 + "end", "c": "ten times " * 9 + "x"},
    ),
    "at least 120 words in 300 characters": (
        object_of(a=words(200, 300, fewest=119)),
        {"a": "a " * 119 + "b" * 50},
    ),
    "120 words in 300 characters, with accents": (
        object_of(a=words(120, 300, fewest=119)),
        {"a": "é " * 119 + "b"},
    ),
    "several that hardly fit": (
        object_of(a=words(200, 300, fewest=119), b=words(51, 110, fewest=50, shortest=105)),
        {"a": "ab " * 30 + "a " * 100 + "c", "b": "so " * 2 + "a " * 48 + "c" * 6},
    ),
    "at least 500 characters": (
        object_of(a={"type": "string", "pattern": r"^(?:\S+\s+){9,500}\S+$", "minLength": 500}),
        {"a": "longer than " * 45 + "x"},
    ),
    "at least 300 characters": (
        object_of(a=words(100, 900, shortest=300)),
        {"a": "longer than " * 25 + "x"},
    ),
    "a map of lists": (
        {
            "type": "object",
            "patternProperties": {
                "^[a-z_][a-z0-9_-]{0,63}$": {
                    "type": "array",
                    "items": {
                        "anyOf": [
                            words(50, 300),
                            object_of(x=words(100, 500)),
                            {"type": "array", "items": {"pattern": "^(?:[a-z]+-){0,50}[a-z]+$"}},
                        ]
                    },
                }
            },
            "additionalProperties": False,
        },
        {f"a{i}": ["ab " * 49 + "c", {"x": "ab " * 99 + "c"}] for i in range(3)},
    ),
}


def followed(constraint: CompiledConstraint, tokens: Vocabulary, text: bytes) -> int:
    """Follow ``text`` in tokens of at most 8 bytes; returns the most work of a mask."""
    state = constraint.start()
    longest = {data: i for i, data in enumerate(tokens.token_bytes) if data}
    derivatives = constraint.automaton.derivatives
    most, position = 0, 0
    while position < len(text):
        mask = state.mask()
        most = max(most, derivatives.work)
        size = next(n for n in range(8, 0, -1) if text[position : position + n] in longest)
        token = longest[text[position : position + size]]
        assert mask[token >> 5] >> np.uint32(token & 31) & 1, text[: position + size][-60:]
        state.accept(token)
        position += size
    assert state.is_complete
    return most


@pytest.mark.parametrize("name", LARGE)
def test_counters_are_not_unrolled(name: str) -> None:
    schema, value = LARGE[name]
    tokens = vocabulary()
    constraint = compiler().compile(JsonSchema(schema))
    text = json.dumps(value, ensure_ascii=False)
    work = followed(constraint, tokens, text.encode())
    assert constraint.num_states < 12_000
    assert work < 80_000


@pytest.mark.parametrize("name", ["least of both", "a look ahead", "lists", "some character"])
def test_a_mask_that_takes_too_much_work_leaves_the_shortest_way_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.constraint.constraint._WORK_PER_MASK", 40)
    tokens = vocabulary()
    state = compiler().compile(JsonSchema(SMALL[name])).start()
    budget, text = state.shortest_tokens(), b""
    while True:
        token = int(tokens_of(state.mask(budget=budget))[0])
        if token in tokens.eos_ids:
            break
        text += tokens.token_bytes[token] or b""
        state.accept(token)
        budget -= 1
    assert budget >= 0
    jsonschema.validate(json.loads(text), SMALL[name])
