"""Steps that are interrupted because a request of a higher class has arrived."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from app.core.request import ServiceTier
from app.core.step import Span, StepInterrupted
from app.engine import Engine, EngineConfig
from tests.engine.harness import (
    TOKENIZER,
    VOCABULARY,
    answers_of,
    check_plain,
    random_config,
    random_request,
    request,
    step,
)
from tests.fakes import ScriptedModel, ScriptedRunner
from tests.integrity import check_engine


class Interruptible(ScriptedRunner):
    """A runner that can be interrupted; it has then computed half of the spans of the step."""

    def __init__(self, model: ScriptedModel, *, num_blocks: int = 256, block_size: int = 4) -> None:
        super().__init__(model, num_blocks=num_blocks, block_size=block_size)
        self.asked: Callable[[], bool] | None = None
        self.given_up: list[bool] = []
        """For each step, whether it was interrupted."""

    def interrupt_when(self, asked: Callable[[], bool] | None) -> None:
        self.asked = asked

    def launch(self, plan: Sequence[Span]) -> None:
        interrupted = self.asked is not None and self.asked()
        self.given_up.append(interrupted)
        if interrupted:
            self._compute(plan[: len(plan) // 2])
            raise StepInterrupted
        super().launch(plan)


def engine_over(
    runner: Interruptible, urgent: Callable[[], bool], config: EngineConfig | None = None
) -> Engine:
    interrupt_when = runner.interrupt_when
    engine = Engine(runner, VOCABULARY, TOKENIZER, config, interrupt_when=interrupt_when)
    engine.urgent = urgent
    return engine


@pytest.mark.parametrize("seed", range(30))
def test_answers_of_steps_that_are_given_up_are_those_of_plain_decoding(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 4.0]))
    requests = [
        replace(random_request(rng, index), tier=ServiceTier(rng.choice([0, 0, 1, 2])))
        for index in range(rng.randint(1, 8))
    ]
    runner = Interruptible(model, block_size=rng.choice([1, 2, 4, 16]))
    engine = engine_over(runner, lambda: rng.random() < 0.4, random_config(rng))
    check_plain(answers_of(engine, requests), requests, model)
    lower = any(each.tier < ServiceTier.DEFAULT for each in requests)
    assert any(runner.given_up) <= lower


def test_no_more_than_sixteen_steps_in_a_row_are_given_up() -> None:
    runner = Interruptible(ScriptedModel(VOCABULARY, eos=0.0))
    engine = engine_over(runner, lambda: True)
    engine.add(replace(request("low", max_tokens=3), tier=ServiceTier.BATCH))
    while engine.has_work:
        step(engine)
        check_engine(engine)
    assert runner.given_up[:18] == [True] * 16 + [False, True]
    assert runner.given_up.count(False) == 3
    assert engine.given_up == runner.given_up.count(True)


def test_a_step_with_an_answer_of_a_higher_class_is_not_given_up() -> None:
    runner = Interruptible(ScriptedModel(VOCABULARY, eos=0.0))
    engine = engine_over(runner, lambda: True)
    engine.add(request("high", max_tokens=4))
    step(engine)
    engine.add(replace(request("low", max_tokens=2), tier=ServiceTier.FLEX))
    while engine.has_work and "high" in engine._sequences:
        step(engine)
    assert not any(runner.given_up)


def test_prompts_of_lower_classes_alone_fill_steps_that_can_be_given_up() -> None:
    config = EngineConfig(max_prefill_tokens=8, max_batch_tokens=64)
    runner = Interruptible(ScriptedModel(VOCABULARY, eos=0.0))
    engine = engine_over(runner, lambda: False, config)
    engine.add(replace(request("low", "p" * 16), tier=ServiceTier.BATCH))
    step(engine)
    assert sum(len(span.tokens) for span in runner.plans[-1]) == 16
