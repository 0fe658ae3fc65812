"""Adapters on the CUDA path: on a GPU if there is one, else interpreted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from app.core.step import Span
from app.model.adapters.peft import Pair
from app.model.adapters.slots import AdapterSlots
from app.model.adapters.targets import Target
from app.model.cuda.attention import TritonAttention
from app.model.cuda.graphs import CudaSteps
from app.model.cuda.kernels import adapters as kernels
from app.model.cuda.kernels.adapters import CudaBank
from app.model.cuda.layers import fuse
from app.model.cuda.tiles import Device
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.kv_storage import allocate
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from tests.model.compiled_mode import in_compiled_mode
from tests.model.interpreter import DEVICE
from tests.model.peft_files import ATTENTION, MLP, merge, save_adapter
from tests.model.tiny import eager_model, save_config
from tests.steps import planned

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")

SMALL = Device(multiprocessors=2, shared_bytes=99 << 10, capability=8)

PARTS = {
    "one module": ([Target(40, 72)], 4),
    "an odd depth, three modules": ([Target(37, 70), Target(37, 16), Target(37, 130)], 20),
}
"""Modules that share an input, and the largest rank of an adapter."""
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Relative to the whole output; ``A x`` is rounded once in between."""


def pair_of(target: Target, rank: int) -> Pair:
    return Pair(torch.randn(rank, target.depth), torch.randn(target.width, rank))


def filled(
    targets: Sequence[Target], rank: int, dtype: torch.dtype
) -> tuple[CudaBank, list[list[Pair | None]]]:
    """A bank with two adapters, the second without its first module, and an unused slot."""
    torch.manual_seed(0)
    bank = CudaBank(targets, count=3, rank=rank, dtype=dtype, device=DEVICE)
    loaded: list[list[Pair | None]] = [
        [pair_of(target, rank) for target in targets],
        [None, *(pair_of(target, 3) for target in targets[1:])],
    ]
    for slot, pairs in enumerate(loaded, start=1):
        bank.put(slot, pairs)
    return bank, loaded


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("parts", PARTS)
def test_each_row_gets_what_its_own_adapter_adds(
    parts: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_SHARE", 16)
    monkeypatch.setattr(kernels, "_DEPTH_BYTES", 16 * dtype.itemsize)
    targets, rank = PARTS[parts]
    bank, loaded = filled(targets, rank, dtype)
    slots = [random.Random(0).randrange(4) for _ in range(41)]
    x = torch.randn(len(slots), targets[0].depth).to(dtype)
    before = torch.randn(len(slots), sum(target.width for target in targets)).to(dtype)
    out = before.to(DEVICE, copy=True)
    bank.add(x.to(DEVICE), out, bank.adapters(slots))
    found = out.cpu()
    for slot, row, old, new in zip(slots, x.float(), before, found, strict=True):
        if slot in (0, 3):
            assert torch.equal(new, old)
            continue
        wanted = [
            torch.zeros(target.width) if pair is None else pair.b @ (pair.a @ row)
            for pair, target in zip(loaded[slot - 1], targets, strict=True)
        ]
        expected = old.float() + torch.cat(wanted)
        error = (new.float() - expected).norm() / expected.norm()
        assert error < TOLERANCES[dtype]


def test_a_row_is_the_same_whoever_is_beside_it() -> None:
    targets, rank = PARTS["an odd depth, three modules"]
    bank, _ = filled(targets, rank, torch.bfloat16)
    slots = [1, 2, 0, 1, 2, 2] * 4
    x = torch.randn(len(slots), targets[0].depth).bfloat16().to(DEVICE)
    together = torch.zeros(len(slots), 216, dtype=torch.bfloat16, device=DEVICE)
    bank.add(x, together, bank.adapters(slots))
    for row in (0, 1, 17):
        alone = torch.zeros(1, 216, dtype=torch.bfloat16, device=DEVICE)
        bank.add(x[row : row + 1], alone, bank.adapters([slots[row]]))
        assert torch.equal(alone[0], together[row])


def test_a_slot_that_is_filled_anew_has_nothing_of_what_was_there() -> None:
    target = Target(32, 48)
    bank = CudaBank([target], count=1, rank=16, dtype=torch.float32, device=DEVICE)
    bank.put(1, [pair_of(target, 16)])
    pair = pair_of(target, 2)
    bank.put(1, [pair])
    x, out = torch.randn(1, 32), torch.zeros(1, 48, device=DEVICE)
    bank.add(x.to(DEVICE), out, bank.adapters([1]))
    torch.testing.assert_close(out.cpu(), x @ pair.a.T @ pair.b.T)


class Launches:
    """Replaces a graph: a replay launches all kernels again."""

    def __init__(self, launch: Any) -> None:
        self.replay = launch


@pytest.mark.parametrize(("name", "layers"), [("llama", True), ("gpt2", False)], ids=str)
def test_a_captured_step_serves_adapters_that_are_loaded_later(
    name: str, layers: bool, tmp_path: Path
) -> None:
    folder = save_config(tmp_path / "model", name, num_hidden_layers=1)
    endings = ATTENTION + MLP if layers else ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj")
    adapter = save_adapter(tmp_path / "adapter", eager_model(folder), endings)
    route, model = AttentionRoute(), eager_model(folder).to(DEVICE)  # type: ignore[arg-type]
    slots = AdapterSlots(
        model,
        route,
        count=2,
        rank=4,
        make_bank=lambda targets: CudaBank(
            targets, count=2, rank=4, dtype=model.dtype, device=DEVICE
        ),
    )
    shapes = probe_layers(model, route, RecurrentRoute(model))
    assert fuse(model, route, batch_invariant=False, adapters=slots) == layers
    storage = allocate(shapes, num_blocks=8, block_size=4, device=DEVICE)
    attention = TritonAttention(storage, shapes, max_model_len=32, has_adapters=True, device=SMALL)
    forward = RaggedForward(model, route, RecurrentRoute(model), attention)
    texts = [[5, 9], [7, 2]]
    plan = planned(
        [Span(texts[0], 0, [[0]], adapter=2), Span(texts[1], 0, [[1]])],
        [(0, 1), (1, 1)],
    )
    slots.attach(lambda: forward.run(lay_out(plan, 4)))
    steps = CudaSteps(
        forward, attention, max_graph_tokens=4, max_model_len=32, capture=lambda: Launches
    )
    steps.prepare()
    slots.put(2, slots.read(str(adapter)))
    step = lay_out(plan, 4)
    assert steps.find_bucket(step) is not None
    found = steps.run(step).cpu()
    plain, merged = eager_model(folder), merge(eager_model(folder), adapter)
    wanted: list[Tensor] = [
        each(torch.tensor([text]), use_cache=False).logits[0, -1]
        for each, text in zip((merged, plain), texts, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(wanted), atol=2e-4, rtol=1e-3)


COMPILE = """
import torch
from app.model.cuda.kernels import adapters as kernels
from tests.model.compile_kernels import GPUS, Compiles

real = kernels.shrink, kernels.expand
for capability in (80, 90, 100):
    def launched(name, constants, shared):
        assert shared <= 99 << 10, (capability, name, constants, shared)  # of capability 8.6
        print(name)

    kernels.shrink, kernels.expand = (Compiles(each, capability, launched) for each in real)
    usual = (torch.bfloat16, 4096, (4096, 1024, 1024), 16)
    large = (torch.bfloat16, 872, (100,), 256), (torch.float32, 1024, (1024,), 256)
    for dtype, depth, widths, rank in (usual, *(large if capability == 80 else ())):
        a = torch.empty(4, len(widths), rank, depth, dtype=dtype)
        b = torch.empty(4, sum(widths), rank, dtype=dtype)
        columns = torch.zeros(len(widths) + 1, dtype=torch.int32)
        tiles = kernels.RankTiles.of(depth, max(widths), rank, dtype)
        x, out = torch.empty(7, depth, dtype=dtype), torch.empty(7, sum(widths), dtype=dtype)
        slots = torch.zeros(7, dtype=torch.int32)
        kernels.add_low_rank(x, a, b, columns, slots, out, tiles)
"""


def test_the_kernels_compile_and_fit_into_shared_memory_with_no_gpu_here() -> None:
    output = in_compiled_mode("-c", COMPILE)
    assert output.split() == ["shrink", "expand"] * 5
