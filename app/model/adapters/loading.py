"""Adapters as the server starts: their slots for a model, and those that are loaded with it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from transformers import PreTrainedModel

from app.core.errors import InvalidAdapter, UnsupportedModel
from app.core.progress import SILENCE, Progress
from app.model.adapters.slots import AdapterSlots
from app.model.adapters.targets import Bank, Target
from app.model.config import AdaptersConfig, ModelConfig
from app.model.layers.attention import AttentionRoute

_log = logging.getLogger(__name__)


def make_slots(
    model: PreTrainedModel, route: AttentionRoute, config: ModelConfig
) -> AdapterSlots | None:
    """``model`` as it was loaded, with no layer fused. None: no adapters are wanted.

    Raises ``UnsupportedModel`` where they cannot be had.
    """
    room = config.adapters
    if room is None:
        return None
    if config.batch_invariant and model.device.type == "cpu":
        raise UnsupportedModel(
            "batch_invariant and adapters cannot be combined on the CPU; leave one out"
        )

    def make_bank(model: PreTrainedModel, targets: Sequence[Target]) -> Bank:
        if model.device.type == "cpu":
            from app.model.adapters.cpu import CpuBank, team_of

            return CpuBank(model.dtype, team_of(model))
        # Imported where it is needed: triton is there with CUDA builds of torch only.
        from app.model.cuda.adapters import CudaBank

        return CudaBank(
            targets,
            count=room.count,
            rank=room.rank,
            dtype=model.dtype,
            device=model.device,
        )

    return AdapterSlots(model, route, count=room.count, rank=room.rank, make_bank=make_bank)


def fill_slots(slots: AdapterSlots, config: AdaptersConfig, progress: Progress = SILENCE) -> None:
    """Load the adapters that are named, in their order, into slots 1 and up.

    Raises ``UnsupportedModel`` that names the one that is wrong.
    """
    if not config.named:
        return
    with progress.stage("loading the adapters", len(config.named)) as stage:
        for slot, (name, place) in enumerate(config.named.items(), start=1):
            stage.reach(slot - 1, now=name)
            try:
                weights = slots.read(place)
            except InvalidAdapter as error:
                raise UnsupportedModel(f"the adapter {name} in {place}: {error}") from error
            slots.put(slot, weights)
            slots.identities[slot] = weights.identity
            _log.info("adapter loaded", extra={"adapter": name, "rank": weights.rank})
            stage.reach(slot)
