"""What a norm is, as it shows when it is tried."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

_LIKENESS = 0.02
"""How far a norm's result may be from what it is taken for: bfloat16 rounds by 0.002."""


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm."""

    weight: Tensor
    eps: float
    shifted: bool
    """Whether it multiplies by 1 + its weight."""


def read_norm(norm: nn.Module, *, gated: bool = False) -> Norm | None:
    """What is seen when it is tried; None: it is no RMSNorm in bfloat16.

    A ``gated`` one is multiplied by SiLU of its second argument, and never shifted.
    """
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    weight = getattr(norm, "weight", None)
    if eps is None or weight is None or weight.ndim != 1 or weight.dtype != torch.bfloat16:
        return None
    x = torch.linspace(-1.0, 2.0, 2 * len(weight), dtype=weight.dtype).view(2, -1)
    normed = nn.functional.rms_norm(x.float(), x.shape[-1:], eps=float(eps))
    if gated:
        gates = x.flip(-1)
        out = _given(norm, x, gates)
        normed = normed * nn.functional.silu(gates.float())
    else:
        out = _given(norm, x)
    for shifted in (False,) if gated else (False, True):
        if _alike(out, normed * (weight.detach().float() + shifted)):
            return Norm(weight.detach(), float(eps), shifted)
    return None


def _given(norm: nn.Module, *arguments: Tensor) -> Tensor | None:
    """What it makes of them, float32; None where it does not take them."""
    try:
        out: Tensor = norm(*arguments)
    except (IndexError, RuntimeError, TypeError):
        return None
    return out.float()


def _alike(out: Tensor | None, wanted: Tensor) -> bool:
    if out is None or out.shape != wanted.shape:
        return False
    return bool((out - wanted).norm() <= _LIKENESS * wanted.norm())
