"""Structural tags: XGrammar's formats, tested by the answers that they allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core.errors import InvalidRequest
from app.http.requests.structural_tag import structure
from app.http.requests.wire import Ignored
from tests.constraint.walks import Walker

A_ONE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
}
JSON = {"type": "json_schema", "json_schema": A_ONE}
TEXT = {"type": "any_text"}
ONE = '{"a": 1}'


def const(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def tag(begin: str, end: Any, content: Any = JSON) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def triggered(*tags: Any, triggers: tuple[str, ...] = ("<f",), **options: Any) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": list(triggers), "tags": list(tags), **options}


def separated(**options: Any) -> dict[str, Any]:
    return {
        "type": "tags_with_separator",
        "tags": [tag("<a>", "</a>", const("x"))],
        "separator": ",",
        **options,
    }


def times(kind: str, **options: Any) -> dict[str, Any]:
    return {"type": kind, "content": const("ab"), **options}


def sequence(*elements: Any, kind: str = "sequence") -> dict[str, Any]:
    return {"type": kind, "elements": list(elements)}


FA, FB = tag("<fa>", "</f>"), tag("<fb>", "</f>")
CALL_A, CALL_B = f"<fa>{ONE}</f>", f"<fb>{ONE}</f>"

FORMATS: dict[str, tuple[Any, list[str], list[str]]] = {
    "a constant": (const("ab"), ["ab"], ["", "a", "abc"]),
    "a schema": (JSON, [ONE], ["{}", '{"a": "b"}', '{"a": 1, "b": 2}']),
    "a schema of one value": ({"type": "json_schema", "json_schema": True}, ["1", "[]"], [""]),
    "a schema with bounded white space": (
        {**JSON, "max_whitespace_cnt": 1, "style": "json", "any_order": False, "excludes": []},
        [ONE],
        ['{"a":  1}'],
    ),
    "a regex": ({"type": "regex", "pattern": "a+b"}, ["aab"], ["b", "aabx"]),
    "a grammar": (
        {"type": "grammar", "grammar": 'root ::= "" | "a" root "b"'},
        ["", "aabb"],
        ["aab"],
    ),
    "any text": (TEXT, ["", "a\n\x00é"], []),
    "any text but": ({**TEXT, "excludes": ["bad"]}, ["", "ba", "b ad"], ["bad", "a bad b"]),
    "a sequence": (sequence(const("a"), TEXT, const("b")), ["ab", "axbb"], ["a", "abx"]),
    "one of several": (sequence(const("a"), const("b"), kind="or"), ["a", "b"], ["", "ab"]),
    "what may be left out": (times("optional"), ["", "ab"], ["abab"]),
    "any number": (times("star"), ["", "ab", "abab"], ["aba"]),
    "one or more": (times("plus"), ["ab", "abab"], [""]),
    "some": (times("repeat", min=1, max=2), ["ab", "abab"], ["", "ababab"]),
    "some or more": (times("repeat", min=1, max=-1), ["ab", "ab" * 9], [""]),
    "a tag": (FA, [CALL_A], [ONE, f"{CALL_A}x"]),
    "a tag of text": (
        tag("<t>", "</t>", TEXT),
        ["<t></t>", "<t>a</b></t>"],
        ["<t>a", "<t>a</t>b</t>", "<t></t></t>"],
    ),
    "a tag of two ends": (
        tag("<t>", ["</t>", "</u>"], TEXT),
        ["<t>a</t>", "<t>a</u>"],
        ["<t>a</u></t>", "<t>a</t></u>"],
    ),
    "a tag of text whose end overlaps itself": (
        tag("<t>", "aa", TEXT),
        ["<t>aa", "<t>xaa", "<t>axaa"],
        ["<t>aaa", "<t>xaaa"],
    ),
    "a tag without an end": (tag("<t>", ""), [f"<t>{ONE}"], [f"<t>{ONE}x"]),
    "a tag of a sequence that ends in text": (
        tag("<t>", "</t>", sequence(const("c"), TEXT)),
        ["<t>c</t>", "<t>cx</t>"],
        ["<t>c</t></t>"],
    ),
    "a tag of a sequence that begins with text": (
        tag("<t>", "</t>", sequence(TEXT, const("c"))),
        ["<t>xc</t>"],
        ["<t>x</t>c</t>"],
    ),
    "a tag of a choice of texts": (
        tag("<t>", "</t>", sequence(const("c"), TEXT, kind="or")),
        ["<t>c</t>", "<t>x</t>"],
        ["<t>x</t></t>"],
    ),
    "a tag of tags": (
        tag("<t>", "</t>", triggered(FA)),
        ["<t>x</t>", f"<t>x{CALL_A}y{CALL_A}</t>"],
        ["<t></t></t>", f"<t>{CALL_A}</t>x</t>", "<t><f</t>"],
    ),
    "triggered tags": (
        triggered(FA, FB),
        ["", "x", "<", "</f>", CALL_A, f"x{CALL_A}y{CALL_B}z", CALL_A + CALL_B, f"<{CALL_A}"],
        ["<f", "x<fc>", "<fa>{}</f>", f"<fa>{ONE}", f"{CALL_A}<fb>"],
    ),
    "triggered tags, one at least": (
        triggered(FA, at_least_one=True),
        [CALL_A, f"{CALL_A}y", f"{CALL_A}y{CALL_A}"],
        ["", "x", f"x{CALL_A}"],
    ),
    "triggered tags, one at most": (
        triggered(FA, stop_after_first=True),
        ["", "x<", CALL_A, f"x{CALL_A}"],
        [f"{CALL_A}y", CALL_A + CALL_A],
    ),
    "triggered tags, one": (
        triggered(FA, at_least_one=True, stop_after_first=True),
        [CALL_A],
        ["", f"x{CALL_A}", f"{CALL_A}y"],
    ),
    "triggered tags and text that is excluded": (
        triggered(FA, excludes=["bad", "x<"]),
        ["ba", f"b{CALL_A}ok", "x"],
        ["bad", f"{CALL_A}bad", f"x{CALL_A}"],
    ),
    "triggers that overlap": (
        triggered(tag("abx", ".", TEXT), tag("bcx", ".", TEXT), triggers=("ab", "bc")),
        ["abx.", "bcx.", "aabx.", "a", "b"],
        ["abcx.", "ab", "abc"],
    ),
    "a trigger that overlaps itself": (
        triggered(tag("aax", ".", TEXT), triggers=("aa",)),
        ["aax.", "a", "baax."],
        ["aaax."],
    ),
    "a trigger at the end of another": (
        triggered(tag("fx", ".", TEXT), tag("<fy", ".", TEXT), triggers=("f", "<f")),
        ["fx.", "<fy."],
        ["<fx."],
    ),
    "tags with a separator": (
        separated(),
        ["", "<a>x</a>", "<a>x</a>,<a>x</a>"],
        ["<a>x</a>,", "<a>x</a><a>x</a>"],
    ),
    "tags with a separator, one at least": (separated(at_least_one=True), ["<a>x</a>"], [""]),
    "tags with a separator, one at most": (
        separated(stop_after_first=True),
        ["", "<a>x</a>"],
        ["<a>x</a>,<a>x</a>"],
    ),
    "a dispatch": (
        {"type": "dispatch", "rules": [["<f", const("ab")], ["<g", const("cd")]]},
        ["", "y", "x<fab", "x<faby<gcd"],
        ["<f", "<fx", "<fcd"],
    ),
    "a dispatch that ends": (
        {"type": "dispatch", "rules": [["<f", const("ab")]], "loop": False, "excludes": ["bad"]},
        ["", "y", "x<fab"],
        ["x<faby", "bad"],
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_admits_its_texts_and_no_others(name: str) -> None:
    form, admitted, refused = FORMATS[name]
    walker = Walker.of(structure({"type": "structural_tag", "format": form}, "spaced", Ignored()))
    assert [text for text in admitted if not walker.accepts(text)] == []
    assert [text for text in refused if walker.accepts(text)] == []


def test_the_older_form_is_text_with_triggered_tags_in_it() -> None:
    older = {
        "structures": [
            {"begin": "<fa>", "schema": A_ONE, "end": "</f>"},
            {"begin": "<fb>", "schema": json.dumps(A_ONE), "end": "</f>"},
        ],
        "triggers": ["<f"],
    }
    for value in (older, {"type": "structural_tag", **older}, json.dumps(older)):
        walker = Walker.of(structure(value, "spaced", Ignored()))
        for text in FORMATS["triggered tags"][1]:
            assert walker.accepts(text)
        for text in FORMATS["triggered tags"][2]:
            assert not walker.accepts(text)


def test_json_inside_tags_has_the_white_space_that_was_asked_for() -> None:
    form = {"format": tag("<t>", "</t>")}
    assert Walker.of(structure(form, "compact", Ignored())).accepts('<t>{"a":1}</t>')
    assert not Walker.of(structure(form, "compact", Ignored())).accepts('<t>{"a": 1}</t>')
    assert Walker.of(structure(form, "spaced", Ignored())).accepts('<t>{"a": 1}</t>')


@pytest.mark.parametrize(
    ("form", "place"),
    [
        (triggered(FA, triggers=("<g",)), "tags[0].begin"),
        (triggered(FA, triggers=("<f", "<fa")), "triggers[1]"),
        (triggered(FA, triggers=()), "triggers"),
        (triggered(FA, triggers=("",)), "triggers[0]"),
        (triggered(), "tags"),
        (triggered(FA, excludes=["<"]), "triggers[0]"),
        (triggered(FA, excludes=[""]), "excludes[0]"),
        (triggered(FA, at_least_one=1), "at_least_one"),
        (triggered({**FA, "begin": {"type": "token", "token": 1}}), "tags[0].begin"),
        (tag("<t>", [], TEXT), "end"),
        (tag("<t>", 1, TEXT), "end"),
        (tag("<t>", "</t>", {"type": "qwen_xml_parameter", "json_schema": {}}), "content.type"),
        (tag("<t>", "</t>", {**JSON, "style": "qwen_xml"}), "content.style"),
        ({**JSON, "any_order": True}, "any_order"),
        ({**JSON, "excludes": ["a"]}, "excludes"),
        ({**JSON, "max_whitespace_cnt": 0}, "max_whitespace_cnt"),
        ({"type": "json_schema", "json_schema": "{}"}, "json_schema"),
        ({**TEXT, "max_tokens": 3}, "max_tokens"),
        ({**TEXT, "max_chars": 3}, "max_chars"),
        ({"type": "token", "token": 3}, "type"),
        ({"type": "any_tokens"}, "type"),
        ({"type": 1}, "type"),
        ({}, "type"),
        (sequence(), "elements"),
        (sequence(const("a"), {"type": "foo"}), "elements[1].type"),
        (times("repeat", min=2, max=1), "max"),
        (times("repeat", min=-1, max=1), "min"),
        (times("repeat", min=True, max=1), "min"),
        ({"type": "star"}, "content"),
        ({"type": "dispatch", "rules": [["a"]]}, "rules[0]"),
        ({"type": "dispatch", "rules": [["", TEXT]]}, "rules[0][0]"),
    ],
)
def test_an_invalid_format_is_refused_with_its_position(form: Any, place: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        structure({"format": form}, "spaced", Ignored())
    assert refusal.value.param == f"structural_tag.format.{place}"
    assert refusal.value.param in refusal.value.message


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("{", "structural_tag"),
        (json.dumps([1]), "structural_tag"),
        ({}, "structural_tag.triggers"),
        ({"triggers": ["<f"]}, "structural_tag.structures"),
        ({"triggers": ["<f"], "structures": [1]}, "structural_tag.structures[0]"),
        (
            {"triggers": ["<f"], "structures": [{"begin": "<f", "end": ""}]},
            "structural_tag.structures[0].schema",
        ),
        (
            {"triggers": ["<f"], "structures": [{"begin": "<f", "end": "", "schema": "{"}]},
            "structural_tag.structures[0].schema",
        ),
        ({"type": "json_schema", "format": TEXT}, "structural_tag.type"),
        ({"format": [TEXT]}, "structural_tag.format"),
    ],
)
def test_an_invalid_structural_tag_is_refused_with_its_position(value: Any, place: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        structure(value, "spaced", Ignored())
    assert refusal.value.param == place


def test_a_tag_that_would_take_long_to_read_is_refused() -> None:
    many = [f"<{index:04}>" for index in range(1_000)]
    nested: Any = TEXT
    for _ in range(70):
        nested = sequence(nested)
    twice: Any = TEXT
    for _ in range(5):
        twice = triggered(tag("<f>", "</f>", twice), at_least_one=True)
    forms: list[Any] = [
        triggered(*(tag(begin, ".") for begin in many), triggers=tuple(many)),
        tag("<t>", many, sequence(*[const("a")] * 1_000, kind="or")),
        nested,
        twice,
    ]
    for form in forms:
        with pytest.raises(InvalidRequest) as refusal:
            structure({"format": form}, "spaced", Ignored(), "response_format")
        assert str(refusal.value.param).startswith("response_format")
