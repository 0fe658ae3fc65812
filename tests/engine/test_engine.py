"""Guarantees of the engine beside speed: budgets, ends, limits, and an answer for each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest

from app.core.constraint import Mask
from app.core.errors import (
    BudgetTooSmall,
    ConstraintTooComplex,
    InvalidRequest,
    PromptTooLong,
    WorkPending,
)
from app.core.events import TokenChunk
from app.core.request import EngineRequest
from app.engine import Engine, EngineConfig
from app.engine.batch import Portion
from app.engine.budget import Budget
from app.engine.decoding import Decoder
from app.engine.draft import Draft, Source
from app.engine.sequence import Sequence
from tests.engine.harness import (
    GREEDY,
    HOT,
    LANGUAGES,
    TOKENIZER,
    VOCABULARY,
    Recorder,
    answer_of,
    answers_of,
    check_plain,
    constraint,
    drain,
    make_engine,
    request,
    step,
    templates,
    varied,
)
from tests.engine.naive import naive_answer
from tests.fakes import FiniteConstraint, FiniteState, ScriptedModel, ScriptedRunner
from tests.integrity import check_engine
from tests.wide import many


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_answer_ends_whole_within_every_budget(language: FiniteConstraint) -> None:
    shortest = language.start().shortest_tokens()
    longest = max(map(len, language.answers))
    engine = make_engine(num_blocks=1024)
    for budget in range(max(1, shortest), longest + 2):
        for seed in range(4):
            one = request(allowed=language, max_tokens=budget, sampling=HOT, seed=seed)
            answer = answer_of(engine, one)
            assert answer.data in language.answers
            assert answer.finish_reason == "stop"
            assert len(answer.tokens) <= budget


def test_what_a_longer_token_could_go_on_from_is_held_back_and_drafted() -> None:
    language = constraint(*templates('{"na', ["me", "or", "b"], '": 1', ["2", "1"], "}"))
    held, recorder = 0, Recorder()
    for seed in range(10):
        one = request(allowed=language, sampling=HOT, seed=seed)
        usage = answer_of(make_engine(observer=recorder), one).usage
        held += usage.held_tokens
    assert held > 0
    assert sum(step.drafted_tokens for step in recorder.steps) > 0


def test_a_forced_opening_is_emitted_before_the_model_computes() -> None:
    runner = ScriptedRunner(ScriptedModel(VOCABULARY), num_blocks=64)
    engine = Engine(runner, VOCABULARY, TOKENIZER)
    engine.add(request("forced", allowed=LANGUAGES[0]))
    engine.add(request("whole", allowed=LANGUAGES[4]))
    engine.add(request("free", "go on: ", max_tokens=1))
    outputs = engine.step()
    first = next(outputs)
    assert not runner.plans
    assert set(first.scheduled) == {"forced", "whole", "free"}
    openings = {chunk.request_id: chunk for chunk in first.chunks}
    assert len(openings) == len(first.chunks)
    assert openings["forced"].data == b'{"name": "'
    assert openings["whole"].data == b'{"only": "all of this is forced"}'
    assert openings["whole"].finish_reason == "stop"
    assert "free" not in openings
    (rest,) = outputs
    assert len(runner.plans) == 1
    assert {chunk.request_id for chunk in rest.chunks} == {"forced", "free"}
    assert engine.num_running == 1
    assert not any(output.scheduled for output in [rest, *engine.step()])


def test_an_answer_that_is_forced_to_its_end_needs_no_forward_pass() -> None:
    engine = make_engine()
    answer = answer_of(engine, request(allowed=LANGUAGES[4]))
    assert answer.data == b'{"only": "all of this is forced"}'
    assert answer.finish_reason == "stop"
    assert answer.usage.forward_passes == 0
    assert answer.usage.leapt_tokens == answer.usage.completion_tokens == len(answer.tokens)


def test_a_leapt_answer_is_split_as_the_tokenizer_splits_it() -> None:
    answer = answer_of(make_engine(), request(allowed=LANGUAGES[4]))
    assert answer.tokens == TOKENIZER.encode('{"only": "all of this is forced"}')


def test_the_forced_opening_is_computed_together_with_the_prompt() -> None:
    engine = make_engine()
    engine.add(request(prompt="abc", allowed=constraint('{"name": 1}', '{"name": 2}')))
    opening, *more = step(engine)
    (rest,) = [*more, *_chunks(engine)]
    assert opening.data.startswith(b'{"name": ')
    assert [token.source for token in opening.tokens][:2] == ["leapt", "leapt"]
    assert rest.usage.forward_passes == 1
    assert rest.finish_reason == "stop"


def test_a_queue_of_a_thousand_requests_drains_with_none_lost() -> None:
    language = constraint("yes", "no", "none")
    engine = make_engine(EngineConfig(max_running=16), num_blocks=64)
    requests = [
        request(f"{i}", f"question {i % 7}?", allowed=language, sampling=HOT, seed=i)
        for i in range(1000)
    ]
    answers = answers_of(engine, requests)
    assert len(answers) == 1000
    assert all(answer.data in language.answers for answer in answers.values())
    assert {answer.finish_reason for answer in answers.values()} == {"stop"}


def test_requests_finish_in_order_of_arrival_when_they_run_one_at_a_time() -> None:
    engine = make_engine(EngineConfig(max_running=1))
    for index in range(5):
        engine.add(request(f"{index}", allowed=LANGUAGES[2]))
    ended = [chunk.request_id for chunk in _chunks(engine) if chunk.finish_reason]
    assert ended == ["0", "1", "2", "3", "4"]


def test_a_long_prompt_does_not_keep_others_from_their_tokens() -> None:
    model = ScriptedModel(VOCABULARY, eos=-100.0)
    config = EngineConfig(max_batch_tokens=16, max_running=4)
    engine = make_engine(config, model=model, num_blocks=400)
    engine.add(request("short", "abc", max_tokens=20))
    step(engine)
    engine.add(request("long", "xyz " * 200, max_tokens=2))
    for _ in range(19):
        assert [chunk.request_id for chunk in step(engine)] == ["short"]
    assert drain(engine)["long"].finish_reason == "length"


def test_prompts_that_begin_alike_are_computed_once() -> None:
    recorder = Recorder()
    engine = make_engine(observer=recorder)
    prompt = "the very same system prompt; "
    requests = [request(f"{i}", f"{prompt}{i}", allowed=LANGUAGES[2]) for i in range(4)]
    answers = answers_of(engine, requests)
    length = len(requests[0].prompt)
    cached = [answer.usage.cached_tokens for answer in answers.values()]
    assert sorted(cached) == [0] + [(length - 1) // 4 * 4] * 3
    assert sum(step.prompt_tokens for step in recorder.steps) == 4 * length - sum(cached)
    assert sum(step.cached_tokens for step in recorder.steps) == sum(cached)
    assert sum(step.prefix_hits for step in recorder.steps) == sum(cached) // 4


def test_abort_frees_the_blocks_at_once_and_tells_the_end() -> None:
    engine = make_engine(model=ScriptedModel(VOCABULARY, eos=-100.0), num_blocks=16)
    engine.add(request("running", "abc"))
    engine.add(request("waiting", "abc" * 10))
    step(engine)
    for name in ("running", "waiting"):
        chunk = engine.abort(name)
        assert chunk is not None
        assert chunk.finish_reason == "abort"
        check_engine(engine)
    assert engine._scheduler.blocks.usage == 0.0
    assert step(engine) == []
    assert not engine.has_work
    assert engine.abort("running") is None


def test_a_step_without_work_does_nothing() -> None:
    engine = make_engine()
    assert not engine.has_work
    assert step(engine) == []


@pytest.mark.parametrize("leap", [True, False])
def test_a_stop_string_inside_leapt_text_cuts_the_answer_before_it(leap: bool) -> None:
    one = request(allowed=LANGUAGES[4], stop=(b"this", b"forced"), leap=leap)
    answer = answer_of(make_engine(), one)
    assert answer.data == b'{"only": "all of '
    assert answer.finish_reason == "stop"


def test_chunks_together_are_the_text_before_the_stop_string_and_nothing_of_it() -> None:
    model = ScriptedModel(VOCABULARY)
    stopped = 0
    for seed in range(30):
        one = request(allowed=LANGUAGES[0], sampling=HOT, seed=seed, stop=(b'", "me"', b"baba"))
        answer = answer_of(make_engine(model=model), one)
        whole = naive_answer(varied(one, stop=()), model, VOCABULARY, TOKENIZER).text
        assert answer.data == whole.split(b'", "me"')[0]
        stopped += answer.finish_reason == "stop"
    assert stopped == 30


def test_a_request_that_can_never_fit_is_refused() -> None:
    engine = make_engine(num_blocks=5, block_size=4)
    engine.add(request("fits", [1] * 10, max_tokens=10))
    with pytest.raises(PromptTooLong):
        engine.add(request("longer", [1] * 10, max_tokens=11))
    assert drain(engine).keys() == {"fits"}


def test_a_budget_below_the_shortest_answer_is_refused_and_says_what_is_needed() -> None:
    needed = LANGUAGES[0].start().shortest_tokens()
    with pytest.raises(BudgetTooSmall) as caught:
        make_engine().add(request(allowed=LANGUAGES[0], max_tokens=needed - 1))
    assert caught.value.needed == needed


def test_where_the_tokenizers_split_is_too_long_for_the_budget_the_answer_is_decoded() -> None:
    answer = answer_of(make_engine(), request(allowed=constraint("wxyz1", "wxyz2"), max_tokens=3))
    assert answer.data in (b"wxyz1", b"wxyz2")
    assert answer.usage.leapt_tokens == 0


def test_no_draft_is_computed_that_the_budget_has_no_draw_for() -> None:
    runner = ScriptedRunner(ScriptedModel(VOCABULARY))
    engine = Engine(runner, VOCABULARY, TOKENIZER)
    for budget, computed in ((1, 3), (2, 4)):
        one = request(prompt="abc", allowed=constraint("na", "name"), max_tokens=budget)
        length = len(one.prompt)
        assert answer_of(engine, one).data in (b"na", b"name")
        assert sum(len(span.tokens) for span in runner.plans[-1]) == computed - 3 + length
        runner.plans.clear()


def test_a_draft_is_verified_up_to_the_first_token_that_its_mask_excludes() -> None:
    decoder = Decoder(VOCABULARY, TOKENIZER, EngineConfig(), room=100, branching=True)
    language = constraint("ab", "nab", "nac")
    one = request(allowed=language, max_tokens=2)
    short, long, other = (VOCABULARY.ids[piece] for piece in (b"na", b"n", b"c"))

    def verified(one: EngineRequest, *drafted: int) -> int:
        budget = Budget(one.max_tokens)
        budget.finishes = True
        sequence = Sequence(one, language.start(), budget)
        sequence.draft = Draft(drafted, (Source.HELD_BACK,) * len(drafted))
        return len(decoder.masks(Portion.of(sequence, sequence.gap), 1_000))

    assert verified(one) == 1
    assert verified(one, short) == 2
    assert verified(one, other) == 1
    assert verified(one, long) == 2
    assert verified(replace(one, max_tokens=1), short) == 1


def test_truncation_ends_with_length_and_a_valid_beginning() -> None:
    one = request(allowed=LANGUAGES[0], max_tokens=3, on_budget="truncate")
    answer = answer_of(make_engine(), one)
    assert answer.finish_reason == "length"
    assert len(answer.tokens) == 3
    assert any(whole.startswith(answer.data) for whole in LANGUAGES[0].answers)


@pytest.mark.parametrize(
    "bad",
    [
        request(prompt=[]),
        request(max_tokens=0),
        request(stop=(b"",)),
    ],
)
def test_requests_that_make_no_sense_are_refused(bad: object) -> None:
    with pytest.raises(InvalidRequest):
        make_engine().add(bad)  # type: ignore[arg-type]


def test_two_live_requests_cannot_have_the_same_id() -> None:
    engine = make_engine()
    engine.add(request("same"))
    with pytest.raises(InvalidRequest):
        engine.add(request("same"))


class _BrokenState(FiniteState):
    _constraint: _Broken

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        self._constraint.calls -= 1
        if self._constraint.calls < 0:
            raise self._constraint.error
        return super().mask(budget)


class _Broken(FiniteConstraint):
    """Raises ``error`` after ``calls`` masks."""

    state = _BrokenState

    calls = 0
    error: Exception = RuntimeError("this constraint is broken")


@pytest.mark.parametrize("calls", [0, 1, 3, 4])
def test_a_constraint_that_fails_ends_its_own_answer_and_no_other(calls: int) -> None:
    broken = _Broken(LANGUAGES[1].answers, VOCABULARY)
    broken.calls = calls
    good = [request(f"good {i}", allowed=LANGUAGES[i], sampling=HOT) for i in range(4)]
    model = ScriptedModel(VOCABULARY)
    engine = make_engine(model=model)
    answers = answers_of(engine, [good[0], request("bad", allowed=broken), *good[1:]])
    assert answers["bad"].finish_reason == "error"
    check_plain(answers, good, model)


def test_a_constraint_that_grows_too_complex_ends_its_answer_with_the_error() -> None:
    language = _Broken(LANGUAGES[1].answers, VOCABULARY)
    language.error = ConstraintTooComplex("steps")
    engine = make_engine()
    engine.add(request("one", allowed=language))
    chunks = [chunk for _ in range(9) for chunk in step(engine)]
    assert [chunk.finish_reason for chunk in chunks][-1] == "error"
    assert chunks[-1].error is language.error


class _SlowState(FiniteState):
    _constraint: _Slow

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        self._constraint.calls[self._text] += 1
        if self._constraint.calls[self._text] < 3 and work is not None:
            raise WorkPending
        return super().mask(budget)


class _Slow(FiniteConstraint):
    """Needs three calls for each mask."""

    state = _SlowState

    @cached_property
    def calls(self) -> Counter[bytes]:
        return Counter()


def test_an_answer_whose_masks_take_more_work_waits_and_is_the_same() -> None:
    slow = [_Slow(language.answers, VOCABULARY) for language in LANGUAGES[:3]]
    requests = [
        *(request(f"slow {i}", allowed=slow[i], sampling=HOT, seed=i) for i in range(3)),
        *(request(f"quick {i}", allowed=LANGUAGES[i], sampling=HOT, seed=i) for i in range(3)),
    ]
    model = ScriptedModel(VOCABULARY)
    engine = make_engine(model=model)
    answers = answers_of(engine, requests)
    check_engine(engine)
    for i in range(3):
        assert answers[f"slow {i}"].tokens == answers[f"quick {i}"].tokens
        assert answers[f"slow {i}"].finish_reason == answers[f"quick {i}"].finish_reason


class _SlowToOpenState(FiniteState):
    _constraint: _SlowToOpen

    def prepare(self, *, work: int) -> None:
        self._constraint.given.append(work)
        if self._constraint.had < self._constraint.turns:
            raise WorkPending

    def forced(self) -> bytes:
        assert self._constraint.had == 5, "called before the opening was prepared"
        return super().forced()


class _SlowToOpen(FiniteConstraint):
    """Needs several calls with work to find its opening, and records the work of each call."""

    state = _SlowToOpenState

    turns = 5

    @cached_property
    def given(self) -> list[int]:
        return []

    @property
    def had(self) -> int:
        """Calls with work so far, without the call when its request was added."""
        return sum(work > 0 for work in self.given[1:])


def test_openings_that_take_much_work_are_worked_out_in_turns_and_change_no_answer() -> None:
    slow = [_SlowToOpen(language.answers, VOCABULARY) for language in LANGUAGES[:3]]
    engine = make_engine()
    for number in range(3):
        engine.add(request(f"{number}", allowed=LANGUAGES[number], sampling=HOT, seed=number))
    for number, one in enumerate(slow):
        engine.add(request(f"slow {number}", allowed=one, sampling=HOT, seed=number))
    before = [0, 0, 0]
    for _ in range(10):  # other answers do not wait for slow openings
        step(engine)
        after = [len([work for work in one.given if work > 1_000]) for one in slow]
        assert sum(after) - sum(before) == 1, "not one turn per step"
        before = after
    alone = answers_of(
        make_engine(),
        [request(f"{i}", allowed=LANGUAGES[i], sampling=HOT, seed=i) for i in range(3)],
    )
    answers = drain(engine)
    for i in range(3):
        assert answers[f"slow {i}"].tokens == alone[f"{i}"].tokens
    turns = [[work for work in one.given if work > 1_000] for one in slow]
    assert all(len(given) == 5 for given in turns)
    assert {*turns[0], *turns[1]} == {2_000}, "beside other answers, a turn has 2,000 steps"


def test_at_most_64_hard_openings_are_prepared_between_two_steps() -> None:
    hard = [_SlowToOpen([b"na1", b"na2"], VOCABULARY) for _ in range(66)]
    engine = make_engine()
    engine.add(request("plain", allowed=LANGUAGES[0]))
    for number, one in enumerate(hard):
        engine.add(request(f"{number}", allowed=one, seed=number))
    check_engine(engine)
    assert engine.num_waiting == 67
    assert sum(len(one.given) for one in hard) == 64
    step(engine)
    given = [work for one in hard for work in one.given if work]
    assert len(given) == 65, "one of them had its turn"
    assert {*given} == {1_000}, "with many answers, a turn has no more work"
    answers = drain(engine)
    assert len(answers) == 67
    assert all(answer.finish_reason == "stop" for answer in answers.values())


def test_an_answer_that_is_forced_to_its_end_is_told_though_others_run() -> None:
    engine = make_engine(EngineConfig(max_running=1, max_batch_tokens=64))
    engine.add(request("runs", allowed=LANGUAGES[0]))
    step(engine)
    engine.add(request("waits", allowed=LANGUAGES[1]))
    engine.add(request("whole", allowed=LANGUAGES[4]))
    engine.add(request("left", allowed=LANGUAGES[4]))
    check_engine(engine)
    assert engine.abort("left") is not None
    chunks = {chunk.request_id: chunk for chunk in step(engine)}
    assert chunks["whole"].data == b'{"only": "all of this is forced"}'
    assert not chunks.keys() & {"waits", "left"}
    assert drain(engine)["waits"].finish_reason == "stop"


class _StubbornState(FiniteState):
    _constraint: _Stubborn

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        assert work is not None
        self._constraint.given.append(work)
        if work < 80_000:
            raise WorkPending
        return super().mask(budget)


class _Stubborn(FiniteConstraint):
    """Records the work of each call of ``mask``, and has no mask for less than 80,000."""

    state = _StubbornState

    @cached_property
    def given(self) -> list[int]:
        return []


def test_masks_that_take_much_work_get_their_turns_one_after_the_other() -> None:
    stubborn = [_Stubborn(LANGUAGES[1].answers, VOCABULARY) for _ in range(3)]
    engine = make_engine()
    for number, one in enumerate(stubborn):
        engine.add(request(f"{number}", allowed=one))
    for _ in range(20):
        step(engine)
    for one in stubborn:
        turns = [step for step, work in enumerate(one.given) if work > 1_000][1:]
        assert len(turns) >= 3
        assert turns == list(range(turns[0], turns[-1] + 1, len(stubborn)))
    assert engine.abort("0") is not None
    assert engine.abort("1") is not None
    assert drain(engine)["2"].finish_reason == "stop", "alone, it has its masks at once"
    assert max(stubborn[2].given) == 80_000


def test_openings_and_masks_share_the_turns() -> None:
    stubborn, slow = _Stubborn(LANGUAGES[1].answers, VOCABULARY), _SlowToOpen([b"yes"], VOCABULARY)
    slow.turns = 100
    engine = make_engine()
    engine.add(request("mask", allowed=stubborn))
    engine.add(request("opening", allowed=slow))
    for _ in range(12):
        step(engine)
        turns = [sum(work > 1_000 for work in each.given) for each in (stubborn, slow)]
        assert abs(turns[0] - turns[1]) <= 1
    assert sum(turns) == 12, "one turn per step"


def test_an_answer_that_is_alone_has_its_masks_at_once() -> None:
    stubborn = _Stubborn(LANGUAGES[1].answers, VOCABULARY)
    engine = make_engine()
    engine.add(request("alone", allowed=stubborn))
    assert drain(engine)["alone"].finish_reason == "stop"
    assert stubborn.given[0] == 80_000, "the first call has all the work"


class _HopelessState(FiniteState):
    _constraint: _Hopeless

    turns = 0

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        constraint = self._constraint
        constraint.calls += 1
        self.turns += bool(work)
        self.gave_up = self.turns > 16
        if not self.gave_up:
            raise WorkPending
        self.turns = 0
        rest = self.shortest_completion()
        mask = np.zeros(-(-VOCABULARY.size // 32), np.uint32)
        token = VOCABULARY.ids[rest[:1]] if rest else VOCABULARY.eos
        mask[token >> 5] = 1 << (token & 31)
        return mask

    def prepare(self, *, work: int) -> None:
        self.turns += bool(work)
        if self._constraint.opening:
            raise ConstraintTooComplex("no end of it") if self.turns > 16 else WorkPending()


class _Hopeless(FiniteConstraint):
    """Finds no mask with any amount of work; gives up with a token of the shortest completion."""

    state = _HopelessState

    def __init__(self, answers: Seq[bytes], *, opening: bool = False) -> None:
        super().__init__(answers, VOCABULARY)
        self.opening = opening
        self.calls = 0


def test_an_answer_whose_masks_get_nowhere_goes_on_along_its_shortest_completion() -> None:
    recorder = Recorder()
    engine = make_engine(observer=recorder)
    hopeless = _Hopeless([b"yes", b"yes please"])
    engine.add(request("hopeless", allowed=hopeless))
    others = [request(f"{i}", allowed=LANGUAGES[i % 4], sampling=HOT, seed=i) for i in range(8)]
    for one in others:
        engine.add(one)
    answers = drain(engine)
    assert answers["hopeless"].data == b"yes"
    assert answers["hopeless"].finish_reason == "stop"
    assert hopeless.calls < 500
    assert sum(each.masks_given_up for each in recorder.steps) >= 1
    assert sum(each.masks_put_off for each in recorder.steps) >= 16
    alone = answers_of(make_engine(), others)
    assert all(answers[name].tokens == answer.tokens for name, answer in alone.items())


def test_an_answer_whose_opening_gets_nowhere_fails_before_its_first_token() -> None:
    engine = make_engine()
    engine.add(request("hopeless", allowed=_Hopeless([b"yes", b"no"], opening=True)))
    engine.add(request("other", allowed=LANGUAGES[0]))
    answers = drain(engine)
    assert answers["other"].finish_reason == "stop"
    assert answers["hopeless"].finish_reason == "error"
    assert answers["hopeless"].data == b""


class _JealousState(FiniteState):
    asked: tuple[bool, int] = (False, 0)
    known: frozenset[tuple[bytes, bool]] = frozenset()

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        kind = budget is not None
        key = (self._text, kind)
        if key not in self.known:
            before, calls = self.asked
            self.asked = kind, calls + 1 if before == kind else 1
            if self.asked[1] < 3:
                raise WorkPending
            self.known |= {key}
        return super().mask(budget)


class _Jealous(FiniteConstraint):
    """Needs three calls for a mask. A call with a budget discards the progress of one without, and
    the other way round."""

    state = _JealousState


def test_masks_with_and_without_a_budget_do_not_undo_what_the_other_has() -> None:
    slow = _Jealous(LANGUAGES[1].answers, VOCABULARY)
    answers = answers_of(make_engine(), [request("slow", allowed=slow, max_tokens=30)])
    plain = answers_of(make_engine(), [request("plain", allowed=LANGUAGES[1], max_tokens=30)])
    assert answers["slow"].tokens == plain["plain"].tokens


def test_statistics_of_steps_add_up_to_the_usage_of_answers() -> None:
    recorder = Recorder()
    engine = make_engine(observer=recorder)
    requests = [request(f"{i}", allowed=LANGUAGES[i % 4], seed=i, sampling=HOT) for i in range(12)]
    answers = answers_of(engine, requests)
    usages = [answer.usage for answer in answers.values()]
    entries = [token for answer in answers.values() for token in answer.entries]
    steps = recorder.steps
    assert sum(s.sampled_tokens for s in steps) == sum(t.source == "sampled" for t in entries)
    assert sum(s.leapt_tokens for s in steps) == sum(t.source == "leapt" for t in entries)
    # A later leap may have replaced accepted drafts, which the usage then does not count.
    assert sum(s.drafted_tokens for s in steps) >= sum(u.drafted_tokens for u in usages)
    assert all(step.batch_tokens <= EngineConfig().max_batch_tokens for step in steps)
    assert all(u.leapt_tokens <= u.completion_tokens for u in usages)


def test_an_answer_narrowed_by_its_budget_is_counted_once() -> None:
    language = constraint(*templates(["a", "b"], ["", "a" * 10 + "b"]))
    recorder = Recorder()
    answer = answer_of(make_engine(observer=recorder), request(allowed=language, max_tokens=3))
    assert answer.data in (b"a", b"b")
    assert sum(step.budget_closed for step in recorder.steps) == 1


@pytest.mark.parametrize("drafts", [0, 16])
def test_the_first_value_that_a_budget_ends_is_told(drafts: int) -> None:
    """Compared to a replay of the answer, draw by draw."""
    letters = ["a" * size + "b" for size in range(14)]
    items = ["", "1", "12, 12"]
    language = constraint(*templates('{"me": "', letters, '", "or": [', items, "]}"))
    config = EngineConfig(max_draft_tokens=drafts)
    told = 0
    seeds = many(60, 2)
    for seed in range(seeds):
        most = language.start().shortest_tokens() + seed % 27
        asked = request(allowed=language, max_tokens=most, seed=seed, sampling=HOT, leap=False)
        answer = answer_of(make_engine(config), asked)
        state, prefix, expected = language.start(), b"", None
        for number, token in enumerate(answer.tokens):
            mask = state.mask(most - number)
            if expected is None and state.is_closing(mask, state.mask()):
                expected = prefix
            state.accept(token)
            prefix += VOCABULARY.spell([token])
        assert answer.closed == expected, (most, answer.data)
        told += expected is not None
    assert seeds / 6 < told < seeds


def test_a_budget_with_room_ends_no_value() -> None:
    language = constraint(*templates('{"me": "', ["a", "ab", "abab"], '"}'))
    answer = answer_of(make_engine(), request(allowed=language, max_tokens=40))
    assert answer.closed is None


def test_logprobs_are_those_of_the_draws_and_leapt_tokens_are_certain() -> None:
    asked = replace(GREEDY, logprobs=2)
    answer = answer_of(make_engine(), request(allowed=LANGUAGES[1], sampling=asked))
    for token in answer.entries:
        if token.source == "leapt":
            assert token.logprob == 0.0
        else:
            assert token.logprob <= 0.0
            assert token.top[0].logprob == pytest.approx(token.logprob)


def test_unconstrained_requests_run_beside_constrained_ones() -> None:
    model = ScriptedModel(VOCABULARY, eos=5.0)
    free = [request(f"free {i}", f"{i}", sampling=HOT, seed=i) for i in range(5)]
    bound = [request(f"bound {i}", f"{i}", allowed=LANGUAGES[1], seed=i) for i in range(5)]
    answers = answers_of(make_engine(model=model), [*free, *bound])
    check_plain(answers, (*free, *bound), model)
    assert {answers[one.request_id].finish_reason for one in free} <= {"stop", "length"}


def _chunks(engine: Engine) -> list[TokenChunk]:
    chunks: list[TokenChunk] = []
    while engine.has_work:
        chunks += step(engine)
        check_engine(engine)
    return chunks
