"""The CPU's convolution and scans: any span length, saves anywhere, batch-invariant rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from app.core.cache import StateSlots
from app.core.step import Span
from app.model.cpu import scan as cpu_scan
from app.model.cpu.scan import CpuScan
from app.model.inputs import lay_out
from app.model.layers.recurrent import DeltaRule, Mamba1, Mamba2
from app.model.state_storage import StateShape, StateStorage, allocate_states

H, HK, K, V, C, N = 4, 2, 16, 24, 40, 8
SHAPES = {
    "delta_rule": (H, V, K),
    "delta_rule by channel": (H, V, K),
    "mamba2": (H, V, K),
    "mamba1": (C, N),
}
Inputs = dict[str, Tensor]


def inputs_of(kind: str, tokens: int, dtype: torch.dtype) -> Inputs:
    generator = torch.Generator().manual_seed(tokens)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    if kind.startswith("delta_rule"):
        decays = (tokens, H, K) if kind.endswith("channel") else (tokens, H)
        return {
            "query": draw(tokens, HK, K),
            "key": draw(tokens, HK, K),
            "value": draw(tokens, H, V),
            "decay": -draw(*decays).float().exp(),
            "rate": draw(tokens, H).sigmoid(),
        }
    if kind == "mamba2":
        x, dt = draw(tokens, H, V), draw(tokens, H).float().exp()
        write, read = draw(tokens, HK, K), draw(tokens, HK, K)
    else:
        x, dt = draw(tokens, C), draw(tokens, C).float().exp()
        write, read = draw(tokens, N), draw(tokens, N)
    return {"x": x, "dt": dt, "write": write, "read": read}


DECAY2, SKIP = -torch.linspace(0.5, 2.0, H), torch.linspace(-1.0, 1.0, H)
DECAY1 = -torch.linspace(0.1, 3.0, C * N).view(C, N)


def call(scan: CpuScan, kind: str, given: Inputs) -> Tensor:
    if kind.startswith("delta_rule"):
        return scan.delta_rule(0, DeltaRule(**given, normalize=True))
    if kind == "mamba2":
        return scan.mamba2(0, Mamba2(decay=DECAY2, skip=SKIP, **given))
    return scan.mamba1(0, Mamba1(decay=DECAY1, **given))


def one_token(kind: str, state: Tensor, given: Inputs) -> tuple[Tensor, Tensor]:
    """Output and next state by the recurrences of the papers, in float64."""
    g = {name: part.double() for name, part in given.items()}
    if kind.startswith("delta_rule"):
        q, k = (F.normalize(g[n], dim=-1).repeat_interleave(H // HK, 0) for n in ("query", "key"))
        kept = g["decay"].exp()
        state = state * (kept[:, None] if kept.ndim == 2 else kept[:, None, None])
        change = g["rate"][:, None] * (g["value"] - (state @ k[..., None])[..., 0])
        state = state + change[..., None] * k[:, None]
        return (state @ q[..., None])[..., 0] * K**-0.5, state
    if kind == "mamba2":
        b, c = (g[name].repeat_interleave(H // HK, 0) for name in ("write", "read"))
        kept = (g["dt"] * DECAY2).exp()[:, None, None]
        state = state * kept + (g["dt"][:, None] * g["x"])[..., None] * b[:, None]
        return (state @ c[..., None])[..., 0] + SKIP[:, None] * g["x"], state
    state = state * (g["dt"][:, None] * DECAY1).exp() + (g["dt"] * g["x"])[:, None] * g["write"]
    return state @ g["read"], state


def storage_of(kind: str, dtype: torch.dtype) -> StateStorage:
    shapes = {0: StateShape((3, C), dtype, SHAPES.get(kind))}
    storage = allocate_states(shapes, StateSlots(count=12, interval=16), torch.device("cpu"))
    torch.manual_seed(5)
    for states in (*storage.conv.values(), *storage.scan.values()):
        states[1:] = torch.randn(states[1:].shape).to(states.dtype)
    return storage


def begin(
    scan: CpuScan, lengths: Sequence[int], saves: Sequence[Any], reads: Sequence[int]
) -> None:
    spans = [
        Span([0] * length, 0, [], state=read, saves=own)
        for length, own, read in zip(lengths, saves, reads, strict=True)
    ]
    scan.begin(lay_out(spans, 16))


LENGTHS, READS = (1, 70, 3, 2), (1, 2, 0, 2)
SAVES: tuple[list[tuple[int, int]], ...] = ([(1, 1)], [(1, 4), (64, 5), (70, 6)], [(2, 7)], [])
"""A decode in place, a chunk, a beginning, and a span without saves; two of them read one slot."""


def exactly(kind: str, given: Inputs, storage: StateStorage) -> tuple[Tensor, dict[int, Tensor]]:
    """Exact outputs of the spans above, and the states that they save, by slot."""
    outs, saved, row = [], {}, 0
    for length, saves, read in zip(LENGTHS, SAVES, READS, strict=True):
        state = storage.scan[0][read].double()
        slots = dict(saves)
        for done in range(1, length + 1):
            token = {name: part[row] for name, part in given.items()}
            out, state = one_token(kind, state, token)
            outs.append(out)
            row += 1
            if done in slots:
                saved[slots[done]] = state
    return torch.stack(outs), saved


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", SHAPES)
def test_scans_are_the_recurrences_of_the_papers(kind: str, dtype: torch.dtype) -> None:
    given = inputs_of(kind, sum(LENGTHS), dtype)
    storage = storage_of(kind, dtype)
    expected, saved = exactly(kind, given, storage)
    scan = CpuScan(storage)
    begin(scan, LENGTHS, SAVES, READS)
    out = call(scan, kind, given)
    rounding = 1e-5 if out.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(out.double(), expected, atol=rounding, rtol=rounding)
    for slot, state in saved.items():
        torch.testing.assert_close(storage.scan[0][slot].double(), state, atol=1e-4, rtol=1e-4)
    assert not storage.scan[0][0].any(), "the empty state was written"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [*SHAPES, "convolve"])
def test_a_row_has_the_same_bits_in_any_batch(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows at once, by several threads, against each row in a step of its own."""
    tokens = 41

    def run(scan: CpuScan, part: slice) -> Tensor:
        if kind == "convolve":
            return scan.convolve(0, x[part], weight, bias, "silu")
        return call(scan, kind, {name: values[part] for name, values in given.items()})

    x, weight, bias = (torch.randn(s).to(dtype) for s in ((tokens, C), (C, 4), (C,)))
    given = {} if kind == "convolve" else inputs_of(kind, tokens, dtype)
    together = CpuScan(storage_of(kind, dtype))
    monkeypatch.setattr(cpu_scan, "_SPREAD_WORK", 0)
    begin(together, (30, 11), ([(30, 1)], [(11, 2)]), (1, 2))
    whole = run(together, slice(0, tokens))
    alone = CpuScan(storage_of(kind, dtype))
    monkeypatch.setattr(cpu_scan, "_SPREAD_WORK", 1 << 30)
    rows = []
    for row in range(tokens):
        slot = 1 if row < 30 else 2
        begin(alone, (1,), ([(1, slot)],), (slot,))
        rows.append(run(alone, slice(row, row + 1)))
    assert torch.equal(whole, torch.cat(rows))
    for ours, theirs in (
        (together.storage.conv[0], alone.storage.conv[0]),
        *([] if kind == "convolve" else [(together.storage.scan[0], alone.storage.scan[0])]),
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("activation", "function"), [(None, lambda x: x), ("silu", F.silu), ("gelu", F.gelu)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_convolution_goes_on_from_the_inputs_in_its_slot(
    dtype: torch.dtype, activation: str | None, function: Callable[[Tensor], Tensor]
) -> None:
    storage = storage_of("convolve", dtype)
    before = storage.conv[0].clone()
    x, weight, bias = (torch.randn(s).to(dtype) for s in ((76, C), (C, 4), (C,)))
    scan = CpuScan(storage)
    begin(scan, LENGTHS, SAVES, READS)
    out = scan.convolve(0, x, weight, bias, activation)
    row = 0
    for length, saves, read in zip(LENGTHS, SAVES, READS, strict=True):
        inputs = torch.cat([before[read], x[row : row + length]])
        sums = F.conv1d(inputs.T[None].float(), weight[:, None].float(), bias.float(), groups=C)
        expected = function(sums[0].T.to(dtype))
        rounding = 1e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(out[row : row + length], expected, atol=rounding, rtol=rounding)
        for done, slot in saves:
            assert torch.equal(storage.conv[0][slot], inputs[done : done + 3])
        row += length
