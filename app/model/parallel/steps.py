"""A step on all ranks: rank 0 leads, the others follow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from app.model.inputs import StepArrays
from app.model.parallel.group import Group
from app.model.parallel.rank_processes import RankProcesses


class Leader:
    """What rank 0 does for the others before it computes a step itself."""

    def __init__(self, rank_processes: RankProcesses, group: Group) -> None:
        self.rank_processes = rank_processes
        self._group = group

    def lead(self, step: StepArrays, drawn: Tensor | None = None) -> None:
        """Send ``step``. ``drawn`` are the ids that the step before has drawn, int64, where they
        are on the device alone: they reach the others from there, if the step goes on from any."""
        if drawn is None or (step.drawn_rows < 0).all():
            self.rank_processes.send(step, 0)
        else:
            self.rank_processes.send(step, len(drawn))
            self._group.hand_out(drawn)


class Follower:
    """Computes each step as rank 0 does, its part of every layer; nobody looks at the logits."""

    def __init__(
        self, compute: Callable[[StepArrays, Tensor | None], object], group: Group
    ) -> None:
        """``compute`` is that of this rank's runner."""
        self._compute = compute
        self._group = group

    @torch.inference_mode()
    def run(self, step: StepArrays, drawn: int) -> None:
        """``drawn``: how many ids rank 0 hands out, of those that the step before has drawn."""
        ids = self._group.hand_out(self._group.empty_ids(drawn)) if drawn else None
        self._compute(step, ids)
