"""Vocabularies with missing bytes, compared to brute force over finite languages."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constraint import Choice, Compiler, Grammar, JsonObject, JsonSchema, Regex, compile_program
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.compiler import read_document
from app.constraint.constraint import CompiledConstraint
from app.constraint.language.expressions import ExpressionPool, byte_set
from app.constraint.language.rewriting import missing_bytes, spelled
from app.constraint.limits import Limits
from app.core.composite import Composite, Either, FixedText, FreeText, Repeated, Series
from app.core.constraint import ConstraintSpec
from app.core.errors import ConstraintError, DrawAgain, UnsatisfiableSchema, UnsupportedSchema
from app.text import Vocabulary
from tests.constraint.languages import UNIVERSE, Recipe, accepts, build, recipes, strings
from tests.constraint.test_masks import acceptable, random_walk, tokens_of
from tests.constraint.verbatim_cases import pieces_of
from tests.wide import many

FAR = "\U00050000"
"""A character with the first byte F1, for which SmolLM2's tokenizer has no token."""


def vocabulary(missing: Iterable[int], longer: Sequence[bytes] = ()) -> Vocabulary:
    left = [bytes([byte]) for byte in range(256) if byte not in set(missing)]
    tokens = [*left, *longer, None]
    return Vocabulary(tokens, eos_ids=[len(tokens) - 1])


SMOL = vocabulary([0xF1, 0xF2], [b"ab", b'{"', b'": "', b'"}', b"\xf0\x9f"])


@pytest.fixture(scope="module")
def smol() -> Compiler:
    return Compiler(SMOL)


def compiled_for(vocab: Vocabulary, spec: ConstraintSpec) -> CompiledConstraint:
    """What ``Compiler(vocab).compile(spec)`` gives, without running all kernels once more."""
    limits = Limits(missing=missing_bytes(vocab.token_bytes))
    return CompiledConstraint(compile_program(spec, limits), VocabularyIndex(vocab))


# --- brute force ---------------------------------------------------------------------------------

Case = tuple[ConstraintSpec, set[str]]
"""A specification, and all texts that it admits."""

_LETTERS = ["a", "b", "c", "é", "è", "日", "😀", "{", '"', "\\", ","]


def _regex(rng: random.Random) -> Case:
    pattern, texts = _pattern(rng, 3)
    return Regex(pattern), texts


def _pattern(rng: random.Random, depth: int) -> tuple[str, set[str]]:
    kind = rng.randrange(5) if depth else 0
    if kind == 0:
        letters = rng.sample(_LETTERS, rng.randint(1, 3))
        return f"[{''.join(map(re.escape, letters))}]", set(letters)
    inner, texts = _pattern(rng, depth - 1)
    if kind == 1:
        return f"(?:{inner})?", texts | {""}
    if kind == 2 and len(texts) < 12:
        return f"(?:{inner}){{1,2}}", texts | {one + other for one in texts for other in texts}
    other, more = _pattern(rng, depth - 1)
    if kind == 3:
        return f"(?:{inner}|{other})", texts | more
    if len(texts) * len(more) > 200:
        return inner, texts
    return f"(?:{inner})(?:{other})", {a + b for a in texts for b in more}


def _grammar(rng: random.Random) -> Case:
    """Rules over sets of characters that refer to one another."""
    letters = [rng.sample(_LETTERS, rng.randint(1, 3)) for _ in range(3)]
    first, second, third = ["[" + "".join(map(_in_a_set, each)) + "]" for each in letters]
    rules = ["root ::= x y? | y y", f"x ::= {first} | z", f"y ::= {second}", f"z ::= {third} w"]
    rules.append(f"w ::= y | {first}")
    a, b, c = map(set, letters)
    x = a | {one + other for one in c for other in a | b}
    texts = {one + other for one in x for other in b | {""}}
    return Grammar("\n".join(rules)), texts | {one + other for one in b for other in b}


def _in_a_set(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if letter.isascii() else letter


def _schema(rng: random.Random) -> Case:
    """Objects of strings given by patterns, as an ``enum`` with an unspellable value is refused."""
    values, required = [_strings(rng) for _ in range(3)], rng.sample("abc", rng.randint(0, 3))
    schema = {
        "type": "object",
        "properties": {name: _one_of(rng, each) for name, each in zip("abc", values, strict=True)},
        "required": required,
        "additionalProperties": False,
    }
    texts = set()
    for a, b, c in product(*([*each, None] for each in values)):
        members = {name: each for name, each in (("a", a), ("b", b), ("c", c)) if each is not None}
        if members.keys() >= {*required}:
            texts.add(json.dumps(members, ensure_ascii=False))
    return JsonSchema(schema), texts


def _strings(rng: random.Random) -> list[str]:
    return rng.sample(["", "a", "b", "é", "aé", "日", "{", '"', "\n", "\\"], rng.randint(1, 3))


def _one_of(rng: random.Random, values: Sequence[str]) -> Any:
    pattern = "|".join("\\n" if value == "\n" else re.escape(value) for value in values)
    string = {"type": "string", "pattern": f"^({pattern})$"}
    return rng.choice(
        [
            string,
            {**string, "maxLength": 2},
            {"anyOf": [string, {"not": {}}]},
            {"allOf": [string, {"not": {"const": "zz"}}]},
        ]
    )


def _items(rng: random.Random) -> Case:
    """Arrays of unique items that a pattern describes instead of a list."""
    letters = rng.sample(["a", "b", "c", "é", "{"], rng.randint(2, 4))
    low = rng.randint(0, 2)
    string = {"type": "string", "pattern": f"^[{''.join(map(re.escape, letters))}]$"}
    schema = {"type": "array", "items": string, "uniqueItems": True, "minItems": low, "maxItems": 3}
    texts = {
        json.dumps(chosen, ensure_ascii=False)
        for size in range(low, 4)
        for chosen in permutations(letters, size)
    }
    return JsonSchema(schema), texts


def _map(rng: random.Random) -> Case:
    """Objects with distinct names that a pattern describes."""
    letters, low = rng.sample(["a", "b", "c", "é", "{"], rng.randint(2, 4)), rng.randint(0, 2)
    schema = {
        "type": "object",
        "patternProperties": {f"^[{''.join(map(re.escape, letters))}]$": {"type": "null"}},
        "additionalProperties": False,
        "minProperties": low,
        "maxProperties": 3,
    }
    texts = {
        json.dumps(dict.fromkeys(chosen), ensure_ascii=False)
        for size in range(low, 4)
        for chosen in permutations(letters, size)
    }
    return JsonSchema(schema), texts


def _words(rng: random.Random) -> Case:
    """Booleans, null and integers; the vocabulary may lack some of their letters and digits."""
    schema = {"type": ["boolean", "null", "integer"], "minimum": 0, "maximum": 12}
    return JsonSchema(schema), {"true", "false", "null", *map(str, range(13))}


def _multiples(rng: random.Random) -> Case:
    """Multiples of a number; the vocabulary may lack some of the digits or the decimal point."""
    if rng.random() < 0.5:
        step = rng.randint(3, 40)
        schema = {"type": "integer", "minimum": 0, "maximum": 999, "multipleOf": step}
        return JsonSchema(schema), {str(number) for number in range(0, 1000, step)}
    step = rng.choice([15, 25, 125])
    schema = {"type": "number", "minimum": 0, "maximum": 9.99, "multipleOf": step / 100}
    counts = range(0, 1000, step)
    texts = {f"{count // 100}.{count % 100:02}" for count in counts}
    texts |= {text[:-1] for text in texts if text.endswith("0")}
    return JsonSchema(schema), texts | {text[:-2] for text in texts if text.endswith(".0")}


def _composite(rng: random.Random) -> Case:
    (first, texts), (second, more) = _regex(rng), _schema(rng)
    assert isinstance(first, Regex)
    assert isinstance(second, JsonSchema)
    spec = Composite(Either((Series((FixedText("<"), first)), second)))
    return spec, {"<" + text for text in texts} | more


CASES: dict[str, Callable[[random.Random], Case]] = {
    "regex": _regex,
    "grammar": _grammar,
    "schema": _schema,
    "items": _items,
    "map": _map,
    "words": _words,
    "multiples": _multiples,
    "composite": _composite,
}


def _random_vocabulary(rng: random.Random, texts: Sequence[bytes], *, closed: bool) -> Vocabulary:
    """A vocabulary without some bytes of ``texts``; if ``closed``, no token contains them."""
    used = sorted({byte for text in texts for byte in text})
    missing = set(rng.sample(used, min(len(used), rng.randint(1, 4))))
    longer = []
    for _ in range(25):
        text = rng.choice(texts)
        begin = rng.randrange(max(len(text), 1))
        piece = text[begin : begin + rng.randint(2, 5)]
        if len(piece) > 1 and not (closed and missing.intersection(piece)):
            longer.append(piece)
    return vocabulary(missing, longer)


def _is_spelled(tokens: set[bytes], text: bytes) -> bool:
    """Whether ``text`` is a sequence of tokens."""
    reached = [True] + [False] * len(text)
    for end in range(1, len(text) + 1):
        before = [begin for begin in range(end) if reached[begin]]
        reached[end] = any(text[begin:end] in tokens for begin in before)
    return reached[-1]


def _oracle(
    vocab: Vocabulary, answers: Iterable[bytes], prefix: bytes, spells: Callable[[bytes], bool]
) -> set[int]:
    """Tokens after ``prefix`` that lead to an answer whose remaining text passes ``spells``."""
    found: set[int] = set()
    for answer in answers:
        if not answer.startswith(prefix):
            continue
        rest = answer[len(prefix) :]
        for token, data in enumerate(vocab.token_bytes):
            if data is None:
                if not rest:
                    found.add(token)
            elif rest.startswith(data) and token not in found and spells(rest[len(data) :]):
                found.add(token)
    return found


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize("name", CASES)
def test_masks_hold_the_tokens_after_which_an_answer_can_be_spelled(
    name: str, closed: bool
) -> None:
    """Exactly these if no longer token contains a missing byte; otherwise a subset of them."""
    rng = random.Random(f"{name} {closed}")
    compiled = refused = 0
    for _ in range(many(60, 3)):
        spec, texts = CASES[name](rng)
        answers = sorted(text.encode() for text in texts)
        vocab = _random_vocabulary(rng, answers, closed=closed)
        missing = missing_bytes(vocab.token_bytes)
        alone = {byte for byte in range(256) if not missing >> byte & 1}
        tokens = {data for data in vocab.token_bytes if data}
        left = [answer for answer in answers if alone.issuperset(answer)]
        try:
            constraint = compiled_for(vocab, spec)
        except (UnsatisfiableSchema, UnsupportedSchema) as error:
            refused += 1
            few_items = isinstance(error, UnsupportedSchema) and error.keyword in (
                "uniqueItems",
                "minProperties",
            )
            needed = isinstance(spec, Composite) and "tokenizer" in str(error)
            assert not left or few_items or needed, (spec, vocab.token_bytes)
            continue
        assert left, (spec, vocab.token_bytes)
        compiled += 1
        for number in range(4):
            state, text = constraint.start(), b""
            budget = state.shortest_tokens() + rng.randint(0, 4) if number else None
            while True:
                mask = set(acceptable(state))
                sure = _oracle(vocab, left, text, alone.issuperset)
                assert mask == sure, (spec, text)
                possible = _oracle(vocab, answers, text, partial(_is_spelled, tokens))
                assert mask == possible if closed else mask <= possible, (spec, text)
                allowed = tokens_of(state.mask(budget=budget))
                assert allowed
                assert set(allowed) <= set(tokens_of(state.mask()))
                token = rng.choice(allowed)
                data = vocab.token_bytes[token]
                if data is None:
                    break
                behind = None if budget is None else budget - 1
                try:
                    state.accept(token, budget=behind)
                except DrawAgain:
                    continue
                text, budget = text + data, behind
                if state.is_final:
                    break
            assert text in left
    assert compiled > 8
    assert refused or name in ("items", "map", "words", "multiples")


@given(recipes(), st.sets(st.sampled_from(list(b"abc")), min_size=1))
@settings(max_examples=many(300))
def test_an_expression_loses_the_strings_with_missing_bytes_alone(
    recipe: Recipe, missing: set[int]
) -> None:
    pool = ExpressionPool()
    left = spelled(pool, build(pool, recipe), byte_set(missing))
    expected = {text for text in strings(recipe) if missing.isdisjoint(text)}
    assert {text for text in UNIVERSE if accepts(pool, left, text)} == expected


def test_an_expression_without_missing_bytes_stays_the_same() -> None:
    pool = ExpressionPool()
    root = pool.concatenate(pool.byte(byte_set(b"ab")), pool.repeat(pool.literal(b"cd")))
    size = len(pool)
    assert spelled(pool, root, byte_set(b"xyz")) == root
    assert len(pool) == size


@pytest.mark.parametrize(
    "spec",
    [
        JsonSchema({"properties": {"a": {"enum": ["x", "é"]}}, "type": "object"}, True),
        Regex("[a-z]+(?!x)[0-9]"),
        Choice(["yes", "nö"]),
        Grammar('start: "a" | "b" start'),
    ],
    ids=lambda spec: spec.kind,
)
def test_a_program_that_needs_no_missing_byte_is_the_same_program(
    spec: ConstraintSpec, smol: Compiler
) -> None:
    plain, left = compile_program(spec), compile_program(spec, smol.limits)
    assert left.root == plain.root
    assert left.derivatives.pool.operands == plain.derivatives.pool.operands


# --- parts that cannot be spelled are left out ---------------------------------------------------

RICH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "short": {"type": "string", "minLength": 1, "maxLength": 3},
        "word": {"type": "string", "pattern": "^\\w+$", "maxLength": 5},
        "mail": {"type": "string", "format": "email"},
        "any": {},
        "set": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 1},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "required": ["name", "short", "word", "any", "set", "map"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(12))
def test_walks_over_vocabularies_with_random_bytes_missing_end_in_valid_answers(seed: int) -> None:
    rng = random.Random(seed)
    structure = set(json.dumps(RICH).encode() + b"\\@.-0123456789")
    missing = set(rng.sample(range(0x80, 0xF5), rng.randint(1, 60)))
    missing |= {byte for byte in range(0x21, 0x7F) if byte not in structure and rng.random() < 0.5}
    left = [bytes([byte]) for byte in range(256) if byte not in missing]
    longer = [b"".join(rng.choices(left, k=rng.randint(2, 5))) for _ in range(200)]
    longer += [b'{"name": "', b'"}', b'", "', b"\\u00", "ß".encode(), b"\xf0\x9f"]
    vocab = vocabulary(missing, longer)
    constraint = compiled_for(vocab, JsonSchema(RICH))
    for _ in range(4):
        budget = constraint.start().shortest_tokens() + rng.randint(0, 60)
        answer = random_walk(constraint.start(), vocab, rng, budget)
        jsonschema.Draft202012Validator(RICH).validate(json.loads(answer))
        assert missing.isdisjoint(answer)


@pytest.mark.parametrize("seed", range(6))
def test_free_text_and_what_follows_it_is_spelled(seed: int) -> None:
    """Reasoning, and text before tool calls: free text up to a mark."""
    rng = random.Random(seed)
    missing = {*rng.sample(range(0x80, 0xF5), 40), *rng.sample(list(b"!#$%&()*+;=?@^_`|~qzQZ"), 8)}
    vocab = vocabulary(missing, [b"</", b"think>", b"ab", b'{"', "日".encode(), b"\xe6\x97"])
    call = Series(
        (
            FixedText("<call>"),
            JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}}),
        )
    )
    spec = Composite(
        Series(
            (
                FreeText(("</think>",)),
                FixedText("</think>"),
                Repeated(call, "\n"),
                FreeText(("<call>",)),
            )
        )
    )
    constraint = compiled_for(vocab, spec)
    for _ in range(5):
        budget = constraint.start().shortest_tokens() + rng.randint(0, 40)
        answer = random_walk(constraint.start(), vocab, rng, budget)
        assert missing.isdisjoint(answer)
        assert answer.decode().count("</think>") == 1


def test_strings_keep_what_can_be_spelled_and_its_escapes(smol: Compiler) -> None:
    state = smol.compile(JsonSchema({"type": "string"})).start()
    state.accept_bytes('"é日😀\U000f0000\\ud900\\udc00'.encode())
    assert not state.copy().can_extend(FAR.encode())
    state.accept_bytes(b'"')
    assert state.is_final


def test_an_optional_name_that_cannot_be_spelled_is_left_out(smol: Compiler) -> None:
    schema = {"type": "object", "properties": {FAR: {}, "b": {"const": 1}}}
    state = smol.compile(JsonSchema(schema, close_objects=True)).start()
    state.accept_bytes(b'{"')
    assert state.forced() == b'b": 1}'


@pytest.mark.parametrize("words", [False, True])
def test_quoted_pieces_leave_out_what_cannot_be_spelled(words: bool) -> None:
    rng, alphabet = random.Random(7), [*"abé日", FAR, *' "\n.\x7f']
    for _ in range(many(60, 3)):
        missing = set(rng.sample([0xF1, 0xA9, 0xE6, 0x7F, *b"b\\."], 2))
        texts = ["".join(rng.choices(alphabet, k=rng.randint(1, 9))) for _ in range(2)]
        low, high = rng.choice([(0, None), (1, None), (2, 3), (1, 4)])
        string: dict[str, Any] = {
            "type": "string",
            "x-verbatim": "words" if words else True,
            "minLength": low,
        }
        if high is not None:
            string["maxLength"] = high
        expected = {
            json.dumps(piece, ensure_ascii=False).encode()
            for piece in pieces_of(texts, words=words)
            if low <= len(piece) <= (high or 99)
        }
        left = sorted(answer for answer in expected if missing.isdisjoint(answer))
        vocab = vocabulary(missing, [b'"a', b'a"', b"\xe6\x97", "é".encode() + b" "])
        compiled = compiled_for(vocab, JsonSchema(string))
        document = read_document(texts, words, missing_bytes(vocab.token_bytes))
        try:
            constraint = compiled.bind({hole.source: document for hole in compiled.holes})
        except UnsatisfiableSchema:
            assert not left, (texts, missing)
            continue
        for _ in range(3):
            state, text = constraint.start(), b""
            while not state.is_final:
                allowed = tokens_of(state.mask())
                assert set(allowed) == _oracle(vocab, left, text, missing.isdisjoint), (texts, text)
                token = rng.choice(allowed)
                text += vocab.token_bytes[token] or b""
                state.accept(token)
            found = document.find(json.loads(text))
            if found is not None:
                assert texts[found.text][found.start : found.end] == json.loads(text)


# --- refused specifications ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "keyword", "place"),
    [
        (JsonSchema({"properties": {"a/b": {"const": FAR}}}), "const", "/properties/a~1b/const"),
        (JsonSchema({"properties": {"a": {"const": {FAR: 1}}}}), "const", "/properties/a/const"),
        (JsonSchema({"anyOf": [{"type": "null"}, {"enum": ["a", FAR]}]}), "enum", "/anyOf/1/enum"),
        (JsonSchema({"items": {"enum": ["a", FAR]}, "uniqueItems": True}), "enum", "/items/enum"),
        (JsonSchema({"items": {"required": ["a", FAR]}}), "required", "/items/required"),
        (Choice(["a", FAR]), "choice", "/1"),
        (Grammar(f'root ::= "a" |\n  "b{FAR}"'), "text", "line 2, column 3"),
        (Grammar(f'start: "a" | b\nb: "{FAR}" start'), "text", "line 2, column 4"),
        (Composite(Series((FixedText("a" + FAR),))), "structure", ""),
    ],
)  # fmt: skip
def test_a_required_text_that_cannot_be_spelled_is_refused_with_its_place(
    spec: ConstraintSpec, keyword: str, place: str, smol: Compiler
) -> None:
    with pytest.raises(
        UnsupportedSchema, match=r"cannot spell '\\U00050000' \(U\+50000\)"
    ) as raised:
        smol.compile(spec)
    assert (raised.value.keyword, raised.value.pointer) == (keyword, place)


def test_a_value_that_is_excluded_need_not_be_spelled(smol: Compiler) -> None:
    schema = {"type": "string", "maxLength": 1, "not": {"enum": [FAR, "a"]}}
    state = smol.compile(JsonSchema(schema)).start()
    state.accept_bytes(b'"b"')
    assert state.is_final


@pytest.mark.parametrize(
    ("byte", "spec"),
    [
        ("{", JsonObject()),
        ("{", JsonSchema({"type": "object"})),
        ('"', JsonSchema({"type": "string"})),
        (":", JsonSchema({"type": "object", "required": ["a"]})),
        ("r", JsonSchema({"const": True})),
        ("\n", JsonSchema({"type": "array", "minItems": 1}, whitespace="indent:2")),
        ("x", Regex("a+x")),
        ("x", Composite(Series((FreeText(), Regex("x"))))),
    ],
)
def test_an_error_names_the_character_that_is_missing(byte: str, spec: ConstraintSpec) -> None:
    with pytest.raises(ConstraintError) as raised:
        compiled_for(vocabulary(byte.encode()), spec)
    assert f"{byte!r} (U+{ord(byte):04X})" in str(raised.value)


def test_values_that_need_no_braces_do_without_them() -> None:
    vocab = vocabulary(b"{")
    constraint = compiled_for(vocab, JsonSchema({}))
    answer = random_walk(constraint.start(), vocab, random.Random(1), 20)
    json.loads(answer)


def test_an_error_names_the_function_whose_arguments_cannot_be_spelled(smol: Compiler) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": f"^{FAR}$"}},
        "required": ["a"],
    }
    tools = Either((JsonSchema({"type": "null"}), JsonSchema(schema, subject="the function f")))
    with pytest.raises(UnsatisfiableSchema, match=r"^the function f: .*U\+50000"):
        smol.compile(Composite(tools))


def test_too_few_values_that_can_be_spelled_are_too_few_items() -> None:
    items = {"type": "string", "pattern": "^[abc]$"}
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": 3}
    compiled_for(vocabulary(b"x"), JsonSchema(schema))
    with pytest.raises(ConstraintError):
        compiled_for(vocabulary(b"c"), JsonSchema(schema))


def test_a_byte_that_only_longer_tokens_hold_counts_as_missing() -> None:
    vocab = vocabulary([ord("{")], [b'{"', b"{}"])
    with pytest.raises(UnsatisfiableSchema, match="U\\+007B"):
        compiled_for(vocab, JsonObject())


def test_a_relaxed_schema_lists_its_unenforced_keywords(smol: Compiler) -> None:
    schema = {"type": "object", "properties": {"a": {"const": FAR}}, "required": ["a"]}
    relaxed = smol.compile(JsonSchema(schema, relax=True)).relaxed
    assert [(each.pointer, each.keyword) for each in relaxed] == [("/properties/a/const", "const")]
    assert "U+50000" in relaxed[0].reason
