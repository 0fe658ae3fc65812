"""Recurrent layers in ragged steps against transformers' own forward of the whole text, float32."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.cpu.attention import CpuAttention
from app.model.cpu.scan import CpuScan
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays
from app.model.kv_storage import allocate
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from app.model.runner import TorchRunner
from app.model.self_check import (
    CHECKED_SLOTS,
    _nudging_embeddings,
    check_ragged_step,
    make_case,
    whole_logits,
    worst_error,
)
from app.model.state_storage import allocate_states
from tests.model.hybrid import KINDS, Slots, StatefulSequence, hybrid_runner, lively_model
from tests.model.rows import expected_logprobs, row_logprobs
from tests.model.tiny import VOCAB

BLOCK = 4


class RandomSteps:
    """Sequences that are computed together, in random steps."""

    def __init__(self, runner: TorchRunner, model: PreTrainedModel, seed: str) -> None:
        assert runner.states is not None
        self.dice = random.Random(seed)
        self.runner, self.model = runner, model
        self.slots = Slots(runner.states.count, self.dice)
        self.blocks = [[*range(group.num_blocks)] for group in runner.cache_groups]
        self.sequences: list[StatefulSequence] = []
        self.expected: list[NDArray[np.float64]] = []
        self.compared = 0

    def add(self, text: list[int], shared: StatefulSequence | None = None, at: int = 0) -> None:
        """Add a sequence. ``shared`` is a finished one with the same text up to ``at``, which is a
        block border where it has a state."""
        begun = [[] if shared is None else table[: at // BLOCK] for table in self._tables(shared)]
        tables = [
            [*table, *(blocks.pop() for _ in range(len(table), -(-len(text) // BLOCK)))]
            for table, blocks in zip(begun, self.blocks, strict=True)
        ]
        sequence = StatefulSequence(text, tables, self.slots)
        if shared is not None:
            sequence.kept.append((at, dict(shared.kept)[at]))
        self.sequences.append(sequence)
        self.expected.append(expected_logprobs(self.model, text))

    def _tables(self, shared: StatefulSequence | None) -> list[list[int]]:
        return [[] for _ in self.blocks] if shared is None else shared.tables

    def step(self) -> None:
        """Run a step of some sequences: chunks, decodes, and drafts whose last tokens are wrong."""
        spans: list[Span] = []
        rows: list[tuple[int, int]] = []
        places: list[tuple[int, int]] = []
        backs: list[tuple[StatefulSequence, int]] = []
        for index, sequence in enumerate(self.sequences):
            left = len(sequence.text) - sequence.computed
            if left == 0 or self.dice.random() < 0.2:
                continue
            length = min(left, self.dice.choice([1, 1, 2, 5, 9, 20]))
            wrong = min(left - length, self.dice.choice([0, 0, 0, 2, 5]))
            start = sequence.computed
            for offset in range(length):
                if self.dice.random() < 0.4:
                    rows.append((len(spans), offset))
                    places.append((index, start + offset))
            spans.append(sequence.span(length, self.dice, wrong=wrong))
            # Wrong drafts are dropped, and sometimes right tokens, as by a leap.
            dropped = self.dice.choice([0, 0, 0, 0, 7])
            backs.append((sequence, max(start, start + length - dropped)))
        if not spans:
            return
        for (index, position), row in zip(
            places, row_logprobs(self.runner, spans, rows), strict=True
        ):
            np.testing.assert_allclose(row, self.expected[index][position], atol=2e-4)
        self.compared += len(rows)
        for sequence, position in backs:
            sequence.go_back(position)
            while len(sequence.kept) > 12:  # frees slots for others
                self.slots.give_back([sequence.kept.pop(1)[1]])

    def finish(self) -> None:
        for _ in range(100):
            if all(s.computed == len(s.text) for s in self.sequences):
                return
            self.step()
        raise AssertionError("the sequences are not computed after 100 steps")


@pytest.mark.parametrize("kind", KINDS)
def test_random_steps_saves_and_ways_back_give_the_logits_of_the_whole_text(
    kind: str, tmp_path: Path
) -> None:
    model = lively_model(kind)
    runner = hybrid_runner(tmp_path, model)
    company = RandomSteps(runner, model, kind)
    dice = company.dice
    for length in (61, 3, 37):
        company.add([dice.randrange(VOCAB) for _ in range(length)])
    company.finish()
    done = company.sequences[0]
    border = max(at for at, _ in done.kept if at % BLOCK == 0 and at < len(done.text))
    assert border, "no state was kept at a block border"
    company.add([*done.text[:border], *(dice.randrange(VOCAB) for _ in range(20))], done, border)
    company.finish()
    assert company.compared > 30


def test_from_the_empty_state_the_same_span_says_something_else(tmp_path: Path) -> None:
    """This shows that the tests above would notice a lost state."""
    model = lively_model("qwen3_5_text")
    runner = hybrid_runner(tmp_path, model)
    text = list(range(20, 40))
    table = [[*range(5)]]
    row_logprobs(runner, [Span(text[:16], 0, table, saves=[(16, 1)])], [])
    expected = expected_logprobs(model, text)[-1]
    [right] = row_logprobs(runner, [Span(text[16:], 16, table, state=1)], [(0, 3)])
    [lost] = row_logprobs(runner, [Span(text[16:], 16, table)], [(0, 3)])
    np.testing.assert_allclose(right, expected, atol=2e-4)
    assert np.abs(lost - expected).max() > 0.05


class LosesTheState(CpuScan):
    def begin(self, step: StepArrays) -> None:
        super().begin(with_states(step, reads=np.zeros_like(step.state_arrays.reads)))


class SavesOnlyAtTheEnd(CpuScan):
    """Saves the final state of a span in place of the states inside it."""

    def begin(self, step: StepArrays) -> None:
        states = step.state_arrays
        ends = np.repeat(states.rows[1:], np.diff(states.save_starts))
        super().begin(with_states(step, save_rows=ends))


class MixesUpSpans(CpuScan):
    def begin(self, step: StepArrays) -> None:
        super().begin(with_states(step, reads=np.roll(step.state_arrays.reads, 1)))


def with_states(step: StepArrays, **changes: Any) -> StepArrays:
    return dataclasses.replace(step, states=dataclasses.replace(step.state_arrays, **changes))


def check(kind: str, scan: type[CpuScan]) -> None:
    model: Any = lively_model(kind)
    route, recurrent = AttentionRoute(), RecurrentRoute(model)
    shapes = probe_layers(model, route, recurrent)
    case = make_case(VOCAB, BLOCK, len(shapes) and 1, states=True)
    expected = whole_logits(model, case)
    model.set_attn_implementation(route.name)
    cpu = torch.device("cpu")
    storage = allocate(shapes, num_blocks=case.blocks, block_size=BLOCK, device=cpu)
    states = allocate_states(recurrent.shapes, CHECKED_SLOTS, cpu)
    forward = RaggedForward(model, route, recurrent, CpuAttention(storage), scan(states))
    check_ragged_step(model, forward, case, BLOCK, expected)


@pytest.mark.parametrize("kind", ["qwen3_5_text", "mamba2", "lfm2"])
def test_the_self_check_notices_what_is_done_wrong_with_states(kind: str) -> None:
    check(kind, CpuScan)
    for broken in (LosesTheState, SavesOnlyAtTheEnd, MixesUpSpans):
        with pytest.raises(UnsupportedModel, match="relative error"):
            check(kind, broken)


@pytest.mark.parametrize("kind", ["jamba", "mamba"])
def test_weights_that_a_mixer_reads_itself_are_not_packed(kind: str, tmp_path: Path) -> None:
    model: Any = lively_model(kind)
    hybrid_runner(tmp_path, model.bfloat16(), dtype="bfloat16")


def test_a_model_without_attention_has_slots_and_no_blocks(tmp_path: Path) -> None:
    runner = hybrid_runner(tmp_path, lively_model("mamba2"), max_model_len=None)
    assert runner.cache_groups == ()
    assert runner.states is not None
    assert runner.max_model_len == 512


def test_nudged_embeddings_change_logits_by_a_rounding_error_of_the_type() -> None:
    noises = []
    for dtype in (torch.float32, torch.bfloat16):
        plain: Any = lively_model("mamba2")
        model: Any = plain.to(dtype)
        case = make_case(VOCAB, BLOCK, 0, states=True)
        exact = whole_logits(model, case)
        with _nudging_embeddings(model):
            noises.append(worst_error(whole_logits(model, case), exact))
    assert 0.0 < noises[0] < 1e-4
    assert 1e-3 < noises[1] < 0.1
