"""Layers that read a state, not keys: linear attention, Mamba, short convolutions.

Their projections, norms and gates work token by token. Two functions in them look along the
sequence: a causal convolution and a scan. transformers' mixers call both by names that their module
has, the same in every kind of model, so ``RecurrentRoute`` gives each mixer a copy of its own
``forward`` in which these names call the current ``LayerScan``: a probe that only notes shapes, or
that of a device. Without one they are transformers' own, so the plain model does not change.

Shapes: T tokens of all spans together, C channels, H heads (Hk of keys, G groups of heads).
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.inputs import StepArrays
from app.model.layers.model_call import code_names, either_way
from app.model.state_storage import StateShape

SILU = ("silu", "swish")
"""Names of the activation that convolutions apply themselves."""


class DeltaRule(NamedTuple):
    """Gated delta rule, with a state [H, V, K]. Queries are scaled by ``K ** -0.5`` where it runs.

    Source: Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks.
    """

    query: Tensor
    """Shape [T, Hk, K], as ``key``."""
    key: Tensor
    value: Tensor
    """Shape [T, H, V]."""
    decay: Tensor
    """Logarithm of the state's decay: [T, H], or for each channel of the keys [T, H, K]."""
    rate: Tensor
    """Shape [T, H]."""
    normalize: bool
    """Whether queries and keys are divided by their norms."""


class Mamba2(NamedTuple):
    """Mamba 2 (state space duality), with a state [H, P, N]. Source: Dao and Gu 2024."""

    x: Tensor
    """Shape [T, H, P]."""
    dt: Tensor
    """Shape [T, H]; bias, softplus and limits are in it already."""
    decay: Tensor
    """A, [H]."""
    write: Tensor
    """B, [T, G, N]."""
    read: Tensor
    """C, [T, G, N]."""
    skip: Tensor | None
    """D, [H]."""


class Mamba1(NamedTuple):
    """Mamba's selective scan, with a state [C, N]. Source: Gu and Dao 2023."""

    x: Tensor
    """Shape [T, C], as ``dt``."""
    dt: Tensor
    decay: Tensor
    """A, [C, N]."""
    write: Tensor
    """B, [T, N]."""
    read: Tensor
    """C, [T, N]."""


class LayerScan(Protocol):
    """Operations of recurrent layers along the sequences, on the states of this step."""

    def convolve(
        self, layer: int, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        """Causal convolution of each channel alone: x [T, C], weight [C, K] -> [T, C]."""

    def delta_rule(self, layer: int, scan: DeltaRule) -> Tensor:
        """[T, H, V], in the dtype of the values."""

    def mamba2(self, layer: int, scan: Mamba2) -> Tensor:
        """[T, H, P], float32."""

    def mamba1(self, layer: int, scan: Mamba1) -> Tensor:
        """[T, C], float32."""


class StepScan(LayerScan, Protocol):
    def begin(self, step: StepArrays) -> None:
        """Set the step that the following calls belong to."""


class RecurrentRoute:
    """Passes the calls of a model's recurrent layers to a ``LayerScan``; one for each model.

    States of a layer's first convolution and first scan have the layer's index; those of further
    ones, and of layer -1, have indices below 0.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Replaces the ``forward`` of every mixer of ``model``."""
        self.target = None
        self.shapes: dict[int, StateShape] = {}
        """Shapes of states by index, after a forward pass within ``probing``."""
        for module in model.modules():
            if _CONVOLUTION in code_names(module):
                self._install(module)

    @property
    def target(self) -> LayerScan | None:
        return self._target

    @target.setter
    def target(self, target: LayerScan | None) -> None:
        """Set for each forward pass anew."""
        self._target = target
        self._seen: set[tuple[str, int]] = set()
        self._further = 0

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Note the shapes of all states in a forward pass, which computes nothing else."""
        probe = _StateProbe()
        self.target = probe
        try:
            yield
        finally:
            self.target = None
        self.shapes = probe.shapes

    def convolve(
        self, layer: int, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        scan, place = self._next("convolution", layer)
        return scan.convolve(place, x, weight, bias, activation)

    def scan(self, layer: int) -> tuple[LayerScan, int]:
        """The target for the next scan of a layer, and the index to pass to it as the layer."""
        return self._next("scan", layer)

    def _next(self, kind: str, layer: int) -> tuple[LayerScan, int]:
        """The target, and the index of this call's state."""
        assert self._target is not None, "no step has begun"
        if layer < 0 or (kind, layer) in self._seen:
            self._further += 1
            layer = -self._further
        self._seen.add((kind, layer))
        return self._target, layer

    def _install(self, mixer: Any) -> None:
        plain: Any = inspect.unwrap(type(mixer).forward)
        own = dict(plain.__globals__)
        for name in _REPLACED.keys() & code_names(mixer):
            own[name] = either_way(self, own[name], _REPLACED[name](self, mixer.layer_idx))
        forward = types.FunctionType(
            plain.__code__, own, plain.__name__, plain.__defaults__, plain.__closure__
        )
        forward.__kwdefaults__ = plain.__kwdefaults__
        mixer.forward = types.MethodType(forward, mixer)
        read_by_mixer = getattr(mixer, "dt_proj", None)
        if type(read_by_mixer) is nn.Linear:
            read_by_mixer.__class__ = _PlainLinear


class _StateProbe:
    """Computes nothing; notes the shapes of every layer's states."""

    def __init__(self) -> None:
        self.shapes: dict[int, StateShape] = {}

    def convolve(
        self, layer: int, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        scan = self.shapes[layer].scan if layer in self.shapes else None
        self.shapes[layer] = StateShape((weight.shape[1] - 1, x.shape[1]), x.dtype, scan)
        return x.new_zeros(x.shape)

    def delta_rule(self, layer: int, scan: DeltaRule) -> Tensor:
        self._note(layer, *scan.value.shape[1:], scan.key.shape[2])
        return scan.value.new_zeros(scan.value.shape)

    def mamba2(self, layer: int, scan: Mamba2) -> Tensor:
        self._note(layer, *scan.x.shape[1:], scan.write.shape[2])
        return torch.zeros_like(scan.x, dtype=torch.float32)

    def mamba1(self, layer: int, scan: Mamba1) -> Tensor:
        self._note(layer, *scan.decay.shape)
        return torch.zeros_like(scan.x, dtype=torch.float32)

    def _note(self, layer: int, *shape: int) -> None:
        known = self.shapes.get(layer, StateShape(None, torch.float32, None))
        self.shapes[layer] = replace(known, scan=shape)


class _PlainLinear(nn.Linear):
    """A linear layer whose weight the mixer multiplies itself; this class is never repacked."""


def _convolution(route: RecurrentRoute, layer: int) -> Callable[..., Any]:
    def convolve(
        hidden_states: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        activation: str | None = None,
        **more: Any,
    ) -> Tensor:
        """[1, C, T] -> the same."""
        x = hidden_states[0].transpose(0, 1)
        return route.convolve(layer, x, weight, bias, activation).transpose(0, 1)[None]

    return convolve


def _delta_rule(route: RecurrentRoute, layer: int) -> Callable[..., Any]:
    def scan(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        use_qk_l2norm_in_kernel: bool = False,
        **more: Any,
    ) -> tuple[Tensor, Tensor | None]:
        scans, place = route.scan(layer)
        parts = query[0], key[0], value[0], g[0], beta[0]
        found = scans.delta_rule(place, DeltaRule(*parts, normalize=use_qk_l2norm_in_kernel))
        return found[None], None

    return scan


def _mamba2(route: RecurrentRoute, layer: int) -> Callable[..., Any]:
    def scan(
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,  # noqa: N803
        B: Tensor,  # noqa: N803
        C: Tensor,  # noqa: N803
        chunk_size: int,
        D: Tensor | None = None,  # noqa: N803
        z: Tensor | None = None,
        dt_bias: Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        **more: Any,
    ) -> Any:
        if z is not None:
            raise UnsupportedModel(f"layer {layer} has an unsupported gate in its scan")
        dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
        dt = (F.softplus(dt) if dt_softplus else dt).clamp(dt_limit[0], dt_limit[1])
        scans, place = route.scan(layer)
        return scans.mamba2(place, Mamba2(hidden_states[0], dt[0], A, B[0], C[0], D))[None]

    return scan


def _mamba1(route: RecurrentRoute, layer: int) -> Callable[..., Any]:
    def scan(
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,  # noqa: N803
        B: Tensor,  # noqa: N803
        C: Tensor,  # noqa: N803
        D: Tensor | None = None,  # noqa: N803
        z: Tensor | None = None,
        delta_bias: Tensor | None = None,
        delta_softplus: bool = False,
        **more: Any,
    ) -> Any:
        """All but ``A`` and ``D`` are [1, channels, T]."""
        dt = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[:, None]
        dt = F.softplus(dt) if delta_softplus else dt
        flat = [part[0].transpose(0, 1) for part in (hidden_states, dt, B, C)]
        scans, place = route.scan(layer)
        out = scans.mamba1(place, Mamba1(flat[0], flat[1], A, flat[2], flat[3]))
        out = out.to(hidden_states.dtype).transpose(0, 1)[None]
        out = out if D is None else out + hidden_states * D[:, None]
        return out if z is None else out * F.silu(z)

    return scan


_CONVOLUTION = "causal_conv1d_fn"
_REPLACED: dict[str, Callable[[RecurrentRoute, int], Callable[..., Any]]] = {
    _CONVOLUTION: _convolution,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "mamba2_chunk_scan": _mamba2,
    "mamba_selective_scan": _mamba1,
}
"""Replacements for the functions that mixers call, by name."""
