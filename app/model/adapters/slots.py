"""A fixed number of slots for the adapters of one model, with a bank for each product."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import InvalidAdapter, UnsupportedModel
from app.core.progress import Progress
from app.model.adapters.peft import AdapterWeights, Pair, read_adapter
from app.model.adapters.targets import (
    AdapterRows,
    Bank,
    Product,
    Target,
    adapter_rows,
    add_to_results,
    find_targets,
)
from app.model.config import AdaptersConfig, ModelConfig
from app.model.cpu.layers import PanelLinear
from app.model.cpu.workspace import CpuTeam
from app.model.layers.attention import AttentionRoute

_log = logging.getLogger(__name__)

_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.01, torch.bfloat16: 0.05}
"""Largest relative error of what a bank adds to a row."""

_ALONE, _WITHIN = "model.", "model.language_model."
"""Prefixes of module names in a language model, and in one that is a part of another."""

_MOST_NAMED = 5
"""Maximum module names in an error."""

_EVEN = 2
"""Divisor of the number of inputs in panels, which hold pairs."""


class AdapterSlots:
    """Loaded adapters. Only the engine's thread may call ``put``; any thread may call ``read``."""

    def __init__(
        self,
        model: PreTrainedModel,
        route: AttentionRoute,
        *,
        count: int,
        rank: int,
        make_bank: Callable[[Sequence[Target]], Bank],
    ) -> None:
        """``model`` as it was loaded; slots for ``count`` adapters of rank up to ``rank``."""
        self.count = count
        self.rank = rank
        self._model = model
        self._route = route
        self._make_bank = make_bank
        self._targets = find_targets(model)
        """Modules that an adapter may change, by name."""
        self.identities: dict[int, str] = {}
        """Digests of the adapters that were loaded with the model, by slot."""
        self._banks: dict[tuple[str, ...], Bank] = {}
        """Banks, by the modules whose results they add to."""

    def beside(self, product: Product, names: Sequence[str]) -> Product:
        """``product`` plus the output of adapters; its columns belong to the modules ``names``."""
        bank, route = self._bank(tuple(names)), self._route

        def adapted(x: Tensor) -> Tensor:
            attention: Any = route.target
            out = product(x)
            bank.add(x, out, attention.adapters)
            return out

        return adapted

    def attach(self, run: Callable[[], object]) -> None:
        """Add the output of adapters to the modules outside of fused layers.

        ``run`` computes some step: modules that do not process each of its tokens exactly once
        cannot be adapted.
        """
        taken = {name for names in self._banks for name in names}
        modules = dict(self._model.named_modules())
        left = {name: modules[name] for name in self._targets if name not in taken}
        seen: dict[str, list[int]] = {name: [] for name in left}
        """Numbers of rows, by call."""

        def note(name: str, _: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
            seen[name].append(inputs[0][..., 0].numel())

        with ExitStack() as hooks:
            for name, module in left.items():
                hooks.enter_context(module.register_forward_hook(partial(note, name)))
            run()
        tokens = max([rows for calls in seen.values() for rows in calls], default=0)
        for name, module in left.items():
            if seen[name] == [tokens]:
                add_to_results(module, self._bank((name,)), self._route)
            else:
                del self._targets[name]

    def read(self, place: str) -> AdapterWeights:
        """Read an adapter and check that it fits. Raises ``InvalidAdapter``."""
        weights = read_adapter(place)
        pairs = {self._known_as(name): pair for name, pair in weights.pairs.items()}
        if len(pairs) < len(weights.pairs):
            raise InvalidAdapter("it adapts a module under two names, which is not supported")
        weights = replace(weights, pairs=pairs)
        if weights.rank > self.rank:
            raise InvalidAdapter(
                f"its rank is {weights.rank} and the limit is {self.rank}; raise max_adapter_rank"
            )
        for name, pair in weights.pairs.items():
            self._check(name, pair)
        wanted = [
            name for name in self._targets if any(each.fullmatch(name) for each in weights.wanted)
        ]
        if missing := [name for name in wanted if name not in weights.pairs]:
            raise InvalidAdapter(f"target_modules has {_some(missing)}, which have no weights")
        return weights

    def put(self, slot: int, weights: AdapterWeights) -> None:
        """Fill a slot, 1 to ``count``, that no sequence in the engine uses. Raises
        ``UnsupportedModel`` if its output differs from plain products."""
        assert 1 <= slot <= self.count
        compared: set[tuple[int, ...]] = set()
        for names, bank in self._banks.items():
            pairs = [weights.pairs.get(name) for name in names]
            bank.put(slot, pairs)
            shape = tuple(0 if pair is None else pair.b.numel() for pair in pairs)
            if any(shape) and shape not in compared:
                compared.add(shape)
                self._compare(bank, slot, names, pairs)

    def _bank(self, names: tuple[str, ...]) -> Bank:
        bank = self._make_bank([self._targets[name] for name in names])
        self._banks[names] = bank
        return bank

    def _known_as(self, name: str) -> str:
        """Name of the target if the adapter was made for the language model alone or as a part."""
        alone = name.replace(_WITHIN, _ALONE, 1)
        within = name.replace(_ALONE, _WITHIN, 1)
        return next((each for each in (name, alone, within) if each in self._targets), name)

    def _check(self, name: str, pair: Pair) -> None:
        target = self._targets.get(name)
        if target is None:
            raise InvalidAdapter(
                f"it adapts {name}, which this model does not have or which cannot be adapted; "
                f"supported are {_some([*self._targets])}"
            )
        shape = (pair.a.shape[1], pair.b.shape[0])
        if shape != (target.depth, target.width):
            raise InvalidAdapter(
                f"{name}: lora_A takes {shape[0]} numbers and lora_B gives {shape[1]}, but the "
                f"module takes {target.depth} and gives {target.width}"
            )

    @torch.inference_mode()
    def _compare(
        self, bank: Bank, slot: int, names: Sequence[str], pairs: Sequence[Pair | None]
    ) -> None:
        """Compare a bank's output, for a row with the adapter beside one without, with products."""
        model, targets = self._model, [self._targets[name] for name in names]
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, targets[0].depth, generator=generator).to(model.dtype)
        found = x.new_zeros(2, sum(target.width for target in targets)).to(model.device)
        bank.add(x.to(model.device), found, bank.adapters([0, slot]))
        expected = [
            x.new_zeros(target.width).float() if pair is None else pair.b @ (pair.a @ x[1].float())
            for pair, target in zip(pairs, targets, strict=True)
        ]
        row, wanted = found[1].float().cpu(), torch.cat(expected)
        error = float((row - wanted).norm() / wanted.norm().clamp_min(1e-30))
        if not error <= _TOLERANCE[model.dtype] or found[0].any():
            raise UnsupportedModel(
                f"self-check failed: the output of an adapter on {_some(names)} differs from "
                f"plain matrix products (relative error {error:.2g})"
            )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def make_slots(
    model: PreTrainedModel, route: AttentionRoute, config: ModelConfig
) -> AdapterSlots | None:
    """Slots for ``model`` as it was loaded, with no layer fused; None: adapters are not enabled.

    Raises ``UnsupportedModel`` if they are not supported.
    """
    room = config.adapters
    if room is None:
        return None
    if config.batch_invariant and model.device.type == "cpu":
        raise UnsupportedModel(
            "batch_invariant and adapters cannot be combined on the CPU; leave one out"
        )

    def make_bank(targets: Sequence[Target]) -> Bank:
        if model.device.type == "cpu":
            panels = (module for module in model.modules() if isinstance(module, PanelLinear))
            return CpuBank(model.dtype, next((each.team for each in panels), None))
        # Imported where it is needed: triton is there with CUDA builds of torch only.
        from app.model.cuda.kernels.adapters import CudaBank

        return CudaBank(
            targets, count=room.count, rank=room.rank, dtype=model.dtype, device=model.device
        )

    return AdapterSlots(model, route, count=room.count, rank=room.rank, make_bank=make_bank)


def fill_slots(slots: AdapterSlots, config: AdaptersConfig, progress: Progress) -> None:
    """Load the configured adapters, in their order, into slots 1 and up.

    Raises ``UnsupportedModel`` with the name of an adapter that cannot be loaded.
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


class CpuBank:
    """A ``Bank`` for one module on the CPU: each adapter of a step multiplies its own rows.

    A step without adapters costs one check. Products in bfloat16 use the loops of
    ``kernels.panels`` where those run: there a row does not depend on the others.
    """

    def __init__(self, dtype: torch.dtype, team: CpuTeam | None) -> None:
        """``team`` computes the products; None: torch does."""
        self._dtype = dtype
        self._team = team
        self._products: dict[int, tuple[Product, Product]] = {}

    def put(self, slot: int, pairs: Sequence[Pair | None]) -> None:
        (pair,) = pairs
        self._products.pop(slot, None)
        if pair is not None:
            odd = pair.rank % _EVEN
            a = nn.functional.pad(pair.a, (0, 0, 0, odd))
            b = nn.functional.pad(pair.b, (0, odd))
            self._products[slot] = (self._product(a), self._product(b))

    def add(self, x: Tensor, out: Tensor, adapters: AdapterRows) -> None:
        for slot, rows in adapters:
            if (products := self._products.get(slot)) is not None:
                a, b = products
                out[rows] += b(a(x[rows]))

    def adapters(self, slots: Sequence[int]) -> AdapterRows:
        return adapter_rows(np.array(slots, dtype=np.int64))

    def _product(self, weight: Tensor) -> Product:
        width, depth = weight.shape
        linear = nn.Linear(depth, width, bias=False, dtype=self._dtype)
        linear.weight = nn.Parameter(weight.to(self._dtype), requires_grad=False)
        if self._team is None or depth % _EVEN:
            return linear
        return PanelLinear(linear, self._team)
