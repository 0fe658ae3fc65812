"""Overlapped steps: launches ahead, their results, and answers that take turns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.core.cache import StateSlots
from app.core.step import Draw, PendingDraws, Span, StepResult
from app.engine import Engine, EngineConfig
from tests.engine.harness import (
    HOT,
    LANGUAGES,
    TOKENIZER,
    VOCABULARY,
    Recorder,
    answers_of,
    check_plain,
    constraint,
    drain,
    plain_answer,
    random_ends,
    random_request,
    random_states,
    request,
    step,
    templates,
)
from tests.fakes import QueuedRunner, ScriptedModel
from tests.integrity import check_engine

ENDLESS = ScriptedModel(VOCABULARY, eos=-100.0)

LETTERS = constraint(*templates([*"abo"], [*"rxy"], [*"klm"], [*"def"], [*"ghi"]))
"""A language without forced text."""

PAIRS = constraint(*templates(["ak", "bk"], ["ci", "di"], ["ak", "bk"], ["ci", "di"], ["ak", "bk"]))
"""A language that forces one letter after each drawn one."""


def overlapped(
    model: ScriptedModel = ENDLESS,
    config: EngineConfig | None = None,
    *,
    blocks: int = 256,
    block_size: int = 4,
    states: StateSlots | None = None,
    observer: Recorder | None = None,
) -> tuple[Engine, QueuedRunner]:
    runner = QueuedRunner(model, num_blocks=blocks, block_size=block_size, states=states)
    config = replace(config or EngineConfig(), overlap=True)
    return Engine(runner, VOCABULARY, TOKENIZER, config, observer), runner


def drawn_by(plan: Sequence[Span]) -> list[int | None]:
    return [span.drawn_by for span in plan]


def test_a_step_is_launched_from_draws_that_nobody_has_waited_for() -> None:
    engine, runner = overlapped()
    engine.add(request("a", "abc", max_tokens=4))
    engine.add(request("b", "xyz", max_tokens=4))
    assert step(engine) == []
    for _ in range(3):
        assert {chunk.request_id for chunk in step(engine)} == {"a", "b"}
    assert len(runner.plans) == 4
    assert [drawn_by(plan) for plan in runner.plans] == [[None, None]] + 3 * [[0, 1]]
    assert runner.most_queued == 2
    assert {chunk.finish_reason for chunk in step(engine)} == {"length"}
    assert len(runner.plans) == 4, "a step was launched ahead after the last token"
    assert not engine.has_work


def test_a_long_prompt_goes_on_while_its_beginning_is_computed() -> None:
    config = EngineConfig(max_batch_tokens=8, max_running=2)
    engine, runner = overlapped(config=config)
    engine.add(request("long", [1] * 30, max_tokens=2))
    answer = drain(engine)["long"]
    assert [plan[0].start for plan in runner.plans] == [0, 8, 16, 24, 30]
    assert drawn_by(runner.plans[-1]) == [0]
    assert runner.most_queued == 2
    assert answer.usage.forward_passes == 5


def test_what_was_computed_for_a_drawn_token_stays_where_a_leap_follows_it() -> None:
    recorder = Recorder()
    engine, runner = overlapped(observer=recorder)
    one = request("one", "abc", allowed=PAIRS, sampling=HOT)
    answer = answers_of(engine, [one])["one"]
    assert answer.tokens == plain_answer(one, ENDLESS).tokens
    void = [number for number, stats in enumerate(recorder.steps) if stats.void_tokens]
    assert void, "no step was void"
    ahead = runner.plans[void[0]][0]
    after = runner.plans[void[0] + 1][0]
    assert ahead.drawn_by == 0
    assert after.start == ahead.start + 1
    assert len(after.tokens) == 1, "the drawn token is computed once"


def test_after_one_wrong_guess_a_place_is_known_for_its_leap() -> None:
    recorder = Recorder()
    engine, _ = overlapped(observer=recorder)
    for seed in range(20):
        answers_of(engine, [request("one", "abc", allowed=PAIRS, sampling=HOT, seed=seed)])
    void = [stats.void_tokens for stats in recorder.steps]
    assert 0 < sum(void) <= 5, "a wrong guess for each of the five places"
    assert not any(void[len(void) // 2 :])


def test_few_answers_that_leap_are_computed_together() -> None:
    engine, runner = overlapped(config=EngineConfig(pipelined_answers=64, draft_branches=False))
    for _ in range(3):  # the first runs learn the places of leaps
        runner.plans.clear()
        answers_of(
            engine,
            [request(f"{i}", f"{i}", allowed=PAIRS, sampling=HOT, seed=i) for i in range(6)],
        )
    assert [len(plan) for plan in runner.plans] == [6] * 5


@pytest.mark.parametrize("count", [8, 9])
def test_many_answers_that_leap_take_turns_in_halves(count: int) -> None:
    config = EngineConfig(pipelined_answers=4, draft_branches=False)
    engine, runner = overlapped(config=config)
    endless = constraint(*templates(*[["ak", "bk"]] * 7))
    for name in ("learned", "counted"):
        runner.plans.clear()
        runner.most_queued = 0
        requests = [
            request(f"{name} {i}", f"{i}", allowed=endless, sampling=HOT, seed=i, max_tokens=14)
            for i in range(count)
        ]
        answers_of(engine, requests)
    sizes = [len(plan) for plan in runner.plans]
    assert runner.most_queued == 2
    assert set(sizes[1:-3]) <= {count // 2, count - count // 2}
    assert sum(sizes) == 7 * count


def test_no_answer_falls_behind_if_halves_are_uneven() -> None:
    config = EngineConfig(pipelined_answers=1, draft_branches=False, max_running=16)
    engine, _ = overlapped(config=config)
    endless = constraint(*templates(*[["ak", "bk"]] * 8))
    answers_of(engine, [request("first", allowed=endless, max_tokens=16)])
    for count in range(2, 9):
        for i in range(count):
            engine.add(request(f"{i}", f"{i}", allowed=endless, sampling=HOT, max_tokens=16))
        live = dict(engine._sequences)
        while engine.has_work:
            step(engine)
            check_engine(engine)
            passes = [sequence.forward_passes for sequence in live.values()]
            assert max(passes) - min(passes) <= 2


@pytest.mark.parametrize("seed", range(120))
def test_under_pressure_and_with_aborts_answers_are_those_of_plain_decoding(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 3.0]))
    languages = [LETTERS, PAIRS, *LANGUAGES]
    requests = [random_request(rng, index) for index in range(rng.randint(2, 12))]
    if rng.random() < 0.5:
        requests = [random_ends(rng, one) for one in requests]
    requests = [
        replace(one, constraint=rng.choice(languages), max_tokens=60) if rng.random() < 0.5 else one
        for one in requests
    ]
    config = EngineConfig(
        max_batch_tokens=rng.choice([16, 20, 100]),
        max_running=rng.choice([3, 8, 16]),
        max_prefill_tokens=rng.choice([2, 16, 64]),
        pipelined_answers=rng.choice([1, 2, 4]),
        spare_tokens=rng.choice([1, 16, 1000]),
    )
    size = rng.choice([1, 2, 4])
    longest = max(len(one.prompt) + one.max_tokens for one in requests)
    blocks = -(-longest // size) + rng.choice([0, 2, 20])
    states = random_states(rng, size) if seed % 2 else None
    engine, _ = overlapped(model, config, blocks=blocks, block_size=size, states=states)
    coming, aborted = list(requests), set[str]()
    texts = dict.fromkeys([one.request_id for one in requests], b"")
    ends = dict[str, str]()
    while coming or engine.has_work:
        if coming and rng.random() < 0.5:
            engine.add(coming.pop())
        if rng.random() < 0.05:
            last = engine.abort(f"r{rng.randrange(len(requests))}")
            if last is not None:
                aborted.add(last.request_id)
                if rng.random() < 0.5:  # the same id again, while its steps are in flight
                    again = next(one for one in requests if one.request_id == last.request_id)
                    coming.append(again)
                    texts[last.request_id] = b""
        for chunk in step(engine):
            texts[chunk.request_id] += chunk.data
            if chunk.finish_reason is not None:
                assert chunk.request_id not in ends
                ends[chunk.request_id] = chunk.finish_reason
        check_engine(engine)
    for one in requests:
        if one.request_id in ends:
            plain = plain_answer(one, model)
            assert texts[one.request_id] == plain.text
            assert ends[one.request_id] == plain.finish_reason
        else:
            assert one.request_id in aborted
    assert engine.kv_usage == engine.state_usage == 0.0


@pytest.mark.parametrize("states", [None, StateSlots(40, 8)])
def test_an_answer_preempted_in_flight_keeps_the_token_that_was_drawn(
    states: StateSlots | None,
) -> None:
    recorder = Recorder()
    engine, _ = overlapped(blocks=12, states=states, observer=recorder)
    requests = [request(f"{i}", f"prompt {i}", max_tokens=28, sampling=HOT) for i in range(3)]
    answers = answers_of(engine, requests)
    assert sum(stats.preemptions for stats in recorder.steps) > 0
    check_plain(answers, requests, ENDLESS)


def test_an_answer_aborted_in_flight_gives_no_more_chunks() -> None:
    engine, runner = overlapped()
    engine.add(request("a", "abc"))
    step(engine)
    last = engine.abort("a")
    assert last is not None
    assert last.finish_reason == "abort"
    check_engine(engine)
    assert runner.most_queued == 1, "a step is in flight"
    assert step(engine) == []
    assert not engine.has_work
    assert len(runner.plans) == 1


def test_serial_and_overlapped_steps_say_the_same_of_every_token() -> None:
    """Log-probabilities, sources and usage are equal, except for the number of passes."""
    told = []
    for config in (EngineConfig(), EngineConfig(overlap=True, pipelined_answers=4)):
        engine = Engine(QueuedRunner(ENDLESS, num_blocks=256), VOCABULARY, TOKENIZER, config)
        asked = replace(HOT, logprobs=3, presence_penalty=0.3, repetition_penalty=1.2)
        requests = [
            request(f"{i}", f"{i}", allowed=allowed, sampling=asked, seed=i, max_tokens=60)
            for i, allowed in enumerate([*LANGUAGES, LETTERS, PAIRS, None])
        ]
        answers = answers_of(engine, requests)
        told.append(
            {
                name: (answer.tokens, answer.entries, answer.finish_reason, _counts(answer.usage))
                for name, answer in answers.items()
            }
        )
    assert told[0] == told[1]


def _counts(usage: object) -> tuple[int, ...]:
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "leapt_tokens")
    return tuple(getattr(usage, name) for name in names)


class _Failing(QueuedRunner):
    """Raises in method ``fails``, after ``after`` calls of it."""

    fails = ""
    after = 0

    def _count(self, name: str) -> None:
        if name == self.fails:
            self.after -= 1
            if self.after < 0:
                raise RuntimeError("the device is lost")

    def launch(self, plan: Sequence[Span]) -> None:
        self._count("launch")
        super().launch(plan)

    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        self._count("sample")
        return super().sample(draws)

    def _draw(self, launched: object, draws: object) -> object:  # type: ignore[override]
        self._count("wait")
        return super()._draw(launched, draws)  # type: ignore[arg-type]


@pytest.mark.parametrize("fails", ["launch", "sample", "wait"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_what_the_runner_raises_is_raised_and_nothing_of_that_step_is_told(
    fails: str, after: int
) -> None:
    runner = _Failing(ENDLESS)
    runner.fails, runner.after = fails, after
    engine = Engine(runner, VOCABULARY, TOKENIZER, EngineConfig(overlap=True))
    one = request("one", "abc", max_tokens=30)
    plain = plain_answer(one, ENDLESS)
    engine.add(one)
    told = b""
    with pytest.raises(RuntimeError, match="the device is lost"):  # noqa: PT012
        while engine.has_work:
            told += b"".join(chunk.data for chunk in step(engine))
    assert plain.text.startswith(told)
    assert len(told) == len(VOCABULARY.spell(plain.tokens[: max(0, after - (fails != "wait"))]))


def test_the_seconds_of_a_step_are_its_own_and_its_idle_time_is_seen() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    idle = []
    for overlap in (True, False):
        recorder = Recorder()
        config = EngineConfig(overlap=overlap)
        runner = QueuedRunner(ENDLESS, num_blocks=64)
        engine = Engine(runner, VOCABULARY, TOKENIZER, config, recorder, clock=clock)
        engine.add(request("one", "abc", max_tokens=6))
        drain(engine)
        assert len(recorder.steps) == 6
        for stats in recorder.steps:
            assert stats.plan_seconds == stats.launch_seconds == stats.mask_seconds == 1.0
        idle.append([stats.idle_seconds > 0 for stats in recorder.steps])
    assert idle == [[False] * 6, [False] + [True] * 5]


def test_nothing_is_used_of_a_step_before_it_is_waited_for() -> None:
    """A check of the fake runner: it computes draws when they are waited for."""
    runner = QueuedRunner(ENDLESS)
    engine = Engine(runner, VOCABULARY, TOKENIZER, EngineConfig(overlap=True))
    engine.add(request("one", "abc"))
    step(engine)
    step(engine)
    assert len(runner._queue) == 1
    assert isinstance(runner._queue[0].wait(), StepResult)
