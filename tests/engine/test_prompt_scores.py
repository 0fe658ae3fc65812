"""Log-probabilities of prompt tokens, compared to those of the model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from app.core.events import AnswerToken
from app.core.request import EngineRequest, SamplingParams
from app.engine import Engine, EngineConfig
from tests.engine.harness import (
    VOCABULARY,
    make_engine,
    random_config,
    random_layers,
    request,
    step,
    varied,
)
from tests.fakes import ScriptedModel
from tests.integrity import check_engine

MODEL = ScriptedModel(VOCABULARY)
PROMPT = 'say: {"name": "ab"} and then some more of it, as long as several blocks'


def expected(prompt: Sequence[int]) -> list[tuple[float, list[tuple[int, float]]]]:
    """For each token but the first: its log-probability and the likeliest tokens, best first."""
    found = []
    for position in range(1, len(prompt)):
        logits = MODEL.logits(prompt[:position])
        logprobs = logits - np.logaddexp.reduce(logits)
        best = [int(each) for each in np.argsort(-logprobs, kind="stable")[:3]]
        likeliest = [(token, float(logprobs[token])) for token in best]
        found.append((float(logprobs[prompt[position]]), likeliest))
    return found


def scores(engine: Engine, requests: Sequence[EngineRequest]) -> dict[str, Sequence[AnswerToken]]:
    """Prompt tokens in the first chunk of each answer; later chunks must have none."""
    for each in requests:
        engine.add(each)
    found: dict[str, Sequence[AnswerToken]] = {}
    while engine.has_work:
        for chunk in step(engine):
            if chunk.request_id not in found:
                found[chunk.request_id] = chunk.prompt
            else:
                assert not chunk.prompt
        check_engine(engine)
    return found


def check(prompt: Sequence[int], tokens: Sequence[AnswerToken], alternatives: int) -> None:
    assert [token.token_id for token in tokens] == list(prompt)
    for token, (logprob, likeliest) in zip(tokens[1:], expected(prompt), strict=True):
        assert token.logprob == pytest.approx(logprob, abs=1e-9)
        best = likeliest[:alternatives]
        assert [top.token_id for top in token.top] == [each for each, _ in best]
        assert [top.logprob for top in token.top] == pytest.approx([each for _, each in best])


@pytest.mark.parametrize("alternatives", [0, 1, 3])
def test_each_token_has_the_model_s_own_log_probability(alternatives: int) -> None:
    asked = varied(request(prompt=PROMPT, max_tokens=2), prompt_logprobs=alternatives)
    found = scores(make_engine(model=MODEL), [asked])
    check(asked.prompt, found["r"], alternatives)


def test_a_prompt_that_the_cache_holds_is_computed_again() -> None:
    engine = make_engine(model=MODEL)
    plain = request("a", PROMPT, max_tokens=2)
    scores(engine, [plain])
    asked = varied(plain, request_id="b", prompt_logprobs=1)
    later = replace(plain, request_id="c")
    found = scores(engine, [asked, later])
    check(asked.prompt, found["b"], 1)
    assert not found["c"]


def test_a_prompt_of_one_token_has_nothing_to_be_told() -> None:
    asked = varied(request(prompt=[65], max_tokens=1), prompt_logprobs=1)
    (token,) = scores(make_engine(model=MODEL), [asked])["r"]
    assert (token.token_id, token.top) == (65, ())


@pytest.mark.parametrize("seed", range(30))
def test_many_at_once_with_little_room_and_in_any_order(seed: int) -> None:
    """With preemption, chunked prompts, windows, recurrent states and other answers."""
    rng = random.Random(seed)
    config = random_config(rng)
    size = rng.choice([2, 4, 7])
    groups, states = random_layers(rng, 100, size, config.max_batch_tokens)
    engine = make_engine(config, model=MODEL, block_size=size, groups=groups, states=states)
    requests = []
    for index in range(8):
        prompt = PROMPT[: rng.randint(1, 50)] + "".join(rng.choice("ab{1") for _ in range(4))
        one = request(f"r{index}", prompt, max_tokens=rng.randint(1, 20))
        alternatives = rng.choice([None, 0, 2])
        requests.append(varied(one, prompt_logprobs=alternatives))
    found = scores(engine, requests)
    for each in requests:
        if each.options.prompt_logprobs is None:
            assert not found[each.request_id]
        else:
            check(each.prompt, found[each.request_id], each.options.prompt_logprobs)


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_an_answer_is_the_same_whether_its_prompt_is_scored_or_not(penalty: float) -> None:
    def answer(scored: bool) -> list[int]:
        sampling = SamplingParams(temperature=0.0, frequency_penalty=penalty)
        one = request(prompt=PROMPT, max_tokens=12, sampling=sampling)
        engine = make_engine(EngineConfig(max_prefill_tokens=5), model=MODEL)
        engine.add(varied(one, prompt_logprobs=2 if scored else None))
        tokens: list[int] = []
        while engine.has_work:
            tokens += [token.token_id for chunk in step(engine) for token in chunk.tokens]
        return tokens

    assert answer(True) == answer(False)
