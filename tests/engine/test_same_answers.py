"""The engine compared to plain decoding of one sequence: optimisations never change the answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.core.cache import StateSlots
from app.core.events import TokenChunk
from app.core.request import EngineRequest, ThinkingBudget
from app.engine import EngineConfig
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence as Answering
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
    live,
    make_engine,
    plain_answer,
    random_config,
    random_ends,
    random_layers,
    random_request,
    random_states,
    request,
    step,
    templates,
    varied,
)
from tests.fakes import FiniteConstraint, Group, ScriptedModel
from tests.integrity import check_engine
from tests.wide import many

DROPPING = constraint(*templates(["x", ""], ["name1", "nabb", "nor", "name2"], ["", "abab1"]))
"""Answers in which leaps replace tokens that were drawn."""


@pytest.mark.parametrize("seed", range(60))
def test_any_batching_chunking_sharing_and_preemption_gives_the_tokens_of_plain_decoding(
    seed: int,
) -> None:
    rng = random.Random(seed)
    requests = [random_request(rng, index) for index in range(rng.randint(1, 8))]
    _check_against_plain_decoding(rng, requests)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_puts_the_end_off_or_brings_it_on_gives_the_tokens_of_plain_decoding(
    seed: int,
) -> None:
    rng = random.Random(seed)
    requests = [random_ends(rng, random_request(rng, index)) for index in range(rng.randint(1, 8))]
    _check_against_plain_decoding(rng, requests)


def _check_against_plain_decoding(rng: random.Random, requests: Sequence[EngineRequest]) -> None:
    """Run ``requests`` together in an engine with random limits; compare to plain decoding."""
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 4.0]))
    block_size = rng.choice([1, 2, 4, 16])
    longest = max(len(one.prompt) + one.max_tokens for one in requests)
    config = random_config(rng)
    groups, states = random_layers(rng, longest, block_size, config.max_batch_tokens)
    engine = make_engine(config, model=model, block_size=block_size, groups=groups, states=states)
    check_plain(answers_of(engine, requests), requests, model)


@pytest.mark.parametrize("seed", range(60))
def test_answers_that_share_blocks_and_drop_tokens_of_them_are_those_of_plain_decoding(
    seed: int,
) -> None:
    """Requests are repeated, and prompts continue with the beginning of an answer."""
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, by_bytes=rng.random() < 0.7)
    prompt = bytes(rng.choices(b"pq", k=rng.randint(1, 4)))
    requests = []
    for index in range(rng.randint(2, 12)):
        start = rng.choice(DROPPING.answers)[: rng.randint(0, 9)] if rng.random() < 0.5 else b""
        one = request(f"r{index}", [*prompt, *start], allowed=DROPPING, max_tokens=20)
        requests.append(varied(one, sampling=rng.choice([GREEDY, HOT]), seed=rng.randint(0, 1)))
    block_size = rng.choice([1, 2, 3, 4])
    config = replace(random_config(rng), share_prefixes=True)
    groups, states = random_layers(rng, 40, block_size, config.max_batch_tokens)
    engine = make_engine(config, model=model, block_size=block_size, groups=groups, states=states)
    check_plain(live(rng, engine, requests), requests, model)


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_that_falls_back_behind_its_windows_starts_again_and_stays_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without cached values before the window, as after a leap that drops very many tokens."""
    monkeypatch.setattr("app.kv.manager.FALL_BACK", 0)
    restarted = 0
    put_back = Scheduler._put_back

    def counted(scheduler: Scheduler, sequence: Answering) -> None:
        nonlocal restarted
        restarted += 1
        put_back(scheduler, sequence)

    monkeypatch.setattr(Scheduler, "_put_back", counted)
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, by_bytes=True)
    requests = [
        request(f"r{index}", "p" * rng.randint(1, 30), allowed=DROPPING, max_tokens=20)
        for index in range(8)
    ]
    states = random_states(rng, 1) if seed % 2 else None
    groups = [Group(200), Group(200, 2)]
    engine = make_engine(model=model, block_size=1, groups=groups, states=states)
    check_plain(answers_of(engine, requests), requests, model)
    assert restarted


@pytest.mark.parametrize("seed", range(10))
def test_requests_that_arrive_while_others_run_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY)
    requests = [random_request(rng, index) for index in range(8)]
    states = random_states(rng, 4) if seed % 2 else None
    engine = make_engine(model=model, num_blocks=60, states=states)
    check_plain(live(rng, engine, requests), requests, model)


@pytest.mark.parametrize("language", LANGUAGES)
def test_leaping_gives_the_text_of_decoding_where_the_split_does_not_matter(
    language: FiniteConstraint,
) -> None:
    model = ScriptedModel(VOCABULARY, by_bytes=True)
    for number in range(6):
        one = request(prompt=f"prompt {number}", allowed=language, max_tokens=200)
        stops = (VOCABULARY.special,) if number % 2 else ()
        one = varied(one, ignore_eos=number > 2, stop_token_ids=stops)
        leapt = answer_of(make_engine(model=model), one)
        decoded = answer_of(make_engine(EngineConfig(leap=False), model=model), one)
        assert leapt.data == decoded.data
        assert leapt.usage.forward_passes <= decoded.usage.forward_passes
        assert decoded.usage.leapt_tokens == 0


@pytest.mark.parametrize("seed", range(20))
def test_drafting_what_was_held_back_gives_the_same_tokens_in_no_more_passes(seed: int) -> None:
    passes = []
    tokens = []
    for most in (16, 0):
        engine = make_engine(EngineConfig(max_draft_tokens=most))
        requests = [
            request(f"{i}", allowed=language, sampling=HOT, seed=seed, max_tokens=60)
            for i, language in enumerate(LANGUAGES)
        ]
        answers = answers_of(engine, requests)
        tokens.append({name: answer.tokens for name, answer in answers.items()})
        passes.append(sum(a.usage.forward_passes for a in answers.values()))
    assert tokens[0] == tokens[1]
    assert passes[0] <= passes[1]


def test_masks_after_a_draft_know_where_the_answer_would_stand() -> None:
    """Drafts may reach ``min_tokens`` or the end of thinking: later draws start from there."""
    languages = (
        constraint(*templates("12na", ["", "me", "x", "xxxxxx1", "b"])),
        constraint(*templates(["y", "12"], "ab", ["", "ab", "l", "lxlxlxlx"], ["", "12na", "12"])),
    )
    rng, drafted, model = random.Random(1), 0, ScriptedModel(VOCABULARY, eos=3.0)
    for index in range(many(400, 8)):
        allowed = rng.choice(languages)
        shortest = allowed.start().shortest_tokens()
        one = request(f"{index}", f"{index}", allowed=allowed, sampling=HOT, seed=index)
        one = varied(
            one,
            max_tokens=shortest + rng.randint(2, 9),
            min_tokens=rng.randint(0, shortest + 2),
            thinking=rng.choice(
                [None, ThinkingBudget(rng.randint(1, 6), rng.choice([b"na", b"ab"]))]
            ),
        )
        answer = answer_of(make_engine(model=model), one)
        plain = plain_answer(one, model)
        assert (answer.tokens, answer.finish_reason) == (plain.tokens, plain.finish_reason)
        drafted += answer.usage.drafted_tokens + answer.usage.held_tokens
    assert drafted > many(30, 8)


@pytest.mark.parametrize("states", [None, StateSlots(12, 16)])
def test_a_preempted_request_resumes_with_the_same_tokens(states: StateSlots | None) -> None:
    model = ScriptedModel(VOCABULARY, eos=-100.0)
    recorder = Recorder()
    requests = [request(f"{i}", f"prompt {i}", max_tokens=30, sampling=HOT) for i in range(4)]
    engine = make_engine(model=model, num_blocks=16, states=states, observer=recorder)
    answers = answers_of(engine, requests)
    assert sum(step.preemptions for step in recorder.steps) > 0
    check_plain(answers, requests, model)


@pytest.mark.parametrize("seed", range(20))
def test_aborting_some_changes_nothing_for_the_others(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY)
    requests = [random_request(rng, index) for index in range(10)]
    states = random_states(rng, 4) if seed % 2 else None
    engine = make_engine(random_config(rng), model=model, num_blocks=120, states=states)
    answers = live(rng, engine, requests, aborts=0.2)
    check_plain(answers, [one for one in requests if one.request_id in answers], model)


@pytest.mark.parametrize("states", [None, StateSlots(40, 4)])
def test_a_leap_that_drops_tokens_of_a_shared_block_leaves_it_to_the_other(
    states: StateSlots | None,
) -> None:
    """Both read the block [p p x n]. Then one answer has "me" forced, which gives [p p x name]."""
    model = ScriptedModel(VOCABULARY, by_bytes=True, eos=-100.0)
    language = constraint("xname1", "xnabb", "xnor", "y")
    leaping = next(
        one
        for first in range(256)
        if plain_answer(one := request("leaps", [first, 0], allowed=language), model).text
        == b"xname1"
    )
    sharing = request("shares", [*leaping.prompt, *b"xnz"], max_tokens=8, sampling=HOT)
    engine = make_engine(model=model, states=states)
    engine.add(leaping)
    sequence = engine._sequences["leaps"]
    while sequence.computed < 4:
        step(engine)
        assert engine.has_work
    engine.add(sharing)
    ends: dict[str, TokenChunk] = {}
    text = b""
    while engine.has_work:
        for chunk in step(engine):
            ends[chunk.request_id] = chunk
            text += chunk.data if chunk.request_id == "shares" else b""
        check_engine(engine)
    assert ends["leaps"].finish_reason == "stop"
    assert sequence.tokens == [*leaping.prompt, *TOKENIZER.encode("xname1")]
    assert ends["shares"].usage.cached_tokens == 4
    assert text == plain_answer(sharing, model).text
