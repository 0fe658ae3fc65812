"""Times products at load, to choose the fastest: our loops, those with AMX, or torch's.

With AMX torch multiplies many rows several times as fast as AVX512-BF16 does, and spends more time
on few rows; a CPU flag does not tell which of them is better.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from transformers import PreTrainedModel

from app.core.step import Span
from app.model.cpu.attention import CpuAttention
from app.model.cpu.kernels import amx
from app.model.cpu.kernels.panels import MOST_ROWS
from app.model.cpu.layers import FusedLayer, PanelLinear
from app.model.cpu.mixers import Routes
from app.model.cpu.packed_linear import PackedLinear, can_pack, pack_linears
from app.model.cpu.weights import Linear, has_panels
from app.model.cpu.workspace import CpuTeam, Workspace
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.layers.attention import set_attention
from app.model.loaded import LoadedModel

ROWS: Final = (1, 8, 32, 128)
"""Tokens of the steps that are timed: three of decoding, and a prompt."""
BLOCKS: Final = 32
"""Cache blocks that hold a step, of 4 tokens or more each."""

_MARGIN: Final = 1.2
"""The speed-up needed to choose torch: above noise, as our loops are batch-invariant."""
_SECONDS: Final = 0.04
"""Minimum time for a number of rows, both paths together; each runs at least three times."""

_Pass = Callable[[int], float]
"""Runs one decoder layer, or its products, for a number of rows; returns the seconds."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Shortest times of a layer, or of all products, in seconds, for ``ROWS`` by each path; empty
    for a path that was not tried."""

    loops: Sequence[float]
    torch: Sequence[float] = ()
    amx: Sequence[float] = ()

    @property
    def loops_win(self) -> bool:
        ours = min(_mean(path) for path in (self.loops, self.amx) if path)
        return not self.torch or ours < _MARGIN * _mean(self.torch)

    def amx_from(self, quantized: bool) -> tuple[int, int]:
        """Numbers of rows from which the loops use AMX, in bfloat16 and for rounded rows; 0: never.

        Its sums in bfloat16 are rounded in another way: all rows use it, or none. Those of rounded
        rows are equal: a ``quantized`` model uses it for numbers of rows that it was faster for.
        """
        if not quantized:
            return int(bool(self.amx) and _mean(self.amx) < _mean(self.loops)), 0
        least = 0
        for rows, ours, theirs in zip(ROWS[::-1], self.loops[::-1], self.amx[::-1], strict=False):
            if theirs >= ours:
                break
            least = max(rows, MOST_ROWS + 1)
        return 0, least

    def __str__(self) -> str:
        named = {"own loops": self.loops, "own loops with AMX": self.amx, "torch": self.torch}
        found = [
            f"{name} {', '.join([f'{1000 * seconds:.3g}' for seconds in path])}"
            for name, path in named.items()
            if path
        ]
        return f"ms for {', '.join(map(str, ROWS))} tokens: {'; '.join(found)}"


def _mean(times: Sequence[float]) -> float:
    return math.prod(times) ** (1 / len(times))


@torch.inference_mode()
def compare(
    loaded: LoadedModel,
    make_forward: Callable[[], RaggedForward],
    *,
    layers: bool = True,
    with_torch: bool = True,
) -> Trial | None:
    """Time all paths for ``loaded`` as it was loaded, in bfloat16; its weights stay as they are.

    ``make_forward`` makes a pass over a cache of ``BLOCKS`` blocks. Without ``layers`` single
    products run by the loops. None: there are only loops, without AMX.
    """
    with_torch = with_torch and can_pack(loaded.model.dtype, loaded.device)
    if not with_torch and amx.missing():
        return None
    passes = _of_a_layer(loaded, make_forward(), with_torch) if layers else None
    team, ours, theirs = passes or _of_products(loaded.model, with_torch)

    def by_amx(rows: int) -> float:
        team.use_amx(1, 1)
        seconds = ours(rows)
        team.use_amx(0, 0)
        return seconds

    paths = {"loops": ours}
    if not amx.missing():
        paths["amx"] = by_amx
    if theirs is not None:
        paths["torch"] = theirs
    found: dict[str, list[float]] = {name: [] for name in paths}
    for rows in ROWS:
        for path in paths.values():
            path(rows)
        times: dict[str, list[float]] = {name: [] for name in paths}
        while len(times["loops"]) < 3 or sum(map(sum, times.values())) < _SECONDS:
            for name, path in paths.items():
                times[name].append(path(rows))
        for name in paths:
            found[name].append(min(times[name]))
    return Trial(**found)


class _Timed(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.seconds = layer, 0.0
        self.attention_type = getattr(layer, "attention_type", None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        out = self.layer(*args, **kwargs)
        self.seconds = time.perf_counter() - start
        return out


def _of_a_layer(
    loaded: LoadedModel, forward: RaggedForward, with_torch: bool
) -> tuple[CpuTeam, _Pass, _Pass | None] | None:
    """Passes of a model of one layer, timed around that layer, by the loops of a team and by torch.
    None: its kind has no loops."""
    set_attention(loaded.model, loaded.route.name)
    body: Any = getattr(loaded.model, "model", None)
    whole = getattr(body, "layers", None)
    routes = Routes(loaded.route, loaded.recurrent)
    if not isinstance(whole, nn.ModuleList) or None in map(routes.mixer_of, whole):
        return None
    mixer = routes.mixer_of(copied := copy.deepcopy(whole[0]))
    assert mixer is not None
    team = CpuTeam(torch.get_num_threads(), len(whole))
    ours = FusedLayer(copied, mixer, routes, team, Workspace(team))
    if with_torch:
        pack_linears(theirs := copy.deepcopy(whole[0]))
    assert isinstance(forward.attention, CpuAttention)
    storage = forward.attention.storage
    size, groups = storage.block_size, len(storage.groups)

    def step(rows: int) -> StepArrays:
        """A step of one token for each of ``rows`` answers; 128 rows are one prompt."""
        if rows == ROWS[-1]:
            spans = [Span([1] * rows, 0, (tuple(range(-(-rows // size))),) * groups)]
        else:
            spans = [Span([1], 0, ((block,),) * groups) for block in range(rows)]
        return lay_out(spans, size)

    steps = {rows: step(rows) for rows in ROWS}

    def path(layer: nn.Module) -> _Pass:
        timed = _Timed(layer)

        def run(rows: int) -> float:
            body.layers = nn.ModuleList([timed])
            try:
                forward.run(steps[rows])
            finally:
                body.layers = whole
            return timed.seconds

        return run

    return team, path(ours), path(theirs) if with_torch else None


def _of_products(model: PreTrainedModel, with_torch: bool) -> tuple[CpuTeam, _Pass, _Pass | None]:
    """Products of the linear layers, each shape as often as it occurs; the output layer, which
    computes few rows of a step, is left out."""
    shapes: dict[tuple[int, int], nn.Module] = {}
    count: Counter[tuple[int, int]] = Counter()
    output = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, Linear) and has_panels(module) and module is not output:
            shape = module.in_features, module.out_features
            shapes[shape] = module
            count[shape] += 1
    team = CpuTeam(torch.get_num_threads())

    def path(make: Callable[[Any], nn.Module]) -> _Pass:
        made = {shape: make(copy.deepcopy(linear)) for shape, linear in shapes.items()}

        def run(rows: int) -> float:
            total = 0.0
            for shape, linear in made.items():
                x = torch.ones(rows, shape[0], dtype=torch.bfloat16)
                start = time.perf_counter()
                linear(x)
                total += (time.perf_counter() - start) * count[shape]
            return total

        return run

    ours = path(lambda linear: PanelLinear(linear, team))
    return team, ours, path(PackedLinear) if with_torch else None
