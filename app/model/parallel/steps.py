"""A step on all ranks: rank 0 leads, the others follow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from app.model.inputs import StepArrays
from app.model.parallel.group import Group
from app.model.parallel.rank_processes import RankProcesses


class Leader:
    """Sends each step from rank 0 to the others, before rank 0 computes it."""

    def __init__(self, rank_processes: RankProcesses, group: Group) -> None:
        self.rank_processes = rank_processes
        self._group = group

    def lead(self, step: StepArrays, drawn: Tensor | None) -> None:
        """Send ``step``. ``drawn``: ids drawn by the previous step, int64, if they are only on the
        device; they are broadcast from there if the step uses any."""
        if drawn is None or (step.drawn_rows < 0).all():
            self.rank_processes.send(step, 0)
        else:
            self.rank_processes.send(step, len(drawn))
            self._group.broadcast(drawn)


class Follower:
    """Computes this rank's part of every layer in each step; the logits are not used."""

    def __init__(
        self, compute: Callable[[StepArrays, Tensor | None], object], group: Group
    ) -> None:
        """``compute`` is that of this rank's runner."""
        self._compute = compute
        self._group = group

    @torch.inference_mode()
    def run(self, step: StepArrays, drawn: int) -> None:
        """``drawn``: number of ids drawn by the previous step that rank 0 broadcasts."""
        ids = self._group.broadcast(self._group.empty_ids(drawn)) if drawn else None
        self._compute(step, ids)
