from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.constraint.json.text import JsonText
from app.constraint.language.expressions import ExpressionPool
from app.constraint.limits import Limits
from app.constraint.schema.document import Node
from app.constraint.schema.keywords import NOT_ENUM, NOT_FORMAT, NOT_PATTERN
from app.constraint.schema.strings import Strings
from app.core.errors import InvalidSchema, UnsupportedSchema
from tests.constraint.walks import Walker
from tests.wide import many

TEXTS = st.text(alphabet='ab1_é."\\\n', max_size=5)
PATTERNS = st.sampled_from(
    [
        "((?!ab).)*$",
        "^(a$|b){1,3}?",
        r"(?:(?!b$)[^é])+$",
        "^((?!ab|_$).)*$",
        "a$|b(?!1)",
        "a",
        "b$",
        "^[ab]*$",
        "a.b",
        "(?!a)b",
        "^(?!ab)",
        r"\.$",
        r"[^a]",
        "^$",
        "a{2}",
        '"',
    ]
)


def strings() -> Strings:
    return Strings(JsonText(ExpressionPool(), Limits()))


def walker(*schemas: dict[object, object], content: bool = False) -> Walker:
    one = strings()
    nodes = tuple(Node(f"/{index}", schema) for index, schema in enumerate(schemas))
    return Walker(one._pool, one.content(nodes) if content else one.build(nodes))


def with_ecma_dollar(pattern: str) -> str:
    r"""``pattern`` with the ``$`` of ECMA-262; ``re`` also matches it before a final line feed."""
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)


def spelled(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@given(
    PATTERNS | st.none(),
    PATTERNS,
    st.lists(TEXTS, max_size=3),
    st.integers(0, 2),
    st.none() | st.integers(2, 4),
    st.lists(TEXTS, max_size=10),
)
@example(None, "^((?!ab|_$).)*$", [], 0, None, ["_\n"])
@settings(max_examples=many(200))
def test_patterns_negated_patterns_values_and_lengths_hold_together(
    pattern: str | None,
    unwanted: str,
    values: list[str],
    low: int,
    high: int | None,
    texts: list[str],
) -> None:
    schemas: list[dict[object, object]] = [
        {NOT_PATTERN: unwanted},
        {NOT_ENUM: [1, None, *values]},
        {"minLength": low},
    ]
    if pattern is not None:
        schemas[0]["pattern"] = pattern
    if high is not None:
        schemas[2]["maxLength"] = high
    whole, content = walker(*schemas), walker(*schemas, content=True)
    nodes = tuple(Node("", schema) for schema in schemas)
    one = strings()
    for text in [*texts, *values]:
        expected = (
            (pattern is None or re.search(with_ecma_dollar(pattern), text) is not None)
            and re.search(unwanted, text) is None
            and text not in values
            and low <= len(text)
            and (high is None or len(text) <= high)
        )
        if expected and "(?" in unwanted and text.endswith("\n"):
            continue  # "$" in a look-around is read both ways: some valid texts are rejected
        assert whole.accepts(spelled(text)) == expected
        assert content.accepts(spelled(text)[1:-1]) == expected
        assert one.admit(nodes, text) == expected


def test_an_excluded_value_does_not_come_back_in_another_spelling() -> None:
    whole = walker({NOT_ENUM: ["ab", "é"]})
    for text in ('"ab"', r'"\u0061b"', r'"a\u0062"', '"é"', r'"\u00e9"', r'"\u00E9"'):
        assert not whole.accepts(text)
    assert whole.accepts('"abc"')
    assert not walker({NOT_PATTERN: "a"}).accepts(r'"\u0061"')
    assert not walker({"pattern": "^(?!a)"}).accepts(r'"\u0061"')


@pytest.mark.parametrize("pattern", [r"^\w+$", r"^\d$", r"\bx", r"^\s$", "^.$", "^x$"])
def test_text_that_only_some_dialects_match_neither_matches_nor_fails(pattern: str) -> None:
    some = {r"^\w+$": "é", r"^\d$": "٣", r"\bx": "éx", r"^\s$": "\ufeff", "^.$": "\u2028"}.get(
        pattern, "x\n"
    )
    assert not walker({"pattern": pattern}).accepts(spelled(some))
    assert not walker({NOT_PATTERN: pattern}).accepts(spelled(some))
    one, node = strings(), Node("", {})
    assert one.key_matches(node, pattern, some) is None
    for matches in (True, False):
        key = Walker(one._pool, one.key_pattern(node, pattern, matches=matches))
        assert not key.accepts(spelled(some)[1:-1])


@given(PATTERNS, TEXTS)
@settings(max_examples=many(150, 4))
def test_patterns_of_keys_agree_with_re_search(pattern: str, name: str) -> None:
    one, node = strings(), Node("", {})
    expected = re.search(pattern, name) is not None
    if expected != (re.search(with_ecma_dollar(pattern), name) is not None):
        assert one.key_matches(node, pattern, name) is None
        return
    verdict = one.key_matches(node, pattern, name)
    if verdict is None and "(?" in pattern:  # "$" in a look-around is read both ways
        return
    assert verdict is expected
    for matches in (True, False):
        pool = one._pool
        key = one.key_pattern(node, pattern, matches=matches)
        language = Walker(pool, pool.intersect((key, one.content(()))))
        assert language.accepts(spelled(name)[1:-1]) == (expected is matches)


def test_errors_of_key_patterns_name_their_keyword_and_place() -> None:
    node = Node("/a", {"patternProperties": {}})
    with pytest.raises(UnsupportedSchema) as refused:
        strings().key_pattern(node, r"(a)\1")
    assert (refused.value.keyword, refused.value.pointer) == (
        "patternProperties",
        "/a/patternProperties",
    )
    with pytest.raises(InvalidSchema) as invalid:
        strings().key_pattern(node, "(")
    assert invalid.value.pointer == "/a/patternProperties"


def test_a_negated_format_admits_only_texts_that_every_validator_rejects() -> None:
    outside = {
        "email": ["no at sign"],
        "date": ["1/2/2024", "today"],
        "ipv6": ["1.2.3.4"],
        "uri": ["no scheme"],
        "json-pointer": ["a/b"],
        "uuid": ["1234"],
    }
    for name, texts in outside.items():
        whole = walker({NOT_FORMAT: name})
        assert all(whole.accepts(spelled(text)) for text in texts)
    assert not walker({NOT_FORMAT: "date"}).accepts('"2023-02-29"')
    with pytest.raises(UnsupportedSchema, match="regex"):
        walker({NOT_FORMAT: "regex"})


def test_random_strings_of_negations_satisfy_them() -> None:
    rng = random.Random(4)
    schema: dict[object, object] = {
        NOT_PATTERN: "[aeiou]",
        NOT_FORMAT: "email",
        NOT_ENUM: [""],
        "maxLength": 6,
    }
    whole = walker(schema)
    for _ in range(200):
        text = json.loads(whole.sample(rng, rng.randrange(20)))
        assert re.search("[aeiou]", text) is None
        assert "@" not in text
        assert 1 <= len(text) <= 6
