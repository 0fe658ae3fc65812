"""Modules that an adapter can change, and the hooks that add to their results.

A module qualifies if it multiplies every token of a step by one weight, once. Experts do not, as
they see some of the tokens, nor does the output layer, which sees only rows with wanted logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from app.model.adapters.peft import Pair
from app.model.inputs import Ints
from app.model.layers.attention import AttentionRoute
from app.model.layers.latent import LatentProjection

Product = Callable[[Tensor], Tensor]
"""[T, K] -> [T, N]."""


@dataclass(frozen=True, slots=True)
class Target:
    """A module's weight."""

    depth: int
    """Input features."""
    width: int
    """Output features."""


class Bank(Protocol):
    """Weights of all loaded adapters for one product, whose columns belong to consecutive modules.

    The attention's ``adapters`` gives the adapter of each row of a step, in the form that banks of
    the device take.
    """

    def put(self, slot: int, pairs: Sequence[Pair | None]) -> None:
        """Replace the contents of a slot: a pair for each module, or None."""

    def add(self, x: Tensor, out: Tensor, adapters: Any) -> None:
        """Add to ``out`` [T, N] the output of each token's adapter for ``x`` [T, K]."""

    def adapters(self, slots: Sequence[int]) -> Any:
        """The argument ``adapters`` of ``add`` for rows with these slots."""


def find_targets(model: PreTrainedModel) -> dict[str, Target]:
    """Targets by module name, of a model as it was loaded: later, layers may have been fused."""
    output = model.get_output_embeddings()
    return {
        name: target
        for name, module in model.named_modules()
        if module is not output and ".experts." not in name and (target := _target(module))
    }


def _target(module: nn.Module) -> Target | None:
    if isinstance(module, LatentProjection):  # its weight is taken apart, and multiplied elsewhere
        return None
    if isinstance(module, Conv1D):
        return Target(*module.weight.shape)
    depth, width = getattr(module, "in_features", None), getattr(module, "out_features", None)
    return Target(depth, width) if isinstance(depth, int) and isinstance(width, int) else None


def add_to_results(module: nn.Module, bank: Bank, route: AttentionRoute) -> None:
    """Add the output of ``bank`` to the results of ``module`` from now on."""

    def add(_: Any, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        attention: Any = route.target
        x = inputs[0]
        bank.add(x.reshape(-1, x.shape[-1]), out.view(-1, out.shape[-1]), attention.adapters)

    module.register_forward_hook(add)


AdapterRows = Sequence[tuple[int, slice | Tensor]]
"""Slots in a step, each with the rows of its tokens."""


def adapter_rows(slots: Ints | None) -> AdapterRows:
    """The slots in a step with their rows; ``slots`` [T]: by token; 0 or None: the base model."""
    if slots is None:
        return ()
    found: list[tuple[int, slice | Tensor]] = []
    for slot in np.unique(slots[slots > 0]).tolist():
        rows = np.flatnonzero(slots == slot)
        first, end = int(rows[0]), int(rows[-1]) + 1
        together = end - first == len(rows)
        found.append((slot, slice(first, end) if together else torch.from_numpy(rows)))
    return found
