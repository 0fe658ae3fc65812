"""Recurrent layers on CUDA against the CPU's loops: on a GPU if there is one, else interpreted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.core.cache import StateSlots
from app.core.step import Span
from app.model.cpu.sampling import CpuSampler
from app.model.cpu.scan import CpuScan
from app.model.cuda.attention import TritonAttention
from app.model.cuda.graphs import CudaSteps
from app.model.cuda.scan import TritonScan
from app.model.cuda.step_buffers import Layout, StateSizes, StepBuffers
from app.model.cuda.tiles import Device
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import allocate
from app.model.layers.recurrent import DeltaRule, Mamba1, Mamba2
from app.model.loaded import load
from app.model.runner import TorchRunner
from app.model.state_storage import StateShape, StateStorage, allocate_states
from tests.model.compiled_mode import in_compiled_mode
from tests.model.hybrid import hybrid_runner, lively_model
from tests.model.interpreter import DEVICE, rounding_as_a_gpu_does
from tests.model.layers.test_recurrent import RandomSteps
from tests.model.tiny import VOCAB, runner_config

CPU = torch.device("cpu")
SLOTS = 30


def random_step(dice: random.Random, lengths: tuple[int, ...]) -> StepArrays:
    """A step of spans with random slots to read and to save to; some save to the slot they read."""
    own = list(range(1, SLOTS))
    dice.shuffle(own)
    spans = []
    for length in lengths:
        read = own.pop() if dice.random() < 0.7 else 0
        done = sorted(dice.sample(range(1, length + 1), dice.randint(0, min(length, 3))))
        saves = [(at, own.pop()) for at in done]
        if saves and read and dice.random() < 0.6:
            place = dice.randrange(len(saves))
            saves[place] = (saves[place][0], read)
        spans.append(Span([0] * length, 0, (), state=read, saves=saves))
    return lay_out(spans, 4)


def noisy(shape: StateShape) -> StateStorage:
    states = allocate_states({0: shape}, StateSlots(SLOTS, 64), CPU)
    for tensors in (states.conv, states.scan):
        for tensor in tensors.values():
            tensor[1:].normal_()
    return states


def on_device(states: StateStorage) -> StateStorage:
    parts = [{n: t.to(DEVICE, copy=True) for n, t in each.items()} for each in
             (states.conv, states.scan)]  # fmt: skip
    return StateStorage(states.slots, *parts)


def device_scan(states: StateStorage, step: StepArrays, padding: int) -> TritonScan:
    tokens, spans = len(step.token_ids), len(step.spans)
    sizes = StateSizes(spans + 3 * padding, len(step.state_arrays.save_rows) + padding)
    layout = Layout(tokens + padding, 0, 0, [], 0, states=sizes)
    buffers = StepBuffers(DEVICE, layout.end)
    found = buffers.device_step(layout, [])
    buffers.load(layout, step, [], [])
    stub: Any = SimpleNamespace(step=found)
    return TritonScan(states, stub)


def wide(rows: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers [rows, *shape]; rows are slices of longer ones, as in split projections."""
    numbers = torch.Size(shape).numel()
    longer = torch.randn(rows, numbers + 5).to(dtype)
    return longer[:, 3 : 3 + numbers].view(rows, *shape)


Call = Callable[[Any, Callable[[Tensor], Tensor]], Tensor]


def moved(scan: Any, to: Callable[[Tensor], Tensor]) -> Any:
    """``scan`` with its tensors moved."""
    return type(scan)(*(to(part) if isinstance(part, Tensor) else part for part in scan))


def delta_rule(rows: int, *, by_channel: bool, normalize: bool, dtype: torch.dtype) -> Call:
    heads, key_heads, keys, values = 4, 2, 20, 24
    query, key = (wide(rows, key_heads, keys, dtype=dtype) for _ in range(2))
    value = wide(rows, heads, values, dtype=dtype)
    decay = -wide(rows, heads, keys).abs() if by_channel else -wide(rows, heads).abs()
    rate = wide(rows, heads).sigmoid()
    parts = DeltaRule(query, key, value, decay, rate, normalize)
    return lambda scan, to: scan.delta_rule(0, moved(parts, to))


def mamba2(rows: int, *, skips: bool, dtype: torch.dtype) -> Call:
    heads, groups, dims, size = 4, 2, 12, 20
    parts = Mamba2(
        wide(rows, heads, dims, dtype=dtype),
        wide(rows, heads).abs(),
        -torch.rand(heads),
        wide(rows, groups, size, dtype=dtype),
        wide(rows, groups, size, dtype=dtype),
        torch.randn(heads) if skips else None,
    )
    return lambda scan, to: scan.mamba2(0, moved(parts, to))


def mamba1(rows: int, *, dtype: torch.dtype) -> Call:
    channels, size = 300, 6
    parts = Mamba1(
        wide(rows, channels, dtype=dtype),
        wide(rows, channels).abs(),
        -torch.rand(channels, size),
        wide(rows, size, dtype=dtype),
        wide(rows, size, dtype=dtype),
    )
    return lambda scan, to: scan.mamba1(0, moved(parts, to))


def convolution(rows: int, *, biased: bool, activation: str | None, dtype: torch.dtype) -> Call:
    channels = 300
    x, weight = wide(rows, channels, dtype=dtype), torch.randn(channels, 4).to(dtype)
    bias = torch.randn(channels).to(dtype)
    return lambda scan, to: scan.convolve(
        0, to(x), to(weight), to(bias) if biased else None, activation
    )


F32, BF16 = torch.float32, torch.bfloat16
KINDS: dict[str, tuple[Callable[..., Call], dict[str, Any], tuple[int, ...] | None]] = {
    "delta rule": (
        delta_rule, {"by_channel": False, "normalize": True, "dtype": F32}, (4, 24, 20)
    ),
    "delta rule, decay by channel": (
        delta_rule, {"by_channel": True, "normalize": False, "dtype": F32}, (4, 24, 20)
    ),
    "delta rule in bfloat16": (
        delta_rule, {"by_channel": False, "normalize": True, "dtype": BF16}, (4, 24, 20)
    ),
    "mamba 2": (mamba2, {"skips": True, "dtype": F32}, (4, 12, 20)),
    "mamba 2 in bfloat16": (mamba2, {"skips": False, "dtype": BF16}, (4, 12, 20)),
    "mamba 1": (mamba1, {"dtype": F32}, (300, 6)),
    "convolution": (convolution, {"biased": True, "activation": "silu", "dtype": F32}, None),
    "convolution, plain": (convolution, {"biased": False, "activation": None, "dtype": F32}, None),
    "convolution in bfloat16": (
        convolution, {"biased": True, "activation": "silu", "dtype": BF16}, None
    ),
}  # fmt: skip


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_results_are_those_of_the_cpu(kind: str, padding: int) -> None:
    make, options, scan_shape = KINDS[kind]
    torch.manual_seed(0)
    dice = random.Random(kind)
    step = random_step(dice, (1, 5, 1, 2, 9))
    rows = len(step.token_ids)
    call = make(rows + padding, **options)
    dtype = options["dtype"]
    expected_states = noisy(StateShape((3, 300), dtype, scan_shape))
    found_states = on_device(expected_states)
    own = CpuScan(expected_states)
    own.begin(step)
    expected = call(own, lambda part: part[:rows] if len(part) == rows + padding else part)
    with rounding_as_a_gpu_does():
        found = call(device_scan(found_states, step, padding), lambda part: part.to(DEVICE))
    assert found.dtype == expected.dtype
    assert found.isfinite().all()  # also for padding
    tolerance = 0.03 if dtype == BF16 else 1e-4
    torch.testing.assert_close(found[:rows].cpu(), expected, atol=tolerance, rtol=tolerance)
    for one, other in (
        (found_states.conv[0], expected_states.conv[0]),
        (found_states.scan.get(0), expected_states.scan.get(0)),
    ):
        if one is not None and other is not None:
            torch.testing.assert_close(one.cpu(), other, atol=tolerance, rtol=tolerance)


def test_the_kernels_compile_for_gpus_that_are_not_here() -> None:
    output = in_compiled_mode("-m", "tests.model.compile_scans", "80", "90", "100")
    compiled = [json.loads(line) for line in output.splitlines()]
    assert len(compiled) == 3 * 6
    assert {each["gpu"] for each in compiled} == {80, 90, 100}
    assert max(each["shared"] for each in compiled) <= 48 << 10


class ReplayedLaunches:
    """Replaces a graph: a replay repeats the launches."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self.replay = launch


def device_runner(folder: Path, model: PreTrainedModel) -> TorchRunner:
    if DEVICE.type == "cuda":
        return hybrid_runner(folder, model, device="cuda")
    return interpreted_runner(folder, model)


def interpreted_runner(folder: Path, model: PreTrainedModel) -> TorchRunner:
    """A runner with the attention and scans of a GPU; replays steps of one or two tokens."""
    model.save_pretrained(folder)
    config = runner_config(str(folder), random_weights=False)
    loaded = load(config, CPU, torch.float32)
    model = loaded.model
    storage = allocate(loaded.shapes, num_blocks=40, block_size=4, device=CPU)
    states = allocate_states(loaded.recurrent.shapes, StateSlots(40, 16), CPU)
    limits = Device(multiprocessors=1, shared_bytes=99 << 10, capability=8)
    attention = TritonAttention(
        storage, loaded.shapes, max_model_len=80, recurrent=True, device=limits
    )
    scan = TritonScan(states, attention)
    forward = RaggedForward(model, loaded.route, loaded.recurrent, attention, scan)
    steps = CudaSteps(
        forward,
        attention,
        max_graph_tokens=2,
        max_model_len=80,
        states=states,
        capture=lambda: ReplayedLaunches,
    )
    steps.prepare()
    description: Any = SimpleNamespace(max_model_len=80)
    sampler = CpuSampler(VOCAB)
    sampler.warm_up(torch.float32)
    return TorchRunner(
        forward=forward,
        graphs=steps,
        sampler=sampler,
        storage=storage,
        states=states,
        adapters=None,
        compilations=None,
        description=description,
    )


@pytest.mark.parametrize("kind", ["qwen3_5_text", "falcon_h1", "rwkv", "inkling_text"])
def test_models_with_states_give_the_logits_of_the_whole_text(kind: str, tmp_path: Path) -> None:
    model = lively_model(kind)
    runner = device_runner(tmp_path, model)
    company = RandomSteps(runner, model, kind)
    for length in (13, 3, 6):
        company.add([company.dice.randrange(VOCAB) for _ in range(length)])
    company.finish()
    assert company.compared > 5
