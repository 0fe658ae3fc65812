from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import jsonschema
import numpy as np
import pytest

from app.constraint import Choice, Compiler, JsonObject, JsonSchema, Regex
from app.constraint.constraint import AutomatonState
from app.constraint.language.rows import TooMuchWork
from app.core.constraint import ConstraintSpec, Mask
from app.core.errors import ConstraintTooComplex, DrawAgain, RejectedToken, WorkPending
from app.core.json_scan import JsonScan, Place
from app.text import Vocabulary
from tests.conformance.walks import instruments
from tests.wide import many
from tools import datasets

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "kind": {"enum": ["alpha", "alphabet", "beta"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 3},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
        "parent": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "kind", "tags", "age", "parent"],
    "additionalProperties": False,
}

WORDS = [
    "a", "ab", "al", "alpha", "bet", "beta", "é", "name", "names", "12", "x", "y", "zz", "null", 12,
]  # fmt: skip

LISTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "one": {"enum": WORDS},
        "some": {"type": "array", "items": {"enum": WORDS}, "minItems": 1, "maxItems": 3},
        "kinds": {"type": "array", "items": {"enum": WORDS}, "maxItems": 3, "uniqueItems": True},
    },
    "required": ["one", "some"],
    "additionalProperties": {"enum": WORDS},
}
"""Enough values that masks look them up together; many are prefixes of others."""

ONE_OF: dict[str, Any] = {
    "type": "object",
    "properties": {
        "one": {"type": "string", "oneOf": [{"pattern": word} for word in ("na", "al", "A-")]},
        "two": {"type": "string", "oneOf": [{"pattern": word} for word in ("^a", "b$")]},
        "some": {"type": "integer"},
    },
    "required": ["one"],
    "additionalProperties": False,
}
"""Strings that match exactly one pattern, with something after them."""

CONDITIONS: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": ["boolean", "integer"]} for name in (*"abcdefgh", "name")},
    "allOf": [
        {"if": {"properties": {one: {"const": True}}}, "then": {"required": [other]}}
        for one, other in zip("abcdefgh", "efghabcd", strict=True)
    ]
    + [{"anyOf": [{"required": ["name"]}, {"properties": {"h": {"type": "integer"}}}]}],
    "additionalProperties": False,
}
"""Disjunctions that are kept apart, because there are too many to become branches."""

PIECES = [
    b'{"', b'": ', b'", "', b'"}', b'": "', b"na", b"name", b"kind", b"al", b"alpha", b"bet",
    b"12", b"130", b"[]", b'["', b'"]', b", ", b"null", b"}}", b'"a', b'a"', b'ab", "', b"\\u",
    b"\\ud83d", b"d8", b"\xf0\x9f", b"\x98\x80", "é".encode(), b"null}", b"A-", b"AZ-1", b"   ",
]  # fmt: skip


def small_vocabulary() -> Vocabulary:
    """All single bytes, tokens across borders of JSON syntax, a duplicate, one end of sequence."""
    singles = [bytes([byte]) for byte in range(256)]
    return Vocabulary([*singles, *PIECES, b"name", None], eos_ids=[256 + len(PIECES) + 1])


def tokens_of(mask: Mask) -> list[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits)]


def brute_force(state: AutomatonState, vocabulary: Vocabulary) -> list[int]:
    """Allowed tokens, found by trying the bytes of each token."""
    allowed = []
    for token, data in enumerate(vocabulary.token_bytes):
        if token in vocabulary.eos_ids:
            if state.is_complete:
                allowed.append(token)
        elif data is not None:
            try:
                state.copy().accept_bytes(data)
            except RejectedToken:
                continue
            allowed.append(token)
    return allowed


def acceptable(state: AutomatonState) -> list[int]:
    """Tokens of the mask that are accepted: perhaps not all, if items or names must differ."""
    found = []
    for token in tokens_of(state.mask()):
        with contextlib.suppress(DrawAgain):
            state.copy().accept(token)
            found.append(token)
    return found


def random_walk(
    state: AutomatonState,
    vocabulary: Vocabulary,
    rng: random.Random,
    budget: int,
    check: Callable[[AutomatonState], None] = lambda state: None,
) -> bytes:
    """An answer drawn from the masks under a budget; asserts that it can always be completed."""
    answer, again = b"", 0
    while True:
        assert state.copy().fits(budget)
        if not again:
            check(state)
        allowed = tokens_of(state.mask(budget=budget))
        assert allowed, (answer, budget)
        assert set(allowed) <= set(tokens_of(state.mask()))
        token = rng.choice(allowed)
        try:
            state.accept(token, budget=budget - 1)
        except DrawAgain:
            again += 1
            assert again < 40, "40 draws in a row were rejected"
            continue
        again = 0
        if token in vocabulary.eos_ids:
            return answer
        answer += vocabulary.token_bytes[token] or b""
        budget -= 1
        if state.is_final:
            return answer


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(small_vocabulary())


SPECS: Sequence[ConstraintSpec] = [
    JsonSchema(PERSON),
    JsonSchema(PERSON, whitespace="compact"),
    JsonSchema(LISTS),
    JsonSchema(ONE_OF),
    JsonSchema(CONDITIONS),
    JsonObject(),
    Regex("(ab|[a-z]{2,5}|é+)x?"),
    Choice(["name", "names", "é", "null"]),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_masks_equal_brute_force_along_random_walks(
    spec: ConstraintSpec, compiler: Compiler
) -> None:
    vocabulary = small_vocabulary()
    constraint = compiler.compile(spec)

    def check(state: AutomatonState) -> None:
        assert tokens_of(state.mask()) == brute_force(state, vocabulary)

    for seed in range(many(12, 3)):
        start = constraint.start()
        random_walk(
            start, vocabulary, random.Random(seed), start.shortest_tokens() + 5 * seed, check
        )


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_every_walk_ends_whole_within_any_budget_that_suffices(
    spec: ConstraintSpec, compiler: Compiler
) -> None:
    vocabulary = small_vocabulary()
    constraint = compiler.compile(spec)
    validator = jsonschema.Draft202012Validator(getattr(spec, "schema", True))
    for seed in range(many(60, 4)):
        rng = random.Random(seed)
        start = constraint.start()
        budget = start.shortest_tokens() + rng.randrange(0, 40)
        answer = random_walk(start, vocabulary, rng, budget)
        if isinstance(spec, JsonSchema):
            validator.validate(json.loads(answer))
        check = constraint.start()
        check.accept_bytes(answer)
        assert check.is_complete


@pytest.mark.parametrize("name", datasets.tokenizers())
def test_masks_equal_brute_force_on_real_vocabularies(name: str) -> None:
    vocabulary, compiler, oracle = instruments(name)
    constraint, rng = compiler.compile(JsonSchema(PERSON)), random.Random(name)
    automaton = constraint.automaton

    def check(state: AutomatonState) -> None:
        if rng.random() < 0.12:
            expected = oracle.tokens(automaton.derivatives, automaton.expression(state.state_id))
            assert set(tokens_of(state.mask())) == expected

    for seed in range(many(4)):
        random_walk(constraint.start(), vocabulary, random.Random(seed), 60, check)


def test_words_that_begin_one_another_may_be_many(compiler: Compiler) -> None:
    words = ["a" * size for size in range(1, 600)] + [*"bcdefghij"]
    state = compiler.compile(JsonSchema({"type": "array", "items": {"enum": words}})).start()
    state.accept_bytes(b"[")
    assert tokens_of(state.mask()) == brute_force(state, small_vocabulary())
    state.accept_bytes(b'"a')
    assert tokens_of(state.mask()) == brute_force(state, small_vocabulary())


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "maximum": 1.7976931348623157e308},
        {"type": "number", "minimum": 1e307},
        {"type": "number", "not": {"enum": [1e308]}},
        {"type": "string", "not": {"enum": ["a" * size for size in range(1, 600)]}},
    ],
)
def test_bounds_of_hundreds_of_digits_have_masks(schema: Any, compiler: Compiler) -> None:
    vocabulary = small_vocabulary()
    rng, state = random.Random(0), compiler.compile(JsonSchema(schema)).start()
    budget = state.shortest_tokens() + 20
    for left in range(budget, 0, -1):
        allowed = tokens_of(state.mask())
        assert allowed == brute_force(state, vocabulary)
        token = rng.choice(tokens_of(state.mask(budget=left)))
        if token in vocabulary.eos_ids:
            break
        state.accept(token)
    assert state.is_complete


def test_a_tight_budget_leaves_only_the_shortest_way(compiler: Compiler) -> None:
    vocabulary = small_vocabulary()
    state = compiler.compile(Choice(["name", "names"])).start()
    assert state.shortest_tokens() == 1
    allowed = [vocabulary.token_bytes[token] for token in tokens_of(state.mask(budget=1))]
    assert allowed == [b"name", b"name"]


def test_a_mask_is_memoised_and_read_only(compiler: Compiler) -> None:
    state = compiler.compile(JsonSchema(PERSON)).start()
    assert state.mask() is state.mask()
    with pytest.raises(ValueError, match="read-only"):
        state.mask()[0] = 1


def test_states_of_a_long_string_share_masks(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema({"type": "string", "maxLength": 5000}))
    state = constraint.start()
    state.accept_bytes(b'"')
    first = state.mask()
    before = constraint.nbytes
    for _ in range(2000):
        state.accept_bytes(b"x")
        assert state.mask() is first
    assert constraint.nbytes - before < 2000 * 1500


def test_equal_masks_are_kept_and_counted_once(compiler: Compiler) -> None:
    vocabulary = small_vocabulary()
    constraint = compiler.compile(JsonSchema(PERSON))
    for seed in range(5):
        random_walk(constraint.start(), vocabulary, random.Random(seed), 80)
    kept = constraint.masks._masks.values()
    contents = {mask.tobytes() for mask in kept}
    assert len({id(mask) for mask in kept}) == len(contents) == len(constraint.masks._distinct)


OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "names": {"type": "integer"},
        "é\n": {"type": "boolean"},
        "kind": {"type": "object", "properties": {"k": {"type": "null"}}},
    },
}


def test_masks_in_keys_of_open_objects_equal_brute_force(compiler: Compiler) -> None:
    vocabulary = small_vocabulary()
    constraint = compiler.compile(JsonSchema(OPEN))
    for text in (
        *('{"', '{"n', '{"name', '{"é', '{"é\\', '{"x', '{"name": "a", "', '{"name": "a", "name'),
        *('{"name": "", "x": {"', '{"name": "", "kind": {"', '{"name": "", "kind": {"k'),
    ):
        state = constraint.start()
        state.accept_bytes(text.encode())
        assert tokens_of(state.mask()) == brute_force(state, vocabulary), text
        allowed = tokens_of(state.mask(budget=1000))
        assert allowed == tokens_of(state.mask())


def test_budgets_are_kept_in_keys_of_open_objects(compiler: Compiler) -> None:
    vocabulary = small_vocabulary()
    constraint = compiler.compile(JsonSchema(OPEN))
    for seed in range(many(60, 2)):
        rng = random.Random(seed)
        start = constraint.start()
        answer = random_walk(start, vocabulary, rng, start.shortest_tokens() + seed % 30)
        jsonschema.validate(json.loads(answer), OPEN)


CATASTROPHES: Sequence[Any] = [
    {"type": "string", "pattern": "a.{300}$"},
    {
        "allOf": [
            {"type": "string"},
            *({"pattern": f"{c}.{{{ord(c) - 94}}}"} for c in "abcdefgh"),
        ]
    },
    {"type": "string", "pattern": "^(.*a.{12}b.*|.*c.{13}d.*)$"},
]


@pytest.mark.parametrize("schema", CATASTROPHES)
def test_one_call_does_a_bounded_amount_of_work(schema: Any, compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema(schema))
    derivatives = constraint.automaton.derivatives
    rng = random.Random(0)
    for _ in range(2):
        state = constraint.start()
        try:
            for _ in range(4):
                state.shortest_tokens(1000)
                mask = None
                while mask is None:
                    try:
                        mask = state.mask(budget=500, work=15_000)
                    except WorkPending:
                        assert derivatives.work < 40_000
                assert derivatives.work < 40_000
                state.accept(rng.choice(tokens_of(mask)))
        except ConstraintTooComplex:
            assert derivatives.work < 200_000  # exceeded by the last step only


def test_an_opening_is_worked_out_in_turns_and_is_known_then(compiler: Compiler) -> None:
    patterns = [{"pattern": f"{letter}.{{{4 + at}}}$"} for at, letter in enumerate("abc")]
    schema = JsonSchema({"type": "string", "allOf": patterns})
    constraint, whole = compiler.compile(schema), compiler.compile(schema)
    derivatives, state = constraint.automaton.derivatives, constraint.start()
    state.accept_bytes(b'"')
    turns = 0
    while True:
        try:
            state.prepare(work=50)
            break
        except WorkPending:
            turns += 1
    assert turns > 1
    other = whole.start()
    other.accept_bytes(b'"')
    expected = other.forced()
    derivatives.allow(1 << 40)
    assert state.forced() == expected
    assert derivatives.work == 0, "it is not cached"


def test_a_mask_that_takes_too_much_work_is_given_up_and_an_opening_fails(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.constraint.constraint._WORK_PER_MASK", 1_000)
    patterns = [{"pattern": f"^(.*{letter}.{{9}})*x$"} for letter in "abc"]
    constraint = compiler.compile(JsonSchema({"type": "string", "allOf": patterns}))
    state, opening, turns = constraint.start(), constraint.start(), 0
    state.accept_bytes(b'"')
    while turns < 1_000:
        turns += 1
        try:
            tokens = tokens_of(state.mask(work=50))
            break
        except WorkPending:
            assert not state.gave_up
    assert state.gave_up
    assert turns > 10
    assert len({small_vocabulary().token_bytes[token] for token in tokens}) == 1
    state.accept(tokens[0])
    with pytest.raises(TooMuchWork):
        _prepare(opening)


def test_a_mask_of_a_large_enum_does_not_depend_on_the_work_in_a_turn() -> None:
    digits = [b"%0*d" % (size, number) for size in (2, 3) for number in range(10**size)]
    tokens = [*(bytes([byte]) for byte in range(256)), *digits, None]
    schema = JsonSchema({"enum": [f"{n * 7919 % 99991:05d}" for n in range(50_000)]})

    def mask(work: int | None) -> list[int]:
        state = Compiler(Vocabulary(tokens, eos_ids=[len(tokens) - 1])).compile(schema).start()
        state.accept_bytes(b'"')
        while True:
            with contextlib.suppress(WorkPending):
                return tokens_of(state.mask(work=work))

    assert mask(work=1_000) == mask(work=None)


def _prepare(state: AutomatonState) -> None:
    for _ in range(1_000):
        with contextlib.suppress(WorkPending):
            state.prepare(work=50)


def test_work_that_cannot_be_left_is_done_in_turns_that_grow(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraint = compiler.compile(JsonSchema({"type": "boolean"}))
    state, turns, derivatives = constraint.start(), 0, constraint.automaton.derivatives
    expected, worked_out = tokens_of(state.mask()), AutomatonState._mask

    def at_once(state: AutomatonState, budget: int | None) -> Mask:
        derivatives.spend(500)
        return worked_out(state, budget)

    monkeypatch.setattr(AutomatonState, "_mask", at_once)
    while turns < 100:
        turns += 1
        with contextlib.suppress(WorkPending):
            assert tokens_of(state.mask(work=50)) == expected
            break
    assert not state.gave_up
    assert 10 < turns < 16


LONG: list[Any] = [
    {"type": "string", "minLength": 900, "pattern": r"^(?:\S+\s+){10,90}\S+$"},
    {"type": "string", "minLength": 900, "pattern": r"^[a-z]+(-[a-z0-9]{1,9})*$"},
    {
        "type": "array",
        "uniqueItems": True,
        "minItems": 200,
        "items": {"type": "string", "pattern": "^(ab?)*$"},
    },
]


@pytest.mark.parametrize("schema", LONG)
def test_a_shortest_completion_is_worked_out_in_turns_and_once(
    schema: Any, compiler: Compiler
) -> None:
    def given_up(state: AutomatonState, work: int) -> tuple[list[int], list[int]]:
        """The tokens of the mask, and the work of each turn."""
        turns = list[int]()
        state.give_up(900)
        while len(turns) < 10_000:
            try:
                mask = state.mask(budget=900, work=work)
            except WorkPending:
                turns.append(derivatives.work)
                continue
            assert state.gave_up
            return tokens_of(mask), [*turns, derivatives.work]
        raise AssertionError("the turns do not end")

    constraint = compiler.compile(JsonSchema(schema))
    derivatives, state = constraint.automaton.derivatives, constraint.start()
    state.accept_bytes(state.shortest_completion()[:5])
    tokens, turns = given_up(state, 1_000)
    assert len(turns) > 4
    assert max(turns) < 1_100 + sum(turns) // 8
    state.accept(tokens[0])
    assert sum(given_up(state, 1_000)[1]) < sum(turns) // 2, "it is computed again"

    constraint = compiler.compile(JsonSchema(schema))
    derivatives, state = constraint.automaton.derivatives, constraint.start()
    state.accept_bytes(state.shortest_completion()[:5])
    assert given_up(state, 320_000)[0] == tokens


def test_forced_text_costs_little_in_an_open_object_with_many_names(
    compiler: Compiler,
) -> None:
    names = [f"name{number}" for number in range(1_000)]
    schema = JsonSchema({"properties": {name: {"type": "integer"} for name in names}})
    constraint = compiler.compile(schema)
    state = constraint.start()
    state.accept_bytes(b'{"')
    assert state.forced() == b""
    assert constraint.automaton.derivatives.work < 1_000


def test_a_call_that_was_given_up_leaves_masks_right(compiler: Compiler) -> None:
    vocabulary = small_vocabulary()
    constraint = compiler.compile(JsonSchema(OPEN))
    derivatives = constraint.automaton.derivatives
    expected = constraint.start()
    expected.accept_bytes(b'{"')
    for work in range(0, 400, 7):
        again = compiler.compile(JsonSchema(OPEN))
        state = again.start()
        state.accept_bytes(b'{"')
        again.automaton.derivatives.allow(work)
        with contextlib.suppress(ConstraintTooComplex):
            again.masks.mask(state._state)
        assert tokens_of(state.mask()) == tokens_of(expected.mask())
    assert tokens_of(expected.mask()) == brute_force(expected, vocabulary)
    assert derivatives.work < 80_000


def test_a_forced_path_is_followed_piece_by_piece(compiler: Compiler) -> None:
    state = compiler.compile(JsonSchema({"type": "string", "pattern": "^x{100000}$"})).start()
    text = b""
    for _ in range(20):
        forced = state.forced()
        assert 0 < len(forced) <= 2048
        text += forced
        state.accept_bytes(forced)
    assert text == b'"' + b"x" * (len(text) - 1)


def test_a_long_completion_keeps_its_promise_to_the_end() -> None:
    """Distances along it are recorded for some tokens at a time; none may be lost in between."""
    singles = [bytes([byte]) for byte in range(256)]
    vocabulary = Vocabulary([*singles, b"ab", None], eos_ids=[257])
    constraint = Compiler(vocabulary).compile(
        JsonSchema({"anyOf": [{"const": "ab" * 500}, {"const": "ba" * 400 + "c"}]})
    )
    for spare in (0, 1, 5):
        start = constraint.start()
        budget = start.shortest_tokens() + spare
        answer = random_walk(start, vocabulary, random.Random(spare), budget)
        assert json.loads(answer)[0] in "ab"


def test_can_extend_sees_tokens_that_go_on_past_the_end(compiler: Compiler) -> None:
    state = compiler.compile(JsonSchema(PERSON)).start()
    state.accept_bytes(b'{"name": "')
    assert state.can_extend(b'"')  # the token b'"a'
    assert not state.can_extend(b'": "')
    assert not state.can_extend(b"not in any token")


def test_a_copy_is_independent(compiler: Compiler) -> None:
    state = compiler.compile(Choice(["name", "names"])).start()
    state.accept_bytes(b"na")
    copy = state.copy()
    state.accept_bytes(b"me")
    assert state.is_complete
    assert not copy.is_complete
    assert copy.shortest_completion() == b"me"


def test_a_rejected_token_leaves_the_state_as_it_was(compiler: Compiler) -> None:
    state = compiler.compile(Choice(["name"])).start()
    with pytest.raises(RejectedToken):
        state.accept(ord("x"))
    with pytest.raises(RejectedToken):
        state.accept_bytes(b"names")
    with pytest.raises(RejectedToken, match="complete"):
        state.accept(next(iter(small_vocabulary().eos_ids)))
    assert state.forced() == b"name"


@pytest.mark.parametrize("length", [30, 320, 1000])
@pytest.mark.parametrize("spare", [0, 1, 7, 40])
def test_a_string_that_must_be_long_stays_within_reach_of_long_tokens(
    length: int, spare: int
) -> None:
    """The budget suffices with tokens of eight characters, but not with single characters."""
    singles = [bytes([byte]) for byte in range(256)]
    vocabulary = Vocabulary([*singles, b"a" * 8, None], eos_ids=[257])
    compiler = Compiler(vocabulary)
    constraint = compiler.compile(JsonSchema({"type": "string", "minLength": length}))
    for seed in range(3):
        start = constraint.start()
        budget = start.shortest_tokens() + spare
        assert budget < length / 8 + 50
        answer = random_walk(start, vocabulary, random.Random(seed), budget)
        assert len(json.loads(answer)) >= length


@pytest.mark.parametrize(
    "endless",
    [
        {"type": "string", "minLength": 10**12},
        {"type": "array", "minItems": 10**12},
        {"type": "string", "pattern": "^x{900000000}$"},
    ],
)
def test_an_unreachable_answer_is_not_computed(endless: dict[str, Any], compiler: Compiler) -> None:
    assert compiler.compile(JsonSchema(endless)).start().shortest_tokens(2000) > 2000
    either = compiler.compile(JsonSchema({"anyOf": [{"type": "integer"}, endless]}))
    answer = random_walk(either.start(), small_vocabulary(), random.Random(1), 20)
    assert isinstance(json.loads(answer), int)


def test_an_answer_over_the_limit_is_not_computed(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema({"const": "x" * 3000}))
    assert constraint.start().shortest_tokens(2000) == 3002
    assert len(constraint.automaton) < 10
    assert constraint.start().shortest_tokens() == 3002


def test_is_closing_is_true_if_the_budget_ends_a_value() -> None:
    """The oracle scans the text and checks each token."""
    rng = random.Random(1)
    vocab = small_vocabulary()
    spec = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "code": {"type": "string", "pattern": "^[a-z]{2,}$"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}},
            "set": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "n": {"type": "integer"},
        },
        "required": ["name", "code", "tags", "set"],
    }
    constraint = Compiler(vocab).compile(JsonSchema(spec, close_objects=True))
    found = set()
    for _ in range(120):
        state, scan, text = constraint.start(), JsonScan(), b""
        budget = state.shortest_tokens() + rng.randint(0, 25)
        while not state.is_final:
            plain, mask = set(tokens_of(state.mask())), set(tokens_of(state.mask(budget=budget)))
            texts = {each: vocab.token_bytes[each] or b"" for each in plain}
            if scan.in_value:
                going_on = {each for each in plain if b'"' not in texts[each]}
            else:
                going_on = {each for each in plain if texts[each].lstrip()[:1] not in (b"]", b"}")}
            in_key = scan.place is Place.STRING and not scan.in_value
            closing = state.is_closing(state.mask(budget=budget), state.mask())
            if not in_key and not text.endswith(b"\\"):
                assert closing == (bool(going_on) and not going_on & mask), scan.place
                found.add((scan.place, closing))
            token = rng.choice(sorted(mask))
            for byte in texts[token]:
                scan.push(byte)
            text += texts[token]
            state.accept(token)
            budget -= 1
    places = Place.STRING, Place.NEXT_ITEM, Place.FIRST_ITEM
    assert {*product(places, [False, True])} <= found
