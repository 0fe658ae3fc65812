from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from app.core.errors import (
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import Choice, JsonSchema, Regex
from tests.constraint.walks import Walker
from tests.wide import many

PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "^", "$", "(?:)", r"\.", r'"', r"\\"]
)
SUFFIXES = st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "??"])


def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.tuples(inner, SUFFIXES).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    several = st.lists(inner, min_size=2, max_size=3)
    return group | several.map("".join) | several.map("|".join)


PATTERNS = st.recursive(PIECES, joined, max_leaves=7)
TEXTS = st.text(alphabet='ab1_."\\', max_size=5)


@given(PATTERNS, st.lists(TEXTS, max_size=12))
@settings(max_examples=many(300))
def test_patterns_agree_with_re_search_on_random_texts(pattern: str, texts: list[str]) -> None:
    walker = (
        Walker.of(JsonSchema({"type": "string", "pattern": pattern})) if _some(pattern) else None
    )
    for text in texts:
        expected = re.search(pattern, text) is not None
        assert (walker is not None and walker.accepts_value(text)) == expected


LOOKS = st.tuples(
    st.sampled_from(["(?=", "(?!"]), st.sampled_from(["", ".*", "^", "b?"]), PATTERNS
).map(lambda parts: f"{parts[0]}{parts[1]}{parts[2]})")
BESIDE = LOOKS | st.sampled_from(
    [
        r"\b",
        r"\B",
        r"\A",
        r"\Z",
        "(?i:B)",
        "(?-s:.)",
        "(?<=a)",
        "(?<![ab])",
        "(?<!^)",
        "(?:(?!ab).)*$",
        "(?:(?=a|b$).)+$",
    ]
)
FEW = st.sampled_from(["", "", "?", "{2}", "{0,2}", "{1,3}?"])


def beside_looks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.tuples(inner, FEW).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    several = st.lists(inner, min_size=2, max_size=3)
    return group | several.map("".join) | several.map("|".join)


@given(
    st.recursive(PATTERNS | BESIDE, beside_looks, max_leaves=6),
    st.lists(TEXTS, max_size=12),
)
@settings(max_examples=many(400, 16))
def test_look_around_agrees_with_re_search(pattern: str, texts: list[str]) -> None:
    try:
        walker = Walker.of(JsonSchema({"type": ["string", "null"], "pattern": pattern}))
    except (UnsupportedSchema, ConstraintTooComplex):
        reject()
    for text in texts:
        assert walker.accepts_value(text) == (re.search(pattern, text) is not None)


@given(PATTERNS, st.integers(0, 3), st.integers(0, 3), st.lists(TEXTS, max_size=12))
@settings(max_examples=many(150))
def test_lengths_beside_a_pattern_hold_both(
    pattern: str, low: int, more: int, texts: list[str]
) -> None:
    schema = {"type": ["string", "null"], "pattern": pattern, "minLength": low}
    walker = Walker.of(JsonSchema({**schema, "maxLength": low + more}))
    for text in texts:
        expected = re.search(pattern, text) is not None and low <= len(text) <= low + more
        assert walker.accepts_value(text) == expected


@given(PATTERNS, st.lists(TEXTS, max_size=12))
@settings(max_examples=many(150))
def test_a_regex_constraint_matches_the_whole_raw_text(pattern: str, texts: list[str]) -> None:
    if _some(pattern):
        walker = Walker.of(Regex(pattern))
        for text in texts:
            assert walker.accepts(text) == (re.fullmatch(pattern, text) is not None)


def _some(pattern: str) -> bool:
    """Whether some text matches: the front end refuses a plainly empty language."""
    try:
        Walker.of(JsonSchema({"type": "string", "pattern": pattern}))
        Walker.of(Regex(pattern))
    except UnsatisfiableSchema:
        return False
    return True


@pytest.mark.parametrize(
    "pattern",
    [r"\D", r"\W", r"\S", r"[^\d]", r"[^\w\s]", r".", r"[^\W]", r"\s", r"[\s\S]", r"[^a]"],
)
def test_classes_match_in_the_unicode_flavour_of_python_as_well(pattern: str) -> None:
    walker = Walker.of(JsonSchema({"type": "string", "pattern": f"^{pattern}$"}))
    rng = random.Random(1)
    for _ in range(60):
        text = json.loads(walker.sample(rng))
        assert re.search(pattern, text), (pattern, text)
        assert len(text) == 1


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (r"^\u{1F600}\x41\u00e9\cJ$", ["😀Aé\n"], ["A"]),
        (r"^\uD83D\uDE00$", ["😀"], [""]),
        (r"^[\w-.]+$", ["a-b.c"], ["a b"]),
        (r"^[A-Za-z0-9-._]$", ["-", ".", "_"], ["+"]),
        (r"^a{,$", ["a{,"], ["a"]),
        (r"^(?<year>\d{4})-(?:0|1)$", ["2024-1"], ["2024-2"]),
        (r"^.$", ["a", "é"], ["\n", "\u2028", "\r"]),
        (r"x$|^y", ["ax", "ya"], ["xa", "ay"]),
        (r"^[\b]\/$", ["\b/"], ["b/"]),
        (r"a^|^$", [""], ["a"]),
        (r"^(?=.*\d)(?=.*[a-z]).{4,6}$", ["abc1", "1____z"], ["abcd", "1234", "a1", "abcdef1"]),
        (r"^(?!pattern$).*$", ["patter", "patterns"], ["pattern"]),
        (r"^((?!cd).)*$", ["", "c", "dc", "\\"], ["cd", "acdb"]),
        (r"^\w+(?<!_)$", ["a", "_a"], ["_", "a_"]),
        (r"\bcat\b", ["cat", "a cat.", "(cat)"], ["cats", "écat", "_cat"]),
        (r"^\p{Lu}\p{Script=Greek}\P{L}$", ["Éλ1", "Λλ-"], ["éλ1", "Éx1", "ÉλÉ"]),
        (r"(?i)^hello[^x]$", ["HELLo!", "helloY"], ["hellox", "helloX", "hell"]),
        (r"(?s)^a.b$", ["a\nb"], ["ab"]),
        (r"^a[^]$", ["ab", "a\n"], ["a"]),
        (r"^(a|[])$", ["a"], [""]),
        (r"^\0$", ["\0"], ["0"]),
        (r"^(?i:ab)c(?-i:D)$", ["ABcD", "abcD"], ["abCD", "abcd"]),
        (r"(?i)^a(?-i:b)c$", ["AbC"], ["ABC"]),
        (r"(?s)^.(?-s:.)$", ["\na"], ["a\n"]),
        (r"^(?:^)?a(?:$){1,2}$", ["a"], ["aa"]),
        (r"(?m)^b$", ["b", "a\nb", "a\nb\nc"], ["ab", "a\nbc", "a\u2028b"]),
        (r"^\w\n(?m:^b$)", ["a\nb", "a\nb\nc"], ["a\nbc"]),
        (r"\Aa.\Z", ["ab"], ["ab\n", "\nab"]),
        (r"(?m)\Ab\Z", ["b"], ["a\nb", "b\nc"]),
        (r"^a\Bb\B.$", ["abc"], ["a-b", "ab-"]),
        (r"^-\B.$", ["--", "-+"], ["-a", "-é"]),
        (r"^\B.*$", ["-", "- a"], ["a", "a-", ""]),
        ("[[:]a]", ["[a]", ":a]"], ["]a]"]),
    ],
)
def test_ecma_escapes_and_anchors(pattern: str, inside: list[str], outside: list[str]) -> None:
    walker = Walker.of(JsonSchema({"type": "string", "pattern": pattern}))
    assert [text for text in inside if not walker.accepts_value(text)] == []
    assert [text for text in outside if walker.accepts_value(text)] == []


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "[z-a]", "a**", "*", "a{2,1}", "\\", r"\x4", r"\u{110000}", "(?", "a++"],
)
def test_an_invalid_pattern_is_refused_with_its_position(pattern: str) -> None:
    with pytest.raises(InvalidSchema, match="at character") as caught:
        Walker.of(JsonSchema({"properties": {"a": {"type": "string", "pattern": pattern}}}))
    assert caught.value.pointer == "/properties/a/pattern"


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        r"(?<n>a)\k<n>",
        "(?P<n>a)(?P=n)",
        "((?=ab).b?)*x",
        r"(\b\w\b )+",
        "(?<=ab)c",
        r"\p{Script=Klingon}",
        r"\pL",
        "[]]",
        "[^]a]",
        "(?>a)",
        "a{,3}",
        "x(?i)a",
        "(?x)a",
        "(?ix:a)",
        r"\z",
        "^?[0-9]$",
        "^*a",
        "$+",
        "^{2}a",
        r"\b*a",
        "(?=a)?a",
        "(?<!a){2}b",
        "[[:digit:]]{4}",
        "[^[:^alpha:]_]",
        "[[.a.]]",
        "[[=e=]]",
        "[a-z&&[^aeiou]]",
        "[a-z--[aeiou]]",
    ],
)
def test_what_cannot_be_followed_exactly_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        Walker.of(JsonSchema({"type": "string", "pattern": pattern}))
    assert (caught.value.keyword, caught.value.pointer) == ("pattern", "/pattern")


@pytest.mark.parametrize(
    "pattern",
    [
        "^" + "(?=.*a)" * 500,
        r"\b" * 2000,
        "^(?:" + r"\bab" * 100 + "){60}$",
        "".join(rf"[\W{chr(0x4E00 + index)}]" for index in range(500)),
        "".join(rf"(?<=[\w{chr(0x4E00 + index)}])" for index in range(150)) + "x",
    ],
)
def test_look_around_and_large_classes_without_measure_are_refused_at_once(pattern: str) -> None:
    with pytest.raises((ConstraintTooComplex, UnsupportedSchema)):
        Walker.of(JsonSchema({"type": "string", "pattern": pattern}))


@pytest.mark.parametrize("pattern", ["(" * 30_000, "(" * 2000 + ")" * 2000, "a" * 10_000])
def test_hostile_patterns_are_refused_at_once(pattern: str) -> None:
    with pytest.raises(ConstraintTooComplex):
        Walker.of(JsonSchema({"type": "string", "pattern": pattern}))


@pytest.mark.parametrize("count", ["{9999999999}", "{1,9999999999}", "{0,%s}" % ("9" * 5000)])
def test_a_count_of_too_many_digits_is_refused_and_no_literal_text(count: str) -> None:
    with pytest.raises(ConstraintTooComplex, match="digits"):
        Walker.of(Regex("x" + count))
    assert Walker.of(Regex("x{%s2}" % ("0" * 5000))).accepts("xx")


@pytest.mark.parametrize(
    "pattern", ["^((a{1,1000}){1,1000}){1,1000}$", "(((a?){1,1000}b?){1,1000}c?)*", "(a{1,99999})+"]
)
def test_counts_that_multiply_are_refused(pattern: str) -> None:
    with pytest.raises(ConstraintTooComplex, match="multiply"):
        Walker.of(Regex(pattern))


def test_huge_counts_cost_nothing() -> None:
    walker = Walker.of(JsonSchema({"type": "string", "pattern": "^[a-z]{1,1000000}$"}))
    assert len(walker.pool) < 300
    assert walker.accepts('"abc"')


def test_errors_show_the_place_in_the_pattern() -> None:
    with pytest.raises(InvalidSchema, match=r"at character 10 of the pattern: 'z-a\]\+'"):
        Walker.of(Regex("^abcdefgh[z-a]+"))
    with pytest.raises(UnsupportedSchema, match=r"at character 3 of the pattern: '\\\\1'"):
        Walker.of(Regex(r"(a)\1"))


def test_deep_groups_with_anchors_are_built_in_time() -> None:
    pattern = "(?:^a|" * 50 + "b$" + ")*" * 50
    assert Walker.of(JsonSchema({"type": "string", "pattern": pattern})).accepts('"b"')


def test_a_choice_is_exactly_its_options_in_raw_text() -> None:
    walker = Walker.of(Choice(["yes", 'no "really"', "é", ""]))
    for option in ("yes", 'no "really"', "é", ""):
        assert walker.accepts(option)
    assert not walker.accepts("ye")
    with pytest.raises(InvalidSchema):
        Walker.of(Choice([]))
