"""Ends of answers beside the constraint: ``min_tokens``, stop tokens and strings, and thinking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from app.core.constraint import Mask
from app.core.errors import InvalidRequest
from app.core.request import EngineRequest, ThinkingBudget
from app.core.step import Draw, PendingDraws
from app.engine import Engine
from app.engine.budget import Thinking
from app.engine.stop_tokens import EditedMasks, StopTokens
from tests.engine.harness import (
    HOT,
    LANGUAGES,
    TOKENIZER,
    VOCABULARY,
    Recorder,
    answer_of,
    answers_of,
    constraint,
    make_engine,
    request,
    templates,
    varied,
)
from tests.fakes import FiniteConstraint, ScriptedModel, ScriptedRunner
from tests.wide import many

EAGER = ScriptedModel(VOCABULARY, eos=100.0)
"""A model that ends its answer as soon as it may."""
FORCED = '{"only": "all of this is forced"}'
OPENED = constraint(*templates(["xyx|", "xl", ""], ["1", "1" * 11 + "3"]))
REASONED = constraint(*templates(["", "x" * 4, "x" * 12], "<|>", ["1", "1" * 11 + "3"]))
CUT = constraint(*templates('{"a": "', ["ab", "b", "1"], '", "x": ', ["1", "2"], ', "c"}'))


def test_no_answer_ends_before_min_tokens() -> None:
    for least in (0, 1, 7, 20):
        one = varied(request(max_tokens=20), min_tokens=least)
        answer = answer_of(make_engine(model=EAGER), one)
        assert len(answer.tokens) == least
        assert answer.finish_reason == ("length" if least == 20 else "stop")


def test_a_stop_token_is_not_drawn_before_min_tokens() -> None:
    every = tuple(range(256))
    one = varied(request(max_tokens=20), min_tokens=5, stop_token_ids=every)
    answer = answer_of(make_engine(model=ScriptedModel(VOCABULARY, by_bytes=True)), one)
    assert len(answer.tokens) == 5
    assert not set(answer.tokens) & set(every)
    assert answer.finish_reason == "stop"


def test_an_answer_goes_on_before_min_tokens_as_far_as_its_constraint_does() -> None:
    language = constraint("n", "na", "nab", "nabab")
    for least, text in ((0, b"n"), (2, b"na"), (3, b"nab"), (40, b"nabab")):
        one = varied(request(allowed=language, leap=False), min_tokens=least)
        model = ScriptedModel(VOCABULARY, by_bytes=True, eos=100.0)
        answer = answer_of(make_engine(model=model), one)
        assert (answer.data, answer.finish_reason) == (text, "stop")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("open_ended", [True, False])
def test_answers_are_whole_within_every_budget_whatever_puts_their_end_off(
    language: FiniteConstraint, open_ended: bool
) -> None:
    shortest = language.start().shortest_tokens()
    longest = max(map(len, language.answers))
    engine = make_engine(num_blocks=1024)
    for budget in range(max(1, shortest), longest + 2):
        for seed in range(4):
            one = varied(
                request(allowed=language, max_tokens=budget, sampling=HOT, seed=seed),
                min_tokens=budget - seed % 2,
                ignore_eos=seed > 1,
                open_ended=open_ended,
                stop_token_ids=(VOCABULARY.special,),
                thinking=ThinkingBudget(seed * 3, b"a"),
            )
            answer = answer_of(engine, one)
            assert answer.data in language.answers
            assert len(answer.tokens) <= budget


def test_a_stop_string_counts_from_min_tokens_on_wherever_it_begins() -> None:
    """The tokens are '{"', 'o', 'n', 'l', 'y', '": "', 'a', 'll', ' ', 'o', 'f', ..."""
    tokens = TOKENIZER.encode(FORCED)
    for least, stop, text in (
        (0, b"o", '{"'),
        (1, b"o", '{"'),
        (2, b"o", '{"only": "all '),
        (7, b'"a', FORCED),
        (7, b'": "al', '{"only'),
        (8, b"all", FORCED),
        (len(tokens), b"d", FORCED),
    ):
        one = request(allowed=constraint(FORCED), stop=(stop,))
        answer = answer_of(make_engine(), varied(one, min_tokens=least))
        assert (answer.data.decode(), answer.finish_reason) == (text, "stop"), (least, stop)


def test_without_an_end_of_sequence_an_answer_has_all_its_tokens() -> None:
    one = varied(request(max_tokens=13, sampling=HOT), ignore_eos=True)
    answer = answer_of(make_engine(model=EAGER), one)
    assert len(answer.tokens) == 13
    assert answer.finish_reason == "length"


def test_without_an_end_of_sequence_a_constrained_answer_goes_on_to_where_it_must_end() -> None:
    for seed in range(10):
        one = varied(request(allowed=LANGUAGES[2], seed=seed, sampling=HOT), ignore_eos=True)
        answer = answer_of(make_engine(model=EAGER), one)
        assert answer.data in (b"yes", b"none", b"name")
        assert answer.finish_reason == "stop"


def test_a_stop_token_ends_an_answer_and_adds_nothing_but_is_counted() -> None:
    plain = answer_of(make_engine(), request(max_tokens=10))
    token = plain.tokens[5]
    assert token not in plain.tokens[:5]
    one = varied(request(max_tokens=10), stop_token_ids=(token,))
    answer = answer_of(make_engine(), one)
    assert answer.tokens == plain.tokens[:5]
    assert answer.data == VOCABULARY.spell(plain.tokens[:5])
    assert answer.finish_reason == "stop"
    assert [entry.token_id for entry in answer.entries] == plain.tokens[:6]
    assert answer.usage.completion_tokens == 6


def test_a_stop_token_of_no_bytes_ends_a_constrained_answer_just_where_it_is_whole() -> None:
    stops = (VOCABULARY.special,)
    ended = set()
    for seed in range(100):
        one = request(prompt=f"{seed}", allowed=LANGUAGES[2], seed=seed, sampling=HOT)
        answer = answer_of(
            make_engine(), varied(one, ignore_eos=True, stop_token_ids=stops, leap=False)
        )
        assert answer.data in LANGUAGES[2].answers
        assert answer.finish_reason == "stop"
        if answer.entries[-1].token_id == VOCABULARY.special:
            ended.add(answer.data)
    assert ended == {b"n", b"no"}


def test_a_stop_token_that_a_leap_brings_cuts_the_answer_before_it() -> None:
    token = VOCABULARY.ids[b"ll"]
    one = varied(request(allowed=constraint(FORCED)), stop_token_ids=(token,))
    recorder = Recorder()
    answer = answer_of(make_engine(observer=recorder), one)
    assert answer.data == b'{"only": "a'
    assert answer.finish_reason == "stop"
    assert answer.entries[-1].token_id == token
    assert answer.usage.completion_tokens == answer.usage.leapt_tokens == len(answer.entries)
    assert sum(step.leapt_tokens for step in recorder.steps) == len(answer.entries)
    early = answer_of(make_engine(), varied(one, min_tokens=20))
    assert early.data == FORCED.encode()


def test_a_stop_token_that_a_leap_makes_of_old_text_ends_nothing() -> None:
    """ "n" is drawn, then "ame12" is forced, which the tokenizer splits as "name", "12"."""
    language = constraint("name12", "yes")
    one = varied(request(allowed=language), stop_token_ids=(VOCABULARY.ids[b"na"],))
    model = ScriptedModel(VOCABULARY, by_bytes=True)
    answers = {
        answer_of(make_engine(model=model), replace(one, prompt=(prompt,))).data
        for prompt in range(30)
    }
    assert answers == {b"name12", b"yes"}
    cut = varied(one, stop_token_ids=(VOCABULARY.ids[b"name"],))
    answers = {
        answer_of(make_engine(model=model), replace(cut, prompt=(prompt,))).data
        for prompt in range(30)
    }
    assert answers == {b"n", b"yes"}


@pytest.mark.parametrize("leap", [True, False])
@pytest.mark.parametrize("stop", [b'b", "', b'": "ab', b'1, "', b'ab", "x"'])
def test_a_stop_string_across_sampled_and_leapt_text_is_found(leap: bool, stop: bytes) -> None:
    for seed in range(many(12, 2)):
        one = request(allowed=CUT, sampling=HOT, seed=seed, leap=leap)
        whole = answer_of(make_engine(), one).data
        answer = answer_of(make_engine(), varied(one, stop=(stop,)))
        assert answer.data == whole.split(stop)[0]
        assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("min_tokens", {"min_tokens": 41}),
        ("min_tokens", {"min_tokens": -1}),
        ("stop_token_ids", {"stop_token_ids": (1, VOCABULARY.size)}),
        ("stop_token_ids", {"stop_token_ids": (-1,)}),
        ("stop_token_ids", {"stop_token_ids": (1,) * 1025}),
    ],
)
def test_stop_tokens_that_make_no_sense_are_refused_by_name(
    field: str, bad: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_engine().add(varied(request(max_tokens=40), **bad))
    assert caught.value.param == field


@pytest.mark.parametrize("open_ended", [True, False])
def test_an_answer_whose_free_text_the_budget_ended_was_cut(open_ended: bool) -> None:
    language = constraint(*["ab" * length for length in range(1, 10)])
    one = request(allowed=language, max_tokens=2, leap=False, on_budget="truncate")
    engine = make_engine(model=ScriptedModel(VOCABULARY, eos=-100.0))
    answer = answer_of(engine, replace(one, open_ended=open_ended))
    assert answer.data in language.answers
    assert answer.finish_reason == ("length" if open_ended else "stop")
    last = replace(one, max_tokens=100, open_ended=open_ended)
    assert answer_of(engine, last).finish_reason == "stop"


@pytest.mark.parametrize("leap", [True, False])
@pytest.mark.parametrize(
    ("tokens", "least"), [(0, 5), (4, 5), (5, 13), (12, 13), (13, 17), (100, 17)]
)
def test_what_is_kept_is_left_when_the_mark_appears_and_not_before(
    tokens: int, least: int, leap: bool
) -> None:
    """20 tokens: 12, 4 or none for the reasoning, 3 for the mark, 12 or 1 for the answer."""
    spent = set()
    engine = make_engine(model=ScriptedModel(VOCABULARY, by_bytes=True, eos=-100.0))
    for prompt in range(30):
        one = request(prompt=(prompt,), allowed=REASONED, max_tokens=20, leap=leap)
        one = varied(one, thinking=ThinkingBudget(tokens, b"<|>"), ignore_eos=True)
        answer = answer_of(engine, one)
        left = 20 - answer.tokens.index(VOCABULARY.ids[b">"]) - 1
        assert answer.data.split(b"|>")[1] == (b"1" if left < 12 else b"1" * 11 + b"3")
        spent.add(left)
    assert min(spent) == least


def test_a_thinking_budget_that_keeps_too_much_keeps_less() -> None:
    language = constraint(*templates(["x", "xxx", "xxxxx"], "|", ["ab", "abab", ""]))
    engine = make_engine()
    for budget in range(2, 8):
        for seed in range(8):
            one = request(allowed=language, max_tokens=budget, seed=seed, sampling=HOT)
            answer = answer_of(engine, replace(one, thinking=ThinkingBudget(budget - 2, b"|")))
            assert answer.data.startswith(b"x|")
            more = replace(one, thinking=ThinkingBudget(1000, b"|"))
            assert answer_of(engine, more).data.startswith(b"x|")


@pytest.mark.parametrize("leap", [True, False])
def test_nothing_is_kept_where_the_answer_begins_in_another_way(leap: bool) -> None:
    """5 of 17 tokens are not reserved; an answer has 1 or 12 tokens after its reasoning."""
    engine = make_engine(model=ScriptedModel(VOCABULARY, by_bytes=True))
    kept: dict[bytes, set[bytes]] = {b"xy": set(), b"x": set()}
    for opening, answers in kept.items():
        for prompt in range(60):
            one = request(prompt=(prompt,), allowed=OPENED, max_tokens=17, leap=leap)
            one = varied(one, thinking=ThinkingBudget(12, b"|", opening), ignore_eos=True)
            answers.add(answer_of(engine, one).data)
    long = b"1" * 11 + b"3"
    assert kept[b"xy"] == {long, b"xl" + long, b"xyx|" + long}
    assert kept[b"x"] == {long, b"xl1", b"xyx|" + long}


def test_a_mark_is_looked_for_after_the_opening_and_may_come_in_pieces() -> None:
    thinking = Thinking(ThinkingBudget(3, b"aba", b"abab"), 9)
    for data, tokens in ((b"aba", 3), (b"b", 3), (b"ab", 3), (b"cab", 3), (b"ac", 0)):
        assert thinking.after(data) == tokens
        thinking.feed(data)
        assert thinking.kept == tokens


def test_what_is_kept_for_a_mark_that_need_not_come_is_spent_all_the_same() -> None:
    language = constraint(*["a" * length for length in range(1, 30)])
    one = request(allowed=language, max_tokens=9, leap=False)
    one = varied(one, thinking=ThinkingBudget(5, b"|"), ignore_eos=True, open_ended=True)
    answer = answer_of(make_engine(), one)
    assert len(answer.tokens) == 9
    assert answer.finish_reason == "length"


class _Noting(ScriptedRunner):
    """Records the masks of its draws."""

    def __init__(self) -> None:
        super().__init__(ScriptedModel(VOCABULARY, eos=50.0), num_blocks=256)
        self.masks: list[Mask | None] = []

    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        self.masks += [each.mask for each in draws if each is not None]
        return super().sample(draws)


def masks_of(*requests: EngineRequest) -> list[Mask | None]:
    runner = _Noting()
    answers_of(Engine(runner, VOCABULARY, TOKENIZER), requests)
    return runner.masks


def test_free_answers_with_the_same_ends_share_one_mask_and_the_others_have_none() -> None:
    least = [varied(request(f"{i}", max_tokens=9), min_tokens=i + 1) for i in range(4)]
    masks = masks_of(*least, request("free"))
    assert any(mask is None for mask in masks)
    edited = {id(mask): mask for mask in masks if mask is not None}
    assert len(edited) == 1
    (mask,) = edited.values()
    assert mask.flags.owndata
    assert not mask.flags.writeable
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    expected = [token < VOCABULARY.size and token != VOCABULARY.eos for token in range(len(bits))]
    assert bits.tolist() == expected


def test_an_edited_mask_is_made_once() -> None:
    language = constraint(*["ab" * length for length in range(1, 12)])
    one = varied(request(allowed=language, leap=False), min_tokens=8)
    masks = masks_of(*(replace(one, request_id=f"{i}") for i in range(10)))
    distinct = {id(mask): mask for mask in masks if mask is not None}
    assert len(distinct) < len(masks) / 5
    assert all(mask.flags.owndata and not mask.flags.writeable for mask in distinct.values())


def test_edited_masks_are_kept_within_their_bound_and_those_of_a_budget_not_at_all() -> None:
    words = -(-VOCABULARY.size // 32)
    edited = EditedMasks(VOCABULARY.size, max_bytes=3 * 8 * words)
    stop_tokens = StopTokens.of(varied(request(), ignore_eos=True), VOCABULARY)
    assert stop_tokens is not None
    edit = stop_tokens.edit(0, complete=True)
    assert edit is not None
    masks = [np.full(words, 1 << VOCABULARY.eos % 32 | 1 << start, np.uint32) for start in range(5)]
    for mask in masks:
        mask.flags.writeable = False
    first = edited.get(masks[0], edit)
    for mask in masks:
        assert edited.get(mask, edit) is edited.get(mask, edit)
        assert edited.get(masks[0], edit) is first, "the least recently used goes first"
    assert len(edited._kept) == 3
    narrowed = np.full(words, 0xFFFFFFFF, np.uint32)
    assert edited.get(narrowed, edit) is not edited.get(narrowed, edit)
    assert len(edited._kept) == 3


def test_an_edit_that_changes_nothing_gives_the_very_mask() -> None:
    words = -(-VOCABULARY.size // 32)
    edited = EditedMasks(VOCABULARY.size)
    stop_tokens = StopTokens.of(varied(request(), ignore_eos=True), VOCABULARY)
    assert stop_tokens is not None
    edit = stop_tokens.edit(0, complete=True)
    assert edit is not None
    plain = np.ones(words, np.uint32)
    assert edited.get(plain, edit) is plain
    assert StopTokens.of(request(), VOCABULARY) is None
