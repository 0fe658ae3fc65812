"""The device's sampler against the CPU's: on a GPU if there is one, else interpreted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from app.core.constraint import Mask
from app.core.request import SamplingParams
from app.core.step import NOT_DRAWN, Draw, SampledToken
from app.model.cpu.sampling import CpuSampler
from app.model.cuda import sampling
from app.model.cuda.sampling import DeviceSampler
from tests.model import naive_sampling as naive
from tests.model.compiled_mode import in_compiled_mode
from tests.model.interpreter import DEVICE
from tests.model.sampling_cases import CASES, VOCAB, WIDTH, random_logits, row_of

GREEDY = SamplingParams(temperature=0.0)
SOME = naive.pack({*range(0, VOCAB, 3), 70}, VOCAB)


class CountingSampler(DeviceSampler):
    """Records the kernels that it launches."""

    def __init__(self, size: int = VOCAB, chunk_words: int = 2) -> None:
        super().__init__(size, DEVICE, chunk_words)
        self.launched: list[str] = []

    def _launch(self, kernel: Any, grid: tuple[int, ...], *given: Any, **constants: Any) -> None:
        self.launched.append(kernel.__name__)
        super()._launch(kernel, grid, *given, **constants)


CPU = CpuSampler(VOCAB)
SAMPLER = CountingSampler()
"""A row is two chunks: 64 tokens, and the other 11."""


def drawn(
    sampler: DeviceSampler, logits: torch.Tensor, draws: Sequence[Draw | None]
) -> Sequence[SampledToken]:
    pending = sampler.sample(logits.to(DEVICE, copy=True), draws)
    tokens = pending.wait().tokens
    assert pending.ids.tolist() == [token.token_id for token in tokens]
    return tokens


def same(ours: Sequence[SampledToken], theirs: Sequence[SampledToken]) -> None:
    """Assert that tokens are the same and logprobs equal within a few roundings."""
    for here, there in zip(ours, theirs, strict=True):
        assert here.token_id == there.token_id
        assert here.logprob == pytest.approx(there.logprob, rel=1e-13, abs=1e-13)
        assert [t.token_id for t in here.top] == [t.token_id for t in there.top]
        expected = [t.logprob for t in there.top]
        assert [t.logprob for t in here.top] == pytest.approx(expected, rel=1e-13, abs=1e-13)


def every_case() -> list[Draw]:
    """Plain and filtered rows, penalties and logprobs, with masks and without."""
    logprobs = {
        "logprobs": SamplingParams(logprobs=3),
        "logprobs of all": SamplingParams(temperature=0.2, presence_penalty=0.5, logprobs=100),
        "no alternatives": replace(GREEDY, logprobs=0),
    }
    draws = [
        row_of(params, 1 << 63 | i)
        for i, params in enumerate([*CASES.values(), *logprobs.values()])
    ]
    return [replace(draw, mask=None if i % 2 else SOME) for i, draw in enumerate(draws)]


@pytest.mark.parametrize(
    ("dtype", "step"), [(torch.float32, 1), (torch.bfloat16, 2), (torch.float16, 3)]
)
def test_every_way_of_drawing_gives_what_the_cpu_sampler_gives(
    dtype: torch.dtype, step: int
) -> None:
    draws = every_case()[::step]
    logits = random_logits(3, rows=len(draws)).to(dtype)
    ours = drawn(SAMPLER, logits, draws)
    same(ours, CPU.sample(logits.clone(), draws).tokens)


def test_plain_draws_of_many_keys_are_the_cpu_samplers() -> None:
    params = [SamplingParams(), SamplingParams(temperature=0.3), SamplingParams(temperature=3.0)]
    draws = [Draw(params[key % 3], key * 7919) for key in range(30)]
    logits = random_logits(5, rows=30)
    same(drawn(SAMPLER, logits, draws), CPU.sample(logits.clone(), draws).tokens)


def test_a_row_alone_and_among_31_others_gives_the_same_bits() -> None:
    asked = [
        SamplingParams(logprobs=2),
        SamplingParams(top_p=0.6, logprobs=2),
        SamplingParams(top_k=5, min_p=0.1),
        SamplingParams(presence_penalty=0.7, logprobs=1),
    ]
    draws = [row_of(asked[i // 8] if i % 8 == 7 else SamplingParams(), key=i) for i in range(32)]
    logits = random_logits(2, rows=32).bfloat16()
    together = drawn(SAMPLER, logits, draws)
    for i in (7, 15, 23, 31):
        assert drawn(SAMPLER, logits[i : i + 1], draws[i : i + 1]) == [together[i]]


def test_filters_are_exact_where_values_are_equal() -> None:
    size = 130  # three chunks, all with equal values
    dice = random.Random(0)
    levels = torch.tensor([dice.choice([0.0, 1.0, 1.0, 2.0]) for _ in range(size)])
    flat = torch.zeros(size)
    params = [
        SamplingParams(top_k=1),
        SamplingParams(top_k=70),
        SamplingParams(top_p=0.5),
        SamplingParams(top_k=100, top_p=0.7),
        SamplingParams(top_p=0.9, min_p=0.2),
    ]
    cases = [*((levels, each) for each in params), (flat, params[1]), (flat, params[3])]
    logits = torch.stack([row for row, _ in cases]).bfloat16()
    sampler, cpu = CountingSampler(size), CpuSampler(size)
    draws = [Draw(each, key) for key, (_, each) in enumerate(cases)]
    ours = drawn(sampler, logits, draws)
    same(ours, cpu.sample(logits.clone(), draws).tokens)
    for token, row, draw in zip(ours, logits, draws, strict=True):
        expected = naive.distribution(row.float().numpy(), draw, list(range(size)))
        assert token.token_id == naive.winner(expected, draw.key)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, in the interpreter
def test_odd_logits_are_drawn_as_on_the_cpu_and_never_outside_the_mask() -> None:
    dice = random.Random(1)
    odd = [0.0, -0.0, 1.0, -1e30, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]
    logits = random_logits(4, rows=24)
    draws: list[Draw] = []
    for row in range(24):
        values = odd if row % 4 == 3 else odd[:-1]
        for _ in range(dice.randrange(60)):
            logits[row, dice.randrange(VOCAB)] = dice.choice(values)
        params = SamplingParams(temperature=dice.choice([0.0, 1e-310, 1e-300, 1e-8, 0.7, 100.0]))
        if row % 3 == 0:
            params = replace(params, top_k=dice.choice([0, 1, 3]), top_p=dice.choice([0.0, 0.5]))
        allowed = {dice.randrange(VOCAB) for _ in range(dice.randint(1, 6))}
        draws.append(Draw(params, dice.getrandbits(64), naive.pack(allowed, VOCAB)))
    logits = logits.bfloat16()
    ours = drawn(SAMPLER, logits, draws)
    theirs = CPU.sample(logits.clone(), draws).tokens
    for row, draw in enumerate(draws):
        assert ours[row].token_id in naive.unpack(draw.mask, VOCAB)
        if row % 4 != 3:
            assert ours[row] == theirs[row]


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = torch.zeros(3, WIDTH)
    logits[2, 40], logits[2, 41] = -0.0, 0.0
    late = naive.pack({40, 41, 74}, VOCAB)
    draws = [Draw(GREEDY, 0, mask) for mask in (None, late, late)]
    assert [token.token_id for token in drawn(SAMPLER, logits, draws)] == [0, 40, 40]


def test_rows_that_nobody_looks_at_are_not_drawn() -> None:
    draws = [None, Draw(GREEDY, 0), None]
    logits = random_logits(1, rows=3)
    tokens = drawn(SAMPLER, logits, draws)
    assert tokens[0] == tokens[2] == NOT_DRAWN
    assert tokens[1].token_id == int(logits[1, :VOCAB].argmax())
    assert drawn(SAMPLER, logits, [None, None, None]) == [NOT_DRAWN] * 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, in the interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sets_are_scored_as_on_the_cpu_beside_draws_of_any_kind(dtype: torch.dtype) -> None:
    sets = [np.arange(i, VOCAB, 2 + i, dtype=np.int32) for i in range(4)]
    sets += [np.array(ids, dtype=np.int32) for ids in ([], [7], [*range(VOCAB), *range(70)])]
    draws: list[Draw | None] = [
        None,
        *[replace(draw, scored=sets[i % 5 :]) for i, draw in enumerate(every_case()) if i % 3 == 0],
        Draw(GREEDY, 2),
        Draw(GREEDY, 3, scored=sets),
        Draw(GREEDY, 3, SOME, scored=sets[:1]),
    ]
    logits = random_logits(4, rows=len(draws)).to(dtype)
    logits[:, 7] = -torch.inf
    found, expected = drawn(SAMPLER, logits, draws), CPU.sample(logits.clone(), draws).tokens
    same(found, expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [*ours.scores] == pytest.approx([*theirs.scores], abs=1e-6)
    assert [len(token.scores) for token in found[-3:]] == [0, 7, 1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, in the interpreter
def test_an_empty_mask_is_an_error_of_wait_and_draws_no_id() -> None:
    nothing = Draw(SamplingParams(top_p=0.5, logprobs=2), 0, naive.pack(set(), VOCAB))
    pending = SAMPLER.sample(random_logits(6, 2).to(DEVICE), [nothing, Draw(GREEDY, 0)])
    assert pending.ids[0] == -1
    with pytest.raises(ValueError, match="allows no token"):
        pending.wait()


def test_logits_may_lie_anywhere_and_are_done_with_when_sample_returns() -> None:
    draws = [Draw(SamplingParams(logprobs=2), key) for key in range(3)]
    logits = random_logits(7, rows=3)
    expected = drawn(SAMPLER, logits, draws)
    wide = torch.zeros(3, WIDTH + 9, device=DEVICE)
    every_other = torch.zeros(3, 2 * WIDTH, device=DEVICE)
    for place in (wide[:, :WIDTH], wide[:, 1 : WIDTH + 1], every_other[:, ::2]):
        place.copy_(logits)
        pending = SAMPLER.sample(place, draws)
        place.zero_()  # like the next step's replay, later in the same stream
        assert pending.wait().tokens == expected


def test_logits_of_half_width_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_MOST_COPIED", 2)
    params = [SamplingParams(logit_bias={9: 2.0}, temperature=0.5, logprobs=1), SamplingParams()]
    draws = [Draw(params[key in (1, 4)], key) for key in range(7)]
    logits = random_logits(8, rows=7).bfloat16()
    given = logits.to(DEVICE, copy=True)
    ours = SAMPLER.sample(given, draws).wait().tokens
    assert torch.equal(given.cpu(), logits)
    same(ours, CPU.sample(logits.clone(), draws).tokens)


def test_draws_of_many_steps_are_those_of_masks_used_in_place() -> None:
    rng = np.random.default_rng(5)
    pool: list[Mask | None] = [
        naive.pack(set(rng.choice(VOCAB, 9).tolist()), VOCAB) for _ in range(12)
    ]
    for mask in pool[:8]:
        assert mask is not None
        mask.flags.writeable = False
    pool.append(None)
    steps = []
    for step in range(12):  # all queued before any is waited for
        logits = random_logits(step, rows=3)
        masks = [pool[i] for i in rng.integers(0, 13, 3)]
        draws = [Draw(SamplingParams(), step * 3 + i, mask) for i, mask in enumerate(masks)]
        with torch.inference_mode():
            expected = CPU.sample(logits.clone(), draws).tokens
            steps.append((SAMPLER.sample(logits.to(DEVICE), draws), expected))
    assert all(pending.wait().tokens == expected for pending, expected in steps)


class Forbidding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails at operations that make the host wait for the device."""

    waits = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split("::")[1].split(".")[0]
        assert name.strip("_") not in {each.strip("_") for each in self.waits}, name
        assert name not in ("index", "index_put_"), "boolean indexing waits"
        return func(*args, **(kwargs or {}))


def test_nothing_between_sample_and_wait_waits_for_the_device() -> None:
    everything = SamplingParams(top_p=0.9, presence_penalty=0.5, logprobs=2)
    draws = [Draw(SamplingParams(), 0, SOME), row_of(everything, 1), Draw(GREEDY, 2), None]
    logits = random_logits(9, rows=4).bfloat16().to(DEVICE)
    with Forbidding():  # type: ignore[no-untyped-call]
        pending = SAMPLER.sample(logits, draws)
    assert len(pending.wait().tokens) == 4


def test_a_row_of_128_256_tokens_is_drawn_as_on_the_cpu() -> None:
    size = 128_256
    logits = torch.randn(1, size, generator=torch.Generator().manual_seed(1)).bfloat16()
    draws = [Draw(SamplingParams(), 5)]
    sampler, cpu = DeviceSampler(size, DEVICE), CpuSampler(size)
    assert drawn(sampler, logits, draws) == cpu.sample(logits.clone(), draws).tokens


@pytest.mark.parametrize(
    ("params", "dtype", "launches"),
    [
        (GREEDY, torch.float32, {"highest": 1, "choose": 1}),
        (SamplingParams(), torch.float32, {"highest": 1, "race": 1, "choose": 1}),
        (
            SamplingParams(top_p=0.9),
            torch.bfloat16,
            {"highest": 1, "search": 4, "mark_edge": 1, "race": 1, "choose": 1},
        ),
        (
            SamplingParams(top_p=0.9),
            torch.float32,
            {"highest": 1, "search": 8, "mark_edge": 1, "race": 1, "choose": 1},
        ),
        (
            SamplingParams(logprobs=5),
            torch.bfloat16,
            {"highest": 1, "race": 1, "choose": 1, "rank": 1, "report": 1},
        ),
    ],
)
def test_a_step_takes_few_launches(
    params: SamplingParams, dtype: torch.dtype, launches: dict[str, int]
) -> None:
    sampler = CountingSampler()
    drawn(sampler, random_logits(1, rows=2).to(dtype), [Draw(params, 0), Draw(GREEDY, 0)])
    assert {name: sampler.launched.count(name) for name in sampler.launched} == launches


PRELUDE = """
import numpy as np
import torch
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from app.core.request import SamplingParams
from app.core.step import Draw
from app.model.cuda.sampling import DeviceDraws, DeviceSampler
from tests.model.compiled_mode import NoGpu

DeviceDraws.wait = lambda self: None

driver.set_active(NoGpu())

class Warmed(DeviceSampler):
    # Goes to the compiler as a launch does, and not to a device.
    def _launch(self, kernel, grid, *given, **constants):
        kernel.warmup(*given, grid=grid, **constants, enable_fp_fusion=False)

def step(sampler, logits, params):
    ids = np.arange(1, 4)
    sampler.sample(logits, [Draw(each, 0, None, ids, ids) for each in params])
"""

COMPILE = """
logits = torch.zeros(1, 128_256, dtype=torch.bfloat16)
for NoGpu.arch in (80, 90, 100):
    sampler = Warmed(128_256, torch.device("cpu"))
    step(sampler, logits, [SamplingParams(top_p=0.9, logprobs=1)])
    sampler.sample(logits, [Draw(SamplingParams(), key=0, scored=[np.arange(300, dtype=np.int32)])])
step(sampler, logits, [SamplingParams(top_k=2)])
step(sampler, logits, [SamplingParams(temperature=0.0, logit_bias={0: 1.0})])
"""


def test_the_kernels_compile_for_ampere_hopper_and_blackwell_with_no_gpu_here() -> None:
    in_compiled_mode("-c", PRELUDE + COMPILE)


COUNT = """
import random
compiled = []

def remember(self, key, signature, device, constexprs, options, attrs, warmup):
    compiled.append((self.__name__, key))
    kernel = self.device_caches[device][0][key] = object()
    return kernel

JITFunction._do_compile = remember
dice = random.Random(0)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for size, width in ((50257, 50257), (50257, 50304), (32000, 32000)):
        sampler = Warmed(size, torch.device("cpu"))
        DeviceSampler.warm_up(sampler, dtype)
        warmed = len(compiled)
        for _ in range(60):
            rows = dice.choice([1, 2, 3, 16, 17, 65])
            params = [
                SamplingParams(
                    temperature=dice.choice([0.0, 1.0]),
                    top_p=dice.choice([1.0, 1.0, 0.9]),
                    top_k=dice.choice([0, 0, 1, 40]),
                    min_p=dice.choice([0.0, 0.1]),
                    presence_penalty=dice.choice([0.0, 0.5]),
                    logprobs=dice.choice([None, None, 0, 1, 20]),
                )
                for _ in range(rows)
            ]
            step(sampler, torch.zeros(rows, width, dtype=dtype), params)
            ids = np.arange(dice.choice([0, 1, 16, 500]), dtype=np.int32)
            sets = [ids] * dice.choice([1, 16, 65])
            scored = [Draw(SamplingParams(), key=0, scored=sets)] * rows
            sampler.sample(torch.zeros(rows, width, dtype=dtype), scored)
        assert 0 < warmed == len(compiled), compiled[warmed:]
"""


def test_no_kernel_is_compiled_after_the_warm_up() -> None:
    in_compiled_mode("-c", PRELUDE + COUNT)
