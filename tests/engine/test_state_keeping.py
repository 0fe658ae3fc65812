"""Positions that a sequence falls back to: plans and commits alone, without a model."""

from __future__ import annotations

from app.core.cache import StateSlots
from app.core.events import AnswerToken
from app.engine.batch import Portion
from app.engine.sequence import Sequence
from tests.engine.harness import constraint
from tests.engine.test_scheduler import Bench
from tests.integrity import check_scheduler

ENDLESS = constraint("a" * 40)
"""A constraint, so that leaps may take tokens back."""


def leaping(slots: int, interval: int, prompt: int, steps: int) -> tuple[Bench, Sequence]:
    """A bench and its sequence, which has ``prompt`` prompt tokens and ran ``steps`` steps."""
    bench = Bench(states=StateSlots(slots, interval))
    bench.add("leaps", [5] * prompt, max_tokens=40, state=ENDLESS.start())
    bench.sequences["leaps"].budget.finishes = False
    for _ in range(steps):
        bench.step(grow=1)
    return bench, bench.sequences["leaps"]


def take_back(bench: Bench, sequence: Sequence, kept: int) -> None:
    """Compute the next span, keep the first ``kept`` tokens of the sequence, and append 9 9 9."""
    batch = bench.scheduler.survey(None)
    assert batch is not None
    bench.scheduler.schedule(batch)
    bench.scheduler.plan(batch, None)
    portion: Portion = batch.portions[sequence]
    dropped = len(sequence.tokens) - kept
    del sequence.tokens[kept:]
    if dropped:
        sequence.sources.drop(dropped)
    for _ in range(3):
        sequence.append(AnswerToken(9, b"9", "sampled"))
    bench.scheduler.commit(portion, kept)
    check_scheduler(bench.scheduler)


def kept(sequence: Sequence) -> list[int]:
    return [state.position for state in sequence.states.states]


def test_a_sequence_goes_back_to_the_last_state_that_is_right() -> None:
    bench, sequence = leaping(slots=40, interval=1000, prompt=6, steps=12)
    assert kept(sequence) == [8, 16, 17]
    assert sequence.computed == 17
    take_back(bench, sequence, kept=16)
    assert sequence.computed == 16
    take_back(bench, sequence, kept=14)
    assert sequence.computed == 8
    assert kept(sequence) == [8]


def test_a_sequence_without_states_falls_back_to_its_prompts_checkpoint() -> None:
    bench, sequence = leaping(slots=40, interval=1000, prompt=6, steps=20)
    take_back(bench, sequence, kept=7)
    assert kept(sequence) == [4]
    assert sequence.computed == 4
    bench.step(grow=1)
    bench.end("leaps")
    assert bench.scheduler.blocks.usage == 0.0


def test_a_sequence_without_a_checkpoint_falls_back_to_its_start() -> None:
    bench, sequence = leaping(slots=3, interval=1000, prompt=3, steps=20)
    take_back(bench, sequence, kept=20)
    assert kept(sequence) == []
    assert sequence.computed == 0


def test_a_sequence_falls_back_before_a_shared_block() -> None:
    bench, sequence = leaping(slots=40, interval=4, prompt=3, steps=6)
    assert sequence.computed == 8
    bench.add("shares", [*sequence.tokens[:8], 6, 6])
    assert bench.step() == ["shares"]
    other = bench.sequences["shares"]
    assert other.cached_tokens == 8
    assert 7 in kept(sequence)
    take_back(bench, sequence, kept=7)
    assert sequence.computed == 4
    assert kept(sequence) == [3, 4]
    assert [*sequence.blocks.views()[0]][1:] != [*other.blocks.views()[0]][1:2]
