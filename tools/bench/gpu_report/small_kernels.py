"""Speed of each small kernel of a fused layer, and its error against torch's operations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from app.model.cuda.kernels import product as invariant
from app.model.cuda.kernels.elementwise import activate, add_norm, rms_norm, rotate_and_store
from app.model.layers.architecture import Norm
from tools.bench.gpu_report.device import bandwidth, replayed
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import Shape


def small_kernels(record: Record, device: torch.device, shape: Shape, tiny: bool) -> None:
    speed = bandwidth(device)
    dtype = torch.float32 if tiny else torch.bfloat16
    for tokens in (2,) if tiny else (1, 32, 256):
        for name, (work, moved, reference) in _kernels(shape, tokens, dtype, device).items():
            try:
                error = _error(work(), reference())
                seconds = replayed(work, device).median
            except Exception as failure:
                record.failed(f"{name}, {tokens} tokens", failure)
                continue
            record.row(
                "small kernels",
                kernel=name,
                tokens=tokens,
                us=1e6 * seconds,
                GBs=moved / seconds / 1e9,
                floor_us=1e6 * moved / speed,
                error=error,
            )
            if not error < (1e-4 if tiny else 2e-2):
                record.failed(f"{name}, {tokens} tokens", f"relative error {error:.2g}")


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


Kernel = tuple[Callable[[], Tensor], float, Callable[[], Tensor]]


def _kernels(
    shape: Shape, tokens: int, dtype: torch.dtype, device: torch.device
) -> dict[str, Kernel]:
    """By name: the kernel, the bytes it must move, and the same in torch's operations."""
    torch.manual_seed(0)

    def some(*sizes: int) -> Tensor:
        return torch.randn(*sizes, device=device, dtype=dtype)

    hidden, added = some(tokens, shape.hidden), some(tokens, shape.hidden)
    norm = Norm(weight=1 + some(shape.hidden) / 8, eps=1e-5, shifted=False)
    gate_up = some(tokens, 2 * shape.intermediate)
    heads = some(tokens, (shape.heads + 2 * shape.kv_heads) * shape.head_dim)
    angle = torch.rand(tokens, shape.head_dim // 2, device=device).repeat(1, 2) * 6
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    keys, values = (some(64 * tokens, shape.kv_heads, shape.head_dim) for _ in range(2))
    slots = torch.randperm(64 * tokens, device=device)[:tokens]
    weight = some(shape.hidden, shape.hidden) / shape.hidden**0.5
    tiles = invariant.tiling(weight)

    def normed(x: Tensor) -> Tensor:
        return functional.rms_norm(x.float(), (shape.hidden,), norm.weight.float(), norm.eps)

    def rotated() -> Tensor:
        query = heads.view(tokens, -1, shape.head_dim)[:, : shape.heads].float()
        left, right = query.chunk(2, -1)
        turned = torch.cat([-right, left], -1)
        return query * cos[:, None].float() + turned * sin[:, None].float()

    size = dtype.itemsize
    row, wide = tokens * shape.hidden * size, tokens * shape.intermediate * size
    gate, up = gate_up.float().chunk(2, 1)
    return {
        "norm": (lambda: rms_norm(hidden, norm), 2 * row, lambda: normed(hidden)),
        "add + norm": (
            lambda: add_norm(hidden, added, None, norm)[1],
            4 * row,
            lambda: normed(hidden + added),
        ),
        "rotate + store": (
            lambda: rotate_and_store(heads, cos, sin, slots, (keys, values, keys, values), None),
            2 * heads.nbytes,
            rotated,
        ),
        "SiLU x mul": (
            lambda: activate(gate_up, gelu=False),
            3 * wide,
            lambda: functional.silu(gate) * up,
        ),
        "invariant product": (
            lambda: invariant.product(hidden, weight, None, tiles),
            weight.nbytes + 2 * row,
            lambda: hidden.float() @ weight.float().T,
        ),
        "torch's product": (
            lambda: functional.linear(hidden, weight),
            weight.nbytes + 2 * row,
            lambda: hidden.float() @ weight.float().T,
        ),
    }
