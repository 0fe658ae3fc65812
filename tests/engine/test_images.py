"""Prompts with images: each step has the image features that its tokens need."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.core.images import PreparedImage, PromptImage, PromptImages
from app.core.request import EngineRequest
from app.engine import EngineConfig
from tests.engine.harness import (
    TOKENIZER,
    VOCABULARY,
    Recorder,
    check_plain,
    drain,
    live,
    make_engine,
    random_config,
    random_request,
    request,
    step,
)
from tests.fakes import ScriptedModel


def image(name: str, length: int = 6) -> PreparedImage:
    return PreparedImage(name.encode().ljust(32), (VOCABULARY.special,) * length, {})


A, B, C = image("a"), image("b"), image("c")


def seeing(name: str, *parts: str | PreparedImage, **more: Any) -> EngineRequest:
    """A request whose prompt consists of ``parts``: texts and images."""
    tokens: list[int] = []
    seen = []
    for part in parts:
        if isinstance(part, str):
            tokens += TOKENIZER.encode(part)
        else:
            places, features = ((len(tokens), part.num_tokens),), np.zeros(part.num_tokens)
            seen.append(PromptImage(part, places, features=features))
            tokens += part.expansion
    return replace(request(name, tokens, **more), images=PromptImages(seen))


def test_a_prefix_is_shared_up_to_another_image() -> None:
    recorder = Recorder()
    engine = make_engine(observer=recorder)
    engine.add(seeing("first", A, "text that fills a block"))
    drain(engine)
    for name, seen, cached in (("again", A, 6), ("another", B, 0)):
        recorder.steps.clear()
        engine.add(seeing(name, seen, "text that fills a block"))
        drain(engine)
        found = sum(stats.cached_tokens for stats in recorder.steps)
        assert found >= cached if cached else found == 0


def test_a_request_preempted_before_its_images_are_computed_keeps_them() -> None:
    recorder = Recorder()
    config = EngineConfig(max_running=2, max_batch_tokens=3, max_prefill_tokens=2)
    engine = make_engine(config, num_blocks=12, observer=recorder)
    engine.add(request("old", "ab", max_tokens=44))
    step(engine)
    engine.add(seeing("new", "some text before it ", image("a", 20), max_tokens=2))
    assert drain(engine).keys() == {"old", "new"}
    assert sum(stats.preemptions for stats in recorder.steps) > 0


@pytest.mark.parametrize("seed", range(60))
def test_whenever_images_come_answers_are_those_of_plain_decoding(seed: int) -> None:
    rng = random.Random(seed)
    model, config = ScriptedModel(VOCABULARY), random_config(rng)
    requests = [_with_images(rng, random_request(rng, index)) for index in range(8)]
    size = rng.choice([1, 2, 4, 16])
    longest = max(len(one.prompt) + one.max_tokens for one in requests)
    blocks = -(-longest // size) + rng.choice([0, 1, 5, 100])
    engine = make_engine(config, model=model, num_blocks=blocks, block_size=size)
    check_plain(live(rng, engine, requests), requests, model)


def _with_images(rng: random.Random, one: EngineRequest) -> EngineRequest:
    if rng.random() < 0.3:
        return one
    text = "the same beginning, " * rng.randint(0, 1)
    parts = [part for _ in range(rng.randint(1, 3)) for part in (rng.choice([A, B, C]), text)]
    seen = seeing("", text, *parts)
    return replace(one, prompt=(*seen.prompt, *one.prompt), images=seen.images)
