"""The confidence of each value, from tokens and scored choices made by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, cast

import pytest

from app.answer.choice import ChoiceReader
from app.answer.confidence import (
    ConfidenceReader,
    Scores,
    Tokens,
    text_confidence,
    value_confidences,
)
from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.pieces import (
    Alternative,
    CallArguments,
    CallStart,
    Confidence,
    Measurements,
    TokenByToken,
)
from app.answer.plan import AnswerPlan
from app.answer.reader import AnswerLocator, AnswerReader
from app.answer.tools import FunctionTool, ToolUse
from app.core.choices import ScoredChoice, ScoredWay, Way, WayKind
from app.core.events import AnswerToken, AnswerUsage, TokenChunk
from app.core.json_scan import Place
from app.core.request import GenerationOptions
from app.core.specs import Choice, JsonSchema
from app.core.text import RenderedPrompt

FORMAT = ChatFormat(HERMES, ReasoningFormat("<think>", "</think>"))


def tokens(*pieces: tuple[str, float] | str) -> Tokens:
    """Sampled tokens with their probabilities; a string without one is a leapt token."""
    found = Tokens()
    for each in pieces:
        if isinstance(each, str):
            found.add(AnswerToken(0, each.encode(), "leapt"))
        else:
            found.add(AnswerToken(0, each[0].encode(), "sampled", math.log(each[1])))
    return found


def scored(
    start: int, place: Place, *ways: tuple[WayKind, str, str, float], is_open: bool = False
) -> ScoredChoice:
    """Each way as its kind, its whole text, its text in the constraint, and its probability."""
    return ScoredChoice(
        start,
        place,
        tuple(
            ScoredWay(
                Way(kind, text.encode(), (told.encode(),), ()),
                math.log(share) if share else -math.inf,
            )
            for kind, text, told, share in ways
        ),
        is_open,
    )


def near(probability: float, what: str, which: object) -> Alternative:
    found: Any = pytest.approx(probability)
    return Alternative(found, cast(Any, what), which)


def values(text: str, of: Tokens, choices: Sequence[ScoredChoice] = ()) -> dict[str, Confidence]:
    """Confidences by pointer; that of the next member of a container by ``pointer >``."""
    found = value_confidences(text.encode(), 0, of, choices).entries
    return {each.pointer + (" >" if each.what == "next" else ""): each for each in found}


def test_a_scored_value_is_renormalised_once() -> None:
    text = '{"a": "x"}'
    choice = scored(
        5, Place.VALUE, ("value", '"x"', ' "x"', 0.2), ("value", '"y"', ' "y"', 0.3),
        ("value", "null", " null", 0.0),
    )  # fmt: skip
    found = values(text, tokens('{"a": ', ('"x"', 0.9), "}"), [choice])["/a"]
    assert found.which == "x"
    assert found.probability == pytest.approx(0.4)
    assert found.mass == pytest.approx(0.5)
    assert found.alternatives == [
        near(0.6, "value", "y"),
        Alternative(0.0, "value", None),
    ]
    assert found.tokens is None


def test_a_string_is_the_product_of_the_tokens_that_were_drawn() -> None:
    found = values('{"a": "xyz"}', tokens('{"a":', (' "x', 0.5), "y", ('z"', 0.25), ("}", 0.1)))
    assert found["/a"].probability == pytest.approx(0.125)
    assert found["/a"].tokens == 2
    assert found["/a"].least_likely is not None
    assert found["/a"].least_likely.token == b'z"'
    assert found["/a"].least_likely.probability == pytest.approx(0.25)


def test_a_token_counts_for_one_value_alone() -> None:
    found = values('["a", "b"]', tokens(("[", 0.9), ('"a', 0.5), ('", "', 0.25), ('b"', 0.5), "]"))
    assert found["/0"].probability == pytest.approx(0.125)
    assert found["/1"].probability == pytest.approx(0.5)
    assert found[""].probability == pytest.approx(0.0625)


def test_objects_and_arrays_are_products_of_what_is_below() -> None:
    text = '{"a": [1, 2], "b": true}'
    choices = [
        scored(7, Place.FIRST_ITEM, ("item", "", "1", 0.3), ("end", "", "]", 0.1)),
        scored(9, Place.VALUE, ("value", "2", " 2]", 0.5), ("value", "3", " 3", 0.5)),
        scored(12, Place.NEXT_KEY, ("key", '"b"', ', "b"', 0.2), ("end", "", "}", 0.6)),
        scored(18, Place.VALUE, ("value", "true", " true", 0.1), ("value", "false", " false", 0.4)),
    ]
    found = values(text, tokens('{"a": [', ("1", 0.5), ', 2], "b": true}'), choices)
    assert found["/a >"].which == 0
    assert found["/a"].probability == pytest.approx(0.75 * 0.5 * 0.5)
    assert found[" >"].which == "b"
    assert found[" >"].alternatives == [near(0.75, "next", None)]
    assert found[""].probability == pytest.approx(0.1875 * 0.25 * 0.2)
    assert [*found] == ["", "/a", "/a >", "/a/0", "/a/1", " >", "/b"]


def test_the_end_of_a_list_and_of_numbers() -> None:
    choices = [
        scored(2, Place.NEXT_ITEM, ("item", "", ",", 0.5), ("end", "", "]", 0.5), is_open=True)
    ]
    found = values("[1]", tokens("[", ("1", 0.5), ("]", 1.0)), choices)
    assert found[" >"].which is None
    assert found[" >"].mass is None, "digits could have gone on"
    assert found[" >"].alternatives == [Alternative(0.5, "next", 1)]


def test_one_of_many_tells_its_kind_and_its_tokens() -> None:
    choice = scored(
        0, Place.VALUE, ("string", "", '"', 0.6), ("value", "null", "null", 0.2),
        ("object", "", "{", 0.0),
    )  # fmt: skip
    found = values('"x"', tokens(('"x', 0.5), ('"', 0.5)), [choice])[""]
    assert found.probability == pytest.approx(0.25)
    assert found.mass == pytest.approx(0.8)
    assert found.alternatives == [
        near(0.25, "value", None),
        Alternative(0.0, "type", "object"),
    ]


def test_a_free_key_counts_with_its_tokens() -> None:
    choice = scored(1, Place.FIRST_KEY, ("any key", "", '"', 0.5), ("end", "", "}", 0.5))
    found = values('{"k": 1}', tokens("{", ('"k', 0.5), '": ', ("1", 0.5), "}"), [choice])
    assert found[" >"].which == "k"
    assert found[" >"].probability == pytest.approx(0.25)
    assert found[""].probability == pytest.approx(0.125)


def test_pointers_are_those_of_rfc_6901() -> None:
    text = json.dumps({"a/b": {"~": [{"": 1}]}, "é": 2}, ensure_ascii=False)
    assert {"/a~1b/~0/0/", "/é"} < {*values(text, tokens(text))}


def test_alternatives_beyond_the_limits_are_summed_up() -> None:
    many = [("value", f'"{i:03}"', f'"{i:03}"', 0.01 - i / 1e5) for i in range(100)]
    choice = scored(0, Place.VALUE, *many)  # type: ignore[arg-type]
    alternatives = values('"000"', tokens('"000"'), [choice])[""].alternatives
    assert alternatives is not None
    assert len(alternatives) == 65
    assert alternatives[-1].what == "other"
    assert alternatives[-1].which == 35
    total = sum(each.probability for each in alternatives)
    assert total + values('"000"', tokens('"000"'), [choice])[""].probability == pytest.approx(1)
    long = [("value", f'"{i}{"x" * 200}"', f'"{i}{"x" * 200}"', 0.1) for i in range(5)]
    text = f'"0{"x" * 200}"'
    alternatives = values(text, tokens(text), [scored(0, Place.VALUE, *long)])[""].alternatives  # type: ignore[arg-type]
    assert alternatives is not None
    assert [each.which for each in alternatives][-1] == 2


@pytest.mark.parametrize("text", ['{"a": [1, {"b": "x\\"\\\\"}, -1.5e3, true, null]}', "-12", "[]"])
def test_an_answer_may_be_cut_anywhere(text: str) -> None:
    for length in range(len(text) + 1):
        for each in value_confidences(text[:length].encode(), 0, tokens(text), []).entries:
            assert each.what != "container" or length == len(text) or each.pointer


def test_the_rest_of_an_answer_is_not_copied_for_each_of_its_values() -> None:
    copied: list[int] = []

    class Watched(bytes):
        def __getitem__(self, index: Any) -> Any:
            part = super().__getitem__(index)
            copied.append(len(part) if isinstance(index, slice) else 0)
            return part

    data = Watched(b"[" + b"1, " * 200 + b"1]")
    starts = [1, *range(3, 602, 3)]
    choices = [scored(at, Place.VALUE, ("value", "1", "1", 0.5)) for at in starts]
    assert len(value_confidences(data, 0, Tokens(), choices).entries) == 202
    assert sum(copied) < 2 * len(data)


def test_an_unfinished_value_is_left_out() -> None:
    found = values('{"a": [1, "x', tokens('{"a": [1, "x'))
    assert [*found] == ["/a/0"]


def _plan(*names: str, content: bool = True, tail: str | None = None) -> AnswerPlan:
    use = ToolUse(tuple(FunctionTool(name) for name in names)) if names else None
    spec = JsonSchema({"type": "object"}) if content else None
    return AnswerPlan.of(RenderedPrompt([1], tail), spec, use, FORMAT)


def _confidences(plan: AnswerPlan, text: str, choices: Sequence[ScoredChoice]) -> list[Confidence]:
    data = text.encode()
    spelled = [AnswerToken(byte, bytes([byte]), "sampled", -0.1) for byte in data]
    usage = AnswerUsage(1, 0, 1, 0, 0, 0, 1)
    reader = ChoiceReader(plan, GenerationOptions(confidence=True))
    found: list[Confidence] = []
    for start in range(0, len(data), 7):
        part = slice(start, start + 7)
        last = start + 7 >= len(data)
        chunk = TokenChunk("r", data[part], spelled[part], usage, "stop" if last else None)
        chunk.choices = choices if last else ()
        for piece in reader.read([chunk]):
            if isinstance(piece, Measurements):
                found += piece.confidence or ()
    return found


def test_content_behind_reasoning_is_found() -> None:
    before = "héhé</think>\n\n"
    choice = scored(len(before.encode()) + 5, Place.VALUE, ("value", "1", " 1", 0.5))
    found = _confidences(_plan(tail="<think>\n"), before + '{"a": 1}', [choice])
    assert [(each.pointer, each.call) for each in found] == [("", None), ("/a", None)]
    assert found[1].mass == pytest.approx(0.5)


def test_arguments_of_calls_are_told_apart() -> None:
    text = "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": 1}}}}\n</tool_call>' for name in "fg"
    )
    found = _confidences(_plan("f", "g", content=False), "Wait: é " + text, [])
    assert [(each.call, each.pointer) for each in found] == [
        (0, ""), (0, "/a"), (1, ""), (1, "/a"),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_locator_finds_where_values_begin(size: int) -> None:
    text = 'é</think>\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>\n'
    text += '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    use = ToolUse((FunctionTool("f"),))
    reader = AnswerReader(FORMAT, opening="open", use=use, content_first=False)
    locator = AnswerLocator(reader, content=True)
    data = text.encode()
    starts = [data.find(b'{"a"'), data.find(b"{}")]
    outside = 0
    for at in range(0, len(data), size):
        locator.push(data[at : at + size])
        assert outside <= locator.outside
        outside = locator.outside
        if locator.next_value(0) is None:
            assert outside <= starts[0]
    assert locator.next_value(0) == starts[0]
    assert locator.next_value(starts[0] + 1) == starts[1]
    assert locator.next_value(starts[1] + 1) is None


def test_the_locator_knows_content_before_it_has_come() -> None:
    locator = AnswerLocator(AnswerReader(FORMAT, opening="open", content_first=False), content=True)
    locator.push(b"hm</think>\n")
    assert locator.next_value(0) is None, "another newline may come"
    locator.push(b"\n")
    assert locator.next_value(0) == 12
    locator.push(b"good")
    assert locator.next_value(0) == 12
    assert locator.next_value(13) is None


def _of_text(text: str, of: Tokens, *ways: tuple[str, float]) -> Confidence:
    chosen = [ScoredWay(Way("text", t.encode(), (), (), True), math.log(p)) for t, p in ways]
    choices = [ScoredChoice(0, Place.TEXT, tuple(chosen), False)] if ways else []
    (found,) = text_confidence(text.encode(), 0, of, choices).entries
    return found


def test_the_probability_of_a_text_is_its_share_of_all_ways() -> None:
    found = _of_text("no", tokens(("no", 0.9)), ("no", 0.3), ("no, but", 0.1), ("yes", 0.2))
    assert (found.pointer, found.which, found.tokens) == ("", "no", None)
    assert found.probability == pytest.approx(0.5)
    assert found.mass == pytest.approx(0.6)
    assert found.alternatives == [
        near(1 / 3, "value", "yes"), near(1 / 6, "value", "no, but"),
    ]  # fmt: skip


@pytest.mark.parametrize("ways", [[], [("yes", 0.5)]])
def test_an_unscored_text_has_the_probability_of_its_tokens(ways: list[tuple[str, float]]) -> None:
    found = _of_text("nope", tokens(("no", 0.9), ("pe", 0.5)), *ways)
    assert found.probability == pytest.approx(0.45)
    assert (found.mass, found.tokens) == (None, 2)


def test_inexact_choices_are_reported_by_pointer() -> None:
    text = '{"a": [1, "x"]}'
    notes = [
        ScoredChoice(at, place, (), True, by_tokens=True)
        for at, place in [(5, Place.VALUE), (8, Place.NEXT_ITEM), (9, Place.VALUE)]
    ]
    told = value_confidences(text.encode(), 0, tokens(text), notes)
    assert told.by_tokens == [
        TokenByToken("/a", "value"), TokenByToken("/a", "next"), TokenByToken("/a/1", "value"),
    ]  # fmt: skip
    assert {each.pointer: each.mass for each in told.entries} == dict.fromkeys(
        ["", "/a", "/a/0", "/a/1"]
    )


@pytest.mark.parametrize("confidence", [False, True])
def test_inexact_choices_are_reported_without_confidence_too(confidence: bool) -> None:
    plan = AnswerPlan.of(RenderedPrompt([1], None), Choice(("a", "b")), None, FORMAT)
    reader = ChoiceReader(plan, GenerationOptions(confidence=confidence), exact=True)
    chunk = TokenChunk("r", b"a", [], AnswerUsage(1, 0, 1, 0, 0, 0, 1), "stop")
    chunk.choices = [ScoredChoice(0, Place.TEXT, (), True, by_tokens=True)]
    pieces = reader.read([chunk])
    [measured] = [piece for piece in pieces if isinstance(piece, Measurements)]
    assert measured.inexact == [TokenByToken("", "value")]
    assert (measured.confidence is not None) is confidence


def test_a_plan_says_whether_its_answers_have_json() -> None:
    assert _plan().has_json
    assert _plan().locator is None
    assert _plan("f", content=False).locator is not None
    assert not _plan(content=False).has_json
    assert ConfidenceReader("json").finish() == Scores([], [])


def test_content_that_is_a_choice_is_one_text() -> None:
    plan = AnswerPlan.of(RenderedPrompt([1], None), Choice(("a", "b")), None, FORMAT)
    assert plan.is_text
    assert plan.locator is None
    beside_tools = ToolUse((FunctionTool("f"),))
    plan = AnswerPlan.of(RenderedPrompt([1], ""), Choice(("a", "b")), beside_tools, FORMAT)
    assert not plan.is_text


@pytest.mark.parametrize("exact", [False, True])
def test_arguments_in_another_notation_are_never_exact(exact: bool) -> None:
    reader = ConfidenceReader("free", listed=False, exact=exact)
    start = CallStart(0, "f", 0, 2, in_json=False)
    reader.read([], "f(a=1)", [start, CallArguments(0, '{"a": 1}', 2, 6)])
    expected = [TokenByToken("", "value", 0)] if exact else []
    assert reader.finish() == Scores([], expected)
