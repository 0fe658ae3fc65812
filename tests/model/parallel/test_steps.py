"""Rank 0 leads a step and the others follow, with token ids from the host or from its device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from app.core.step import Span
from app.model.inputs import StepArrays, lay_out
from app.model.parallel.message import pack, unpack
from app.model.parallel.rank import run_step
from app.model.parallel.rank_processes import RankProcesses
from tests.model.parallel.threads import ThreadGroup, on_all_ranks
from tests.steps import planned

KNOWN = planned([Span([5, 6], 0, [[0]])], [(0, 1)])
AHEAD = planned([Span([0], 2, [[0]], drawn_by=1)], [(0, 0)])


@pytest.mark.parametrize(("plan", "handed_out"), [(KNOWN, None), (AHEAD, [7, 8, 9])])
def test_token_ids_drawn_on_the_device_reach_the_other_ranks_if_a_step_reads_them(
    plan: Sequence[Span], handed_out: list[int] | None
) -> None:
    sent: list[bytes] = []

    class FakeRankProcesses(RankProcesses):
        def __init__(self, group: ThreadGroup) -> None:
            self.group = group

        def send(self, step: StepArrays, drawn: int) -> None:
            sent.append(pack(step, drawn).tobytes())

    computed: list[tuple[list[int], list[int] | None]] = []

    def compute(step: StepArrays, drawn: Tensor | None) -> None:
        computed.append((step.token_ids.tolist(), None if drawn is None else drawn.tolist()))

    drawn = torch.tensor([7, 8, 9])
    FakeRankProcesses(_Quiet()).lead(lay_out(plan, 4), drawn)

    def run(group: ThreadGroup) -> None:
        if group.rank == 0:
            FakeRankProcesses(group).lead(lay_out(plan, 4), drawn)
        else:
            run_step(compute, group, *unpack(np.frombuffer(sent[0], dtype=np.int64)))

    on_all_ranks(2, run)
    assert computed == [(lay_out(plan, 4).token_ids.tolist(), handed_out)]
    assert drawn.tolist() == [7, 8, 9]


class _Quiet(ThreadGroup):
    """A group of rank 0 alone, which sends to nobody."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor
