"""Drafts from earlier answers and from the prompt: they save passes and never change an answer."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from dataclasses import replace

import pytest

from app.core.request import EngineRequest, SamplingParams
from app.engine import EngineConfig
from app.engine.draft import Draft, Source
from app.engine.draft_statistics import MOST_CONTEXTS, DraftStatistics
from app.engine.drafting import _MOST_STATISTICS
from tests.engine.harness import (
    GREEDY,
    VOCABULARY,
    Recorder,
    answer_of,
    answers_of,
    check_plain,
    constraint,
    make_engine,
    passes,
    random_config,
    random_ends,
    random_request,
    request,
    templates,
    varied,
)
from tests.fakes import ScriptedModel, ScriptedRunner

COOL = SamplingParams(temperature=0.4)
GUESS, LEAPT, HELD = Source.COUNTED, Source.LEAPT, Source.HELD_BACK

FORM = constraint(
    *templates(
        '{"name": "', ["nab", "namely", "wxyz"], '", "n": ', ["1", "12", "123"], ', "a": "ab"}'
    )
)


def test_a_draw_stands_before_each_token_that_is_decided_and_one_at_the_end() -> None:
    draft = Draft((1, 2, 3, 4, 5), (GUESS, LEAPT, LEAPT, HELD, GUESS))
    assert list(draft.draws()) == [0, 3, 4, 5]
    assert list(Draft().draws()) == [0]


def test_a_draft_is_not_cut_between_a_guess_and_what_it_leads_to() -> None:
    draft = Draft((1, 2, 3, 4, 5), (GUESS, LEAPT, LEAPT, HELD, GUESS))
    assert [len(draft.cut(most).tokens) for most in range(-1, 7)] == [0, 0, 0, 0, 3, 4, 5, 5]


@pytest.mark.parametrize("seed", range(80))
def test_an_engine_that_has_learned_gives_the_tokens_of_plain_decoding(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 4.0]))
    requests: list[EngineRequest] = []
    for index in range(24):
        one = random_request(rng, index)
        if rng.random() < 0.4:
            one = random_ends(rng, one)
        if index >= 8:  # prompts and seeds are repeated
            old = requests[rng.randrange(8)]
            one = replace(old, request_id=f"r{index}", seed=old.seed + rng.choice([0, 0, 1]))
        requests.append(one)
    config = replace(random_config(rng), max_draft_tokens=rng.choice([2, 5, 16]))
    engine = make_engine(config, model=model, num_blocks=400)
    check_plain(answers_of(engine, requests), requests, model)


@pytest.mark.parametrize("sampling", [GREEDY, COOL])
def test_an_answer_that_came_before_takes_few_passes(sampling: SamplingParams) -> None:
    recorder = Recorder()
    engine = make_engine(observer=recorder)
    one = request(allowed=FORM, sampling=sampling, max_tokens=60)
    first = answer_of(engine, one)
    again = answer_of(engine, one)
    assert again.tokens == first.tokens
    assert passes(again) < passes(first)
    never = answer_of(engine, varied(one, draft=False))
    assert never.tokens == first.tokens
    assert passes(never) == passes(answer_of(make_engine(), varied(one, draft=False)))
    assert sum(step.drafted_tokens for step in recorder.steps) == sum(
        step.passes_saved for step in recorder.steps
    )
    assert sum(s.drafted_tokens for s in recorder.steps) <= sum(
        s.proposed_tokens for s in recorder.steps
    )


def test_a_draft_runs_across_leaps() -> None:
    model = ScriptedModel(VOCABULARY, by_bytes=True)
    engine = make_engine(EngineConfig(max_draft_tokens=64), model=model)
    one = request(allowed=FORM, max_tokens=80)
    counts = []
    for _ in range(6):
        answer = answer_of(engine, one)
        counts.append(passes(answer))
        assert answer.usage.leapt_tokens > 0
    # The prompt's pass draws the first token and, after some answers, all others.
    assert counts[0] > counts[-1]
    assert counts[-1] <= 2


def test_a_value_that_stands_in_the_prompt_is_copied() -> None:
    words = ["jkqvjk qvjkq", "kqvkqv jvj", "vqvq kkqqvvjj"]  # texts without merges
    language = constraint(*templates('{"a": "', words, '"}'))

    def asked(prompt: str) -> int:
        # Each answer has an engine of its own, so that none learns from another.
        return passes(
            answer_of(
                make_engine(model=ScriptedModel(VOCABULARY, by_bytes=True)),
                request(prompt=prompt, allowed=language, max_tokens=60, leap=False),
            )
        )

    told = asked(" ".join(words) + " x")
    assert told < asked("y" * len(" ".join(words) + " x"))


def test_the_counts_of_a_constraint_are_bounded_and_forget() -> None:
    statistics = DraftStatistics()
    for place in range(3 * MOST_CONTEXTS):
        statistics.record(place, 1, 2)
    assert len(statistics._branches) == MOST_CONTEXTS
    assert statistics.likeliest(0, 1) == (-1, 0.0)
    for _ in range(1000):
        statistics.record("branch", 1, 5)
    for _ in range(150):
        statistics.record("branch", 1, 6)
    assert statistics.likeliest("branch", 1)[0] == 6
    for token in range(1000):
        statistics.record("any", 1, token)
    assert sum(len(each.counts) for each in statistics._branches.values()) <= 16 + MOST_CONTEXTS


def test_what_is_learned_ends_with_its_constraint() -> None:
    engine = make_engine()
    language = constraint(*(answer.decode() for answer in FORM.answers))
    for _ in range(4):
        answer_of(engine, request(allowed=language, max_tokens=60))
    memories = engine._decoder._drafter._learned
    assert memories[language][""].changes, "the drafts had no leaps"
    gone = weakref.ref(language)
    del language
    runner = engine._runner
    assert isinstance(runner, ScriptedRunner)
    runner.plans.clear()  # a plan holds its sequences
    gc.collect()
    assert gone() is None
    assert not memories


def test_what_is_learned_of_all_constraints_is_bounded() -> None:
    engine = make_engine()
    kept = [constraint("nab", f"nor{number}") for number in range(_MOST_STATISTICS + 5)]
    for language in kept:
        answer_of(engine, request(allowed=language, max_tokens=20))
    memories = engine._decoder._drafter._learned
    assert len(memories) == _MOST_STATISTICS
    assert kept[0] not in memories
    assert kept[-1] in memories


def test_what_is_learned_in_many_scopes_is_bounded() -> None:
    engine = make_engine()
    for number in range(_MOST_STATISTICS + 5):
        answer_of(engine, replace(request(allowed=FORM, max_tokens=60), scope=str(number)))
    (scopes,) = engine._decoder._drafter._learned.values()
    assert len(scopes) == _MOST_STATISTICS
    assert "0" not in scopes
    assert str(_MOST_STATISTICS + 4) in scopes


def test_an_answer_tells_nothing_of_another_scopes_answers() -> None:
    engine = make_engine()
    one = request(allowed=FORM, max_tokens=60, prompt="a prompt of several blocks: ")
    answer_of(engine, one)
    again, other = answer_of(engine, one), answer_of(engine, replace(one, scope="other"))
    fresh = answer_of(make_engine(), one)
    assert again.usage != fresh.usage
    assert other.usage == fresh.usage
    assert other.tokens == fresh.tokens


def test_nothing_is_learned_from_a_request_without_drafts() -> None:
    engine = make_engine()
    one = request(allowed=FORM, max_tokens=60)
    answer_of(engine, varied(one, draft=False))
    assert passes(answer_of(engine, replace(one, scope="none"))) == passes(
        answer_of(make_engine(), one)
    )
    assert not engine._decoder._drafter._learned[FORM][""]._branches


def test_guesses_come_from_what_is_common() -> None:
    statistics = DraftStatistics()
    counts = Counter({7: 6, 8: 3})
    for token in counts.elements():
        statistics.record("place", 0, token)
    assert statistics.likeliest("place", 0) == (7, 0.6)
    assert statistics.likeliest("place", 1) == (-1, 0.0)
