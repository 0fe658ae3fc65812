"""Recurrent layers: states that spans read and save, and positions where sequences resume."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.core.cache import StateSlots
from app.core.constraint import Constraint
from app.core.step import Span
from app.engine import Engine, EngineConfig
from tests.engine.harness import (
    HOT,
    LANGUAGES,
    VOCABULARY,
    Answer,
    Recorder,
    answer_of,
    answers_of,
    check_plain,
    constraint,
    drain,
    live,
    make_engine,
    random_config,
    random_ends,
    random_groups,
    random_request,
    random_states,
    request,
    step,
    templates,
)
from tests.fakes import Group, ScriptedModel, ScriptedRunner
from tests.integrity import check_engine

ENDLESS = ScriptedModel(VOCABULARY, eos=-100.0)
BY_BYTES = ScriptedModel(VOCABULARY, by_bytes=True)

LAYERS: dict[str, Sequence[Group]] = {"attention as well": [Group(400)], "nothing else": ()}


def spans_of(engine: Engine) -> list[Span]:
    """All spans that were launched, of all sequences."""
    runner = engine._runner
    assert isinstance(runner, ScriptedRunner)
    return [span for plan in runner.plans for span in plan]


def cached(answer: Answer) -> int:
    return answer.usage.cached_tokens


def recurrent(
    slots: int = 40,
    interval: int = 1000,
    groups: Sequence[Group] = (),
    config: EngineConfig | None = None,
    model: ScriptedModel = ENDLESS,
    observer: Recorder | None = None,
) -> Engine:
    states = StateSlots(slots, interval)
    return make_engine(config, model=model, groups=groups, states=states, observer=observer)


def test_a_runner_with_too_few_slots_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="2 slots for recurrent states"):
        recurrent(slots=2)
    recurrent(slots=3)


def test_without_attention_a_sequence_is_as_long_as_the_model_allows() -> None:
    assert recurrent().max_sequence_tokens == 4096
    assert recurrent(groups=[Group(10)]).max_sequence_tokens == 40


@pytest.mark.parametrize("layers", LAYERS)
def test_the_same_prompt_starts_from_its_last_block_border(layers: str) -> None:
    engine = recurrent(groups=LAYERS[layers])
    prompt = [7] * 23
    first = answer_of(engine, request("first", prompt, max_tokens=3))
    again = answer_of(engine, request("again", prompt, max_tokens=3))
    longer = answer_of(engine, request("longer", [*prompt, *range(30)], max_tokens=3))
    assert [cached(each) for each in (first, again, longer)] == [0, 20, 20]
    assert first.tokens == again.tokens
    starts = [span.start for span in spans_of(engine) if len(span.tokens) > 1]
    assert starts == [0, 20, 20]


@pytest.mark.parametrize("layers", LAYERS)
def test_prompts_that_part_at_once_are_computed_once_up_to_there(layers: str) -> None:
    recorder = Recorder()
    engine = recurrent(groups=LAYERS[layers], observer=recorder)
    shared = [5] * 30
    answers = answers_of(engine, [request(f"{i}", [*shared, i, i, i, i, i]) for i in range(6)])
    assert [cached(answers[f"{i}"]) for i in range(6)] == [0] + [28] * 5
    assert sum(stats.prompt_tokens for stats in recorder.steps) == 35 + 5 * 7


@pytest.mark.parametrize("layers", LAYERS)
def test_where_prompts_part_later_on_the_second_makes_the_checkpoint_for_the_third(
    layers: str,
) -> None:
    engine = recurrent(groups=LAYERS[layers])
    shared = [5] * 30
    found = [
        cached(answer_of(engine, request(f"{i}", [*shared, *[i] * 9], max_tokens=2)))
        for i in range(4)
    ]
    assert found == [0, 0, 28, 28]


def test_long_prompts_have_checkpoints_at_intervals() -> None:
    engine = recurrent(interval=16, config=EngineConfig(max_batch_tokens=50, max_running=4))
    answer_of(engine, request("long", [5] * 100, max_tokens=2))
    other = answer_of(engine, request("other", [*[5] * 70, *[6] * 9], max_tokens=2))
    assert cached(other) == 64
    borders = [span.start + done for span in spans_of(engine) for done, _ in span.saves]
    assert borders[:7] == [16, 32, 48, 50, 64, 80, 96]


@pytest.mark.parametrize("order", ["serial", "overlapped"], indirect=True)
def test_a_conversation_goes_on_from_a_checkpoint_in_its_last_answer() -> None:
    engine = recurrent(interval=4)
    first = answer_of(engine, request("first", [5] * 3, max_tokens=14))
    second = answer_of(engine, request("second", [5] * 3 + first.tokens + [6, 6], max_tokens=2))
    assert cached(second) == 16


def test_a_checkpoint_is_found_within_its_scope_only() -> None:
    engine = recurrent()
    found = []
    for number, scope in enumerate(["a", "b", "a", "b"]):
        one = replace(request(f"{number}", [5] * 30, max_tokens=2), scope=scope)
        found.append(cached(answer_of(engine, one)))
    assert found == [0, 0, 28, 28]


def test_nothing_is_kept_for_later_prompts_where_prefixes_are_not_shared() -> None:
    engine = recurrent(interval=4, config=EngineConfig(share_prefixes=False))
    for name in ("first", "again"):
        assert cached(answer_of(engine, request(name, [5] * 30, max_tokens=2))) == 0
    assert all(len(span.saves) == 1 for span in spans_of(engine))


def test_a_checkpoint_that_made_room_is_computed_again() -> None:
    engine = recurrent(slots=5)
    found = []
    for number in (1, 1, 2, 3, 4, 5, 1):
        found.append(cached(answer_of(engine, request("one", [number] * 30, max_tokens=2))))
    assert found == [0, 28, 0, 0, 0, 0, 0]


def test_an_answer_that_takes_nothing_back_has_one_slot() -> None:
    engine = recurrent()
    answer_of(engine, request("one", [5] * 30, max_tokens=12))
    prompt, first, *later = spans_of(engine)
    assert [done for done, _ in prompt.saves] == [28, 30]
    assert first.saves == [(1, first.state)] == [(1, prompt.saves[-1][1])]
    assert all(span.saves == [(1, span.state)] for span in later)


def test_a_long_prompt_is_computed_in_one_slot() -> None:
    engine = recurrent(config=EngineConfig(max_batch_tokens=8, max_running=2))
    one = request("one", [5] * 30, allowed=constraint("ab", "ba"), max_tokens=3)
    answer_of(engine, one)
    first, *later = [span for span in spans_of(engine) if span.start + len(span.tokens) < 28]
    assert first.state == 0
    assert all(span.saves == [(8, span.state)] for span in later)


def test_states_before_drafted_tokens_are_kept_where_there_is_room() -> None:
    language = constraint(*templates('{"na', ["me", "or", "b"], '": 1', ["2", "1"], "}"))
    offsets: dict[int, list[list[int]]] = {}
    for slots in (40, 5, 3):
        engine = recurrent(slots=slots, model=ScriptedModel(VOCABULARY))
        drafted = 0
        for seed in range(10):
            one = request(f"{seed}", allowed=language, sampling=HOT, seed=seed)
            usage = answer_of(engine, one).usage
            drafted += usage.drafted_tokens
        assert drafted > 0
        rows = [
            (plan[0], [at + 1 for at in plan[0].rows])
            for plan in engine._runner.plans  # type: ignore[attr-defined]
        ]
        offsets[slots] = [
            [done for done, _ in span.saves]
            for span, drawn in rows
            if span.state and len(drawn) > 1
        ]
        for span, drawn in rows:
            if len(drawn) > 1 and slots == 40:
                assert set(drawn) <= {done for done, _ in span.saves}
    assert max(map(len, offsets[40])) > 2
    assert max(map(len, offsets[5])) == 2, "before the first drafted token, and at the end"
    assert offsets[3]
    assert all(len(saves) == 1 for saves in offsets[3])


def test_what_a_leap_takes_back_is_computed_again_and_little_else() -> None:
    """The span after a leap starts no earlier than the tokenizer's window."""
    language = constraint(*templates(["x", ""], ["name1", "nabb", "nor", "name2"], ["", "abab1"]))
    config = EngineConfig(max_draft_tokens=0)
    engine = recurrent(model=BY_BYTES, config=config)
    back = 0
    for seed in range(30):
        runner = engine._runner
        assert isinstance(runner, ScriptedRunner)
        runner.plans.clear()
        prompt = [seed % 7] * 50
        answer_of(engine, request("one", prompt, allowed=language, sampling=HOT, seed=seed))
        end = 0
        for span in spans_of(engine)[1:]:
            back += span.start < end
            assert span.start >= max(50, end - 8)
            end = span.start + len(span.tokens)
    assert back > 5


def test_a_preempted_answer_starts_again_from_a_checkpoint() -> None:
    recorder = Recorder()
    lengths = [16, 30, 40]
    requests = [request(f"{n}", [n] * 9, max_tokens=n, sampling=HOT) for n in lengths]
    engine = recurrent(interval=16, groups=[Group(17)], observer=recorder)
    answers = answers_of(engine, requests)
    assert sum(stats.preemptions for stats in recorder.steps) > 0
    check_plain(answers, requests, ENDLESS)
    assert [span.start for span in spans_of(engine) if len(span.tokens) > 1] == [0, 0, 0, 8, 24]


@pytest.mark.parametrize("order", ["serial", "overlapped"], indirect=True)
@pytest.mark.parametrize("allowed", [None, LANGUAGES[0]])
@pytest.mark.parametrize("slots", [3, 4, 7])
def test_with_few_slots_answers_wait_for_each_other_and_all_come_to_an_end(
    slots: int, allowed: Constraint | None
) -> None:
    requests = [
        replace(request(f"{i}", f"{i}", max_tokens=25, sampling=HOT), constraint=allowed)
        for i in range(12)
    ]
    engine = recurrent(slots=slots, model=ScriptedModel(VOCABULARY))
    for one in requests:
        engine.add(one)
    most, ended = 0, []
    while engine.has_work:
        ended += [chunk.request_id for chunk in step(engine) if chunk.finish_reason]
        check_engine(engine)
        most = max(most, engine.num_running)
    assert most == (slots - 1 if allowed is None else (slots - 1) // 2) - (allowed is None)
    assert len(ended) == 12
    if slots == 3:
        assert ended == [one.request_id for one in requests]


def test_spare_slots_of_running_sequences_go_to_waiting_ones() -> None:
    """Two answers use more than 4 of 6 slots; a third runs when they keep only the minimum."""
    engine = recurrent(slots=7, model=BY_BYTES)
    language = constraint(*templates(*[["ab", "cd"]] * 5))
    for name in ("first", "second"):
        engine.add(request(name, [1] * 9, allowed=language, sampling=HOT, leap=False))
    for _ in range(6):
        step(engine)
    assert engine.num_running == 2
    assert engine.state_usage > 4 / 6
    engine.add(request("third", [2] * 9, allowed=language, sampling=HOT, leap=False))
    step(engine)
    assert engine.num_running == 3
    assert len(drain(engine)) == 3


def test_an_aborted_answer_gives_its_states_back() -> None:
    engine = recurrent(groups=[Group(100)])
    engine.add(request("one", [5] * 30))
    for _ in range(3):
        step(engine)
    assert engine.state_usage > 0
    engine.abort("one")
    assert engine.state_usage == 0.0
    check_engine(engine)
    step(engine)
    assert not engine.has_work


@pytest.mark.parametrize("order", ["serial", "overlapped"], indirect=True)
@pytest.mark.parametrize("seed", range(40))
def test_in_random_life_answers_are_those_of_plain_decoding_and_nothing_leaks(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 3.0, -100.0]))
    requests = [
        replace(random_request(rng, index), scope=rng.choice(["", "", "x"]))
        for index in range(rng.randint(2, 10))
    ]
    if rng.random() < 0.5:
        requests = [random_ends(rng, one) for one in requests]
    size, config = rng.choice([1, 2, 4]), random_config(rng)
    if rng.random() < 0.5:
        config = replace(config, max_running=16, max_batch_tokens=max(16, config.max_batch_tokens))
    longest = max(len(one.prompt) + one.max_tokens for one in requests)
    groups: Sequence[Group] = ()
    if rng.random() < 0.3:
        groups = random_groups(rng, longest, size, config.max_batch_tokens)
    elif rng.random() < 0.6:
        groups = [Group(-(-longest // size) + rng.choice([0, 2, 20]))]
    states = random_states(rng, size)
    engine = make_engine(config, model=model, block_size=size, groups=groups, states=states)
    answers = live(rng, engine, requests, aborts=0.03)
    check_plain(answers, [one for one in requests if one.request_id in answers], model)
