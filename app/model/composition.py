"""Puts a runner together: model, layers, attention, cache, graphs and sampler, in that order.

What is loaded is tried before it is served: by the self-check, on a GPU by a rehearsal of the
largest steps and by replays of all graphs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from app.core.errors import DeviceFailed, UnsupportedModel
from app.model.adapters.loading import fill_slots, make_slots
from app.model.adapters.slots import AdapterSlots
from app.model.architecture import position_limit
from app.model.attention import AttentionRoute, probe_layers
from app.model.config import ModelConfig
from app.model.cpu.attention import CpuAttention
from app.model.cpu.cores import granted_cores
from app.model.cpu.layers import can_fuse, fuse, require_invariance
from app.model.cpu.packed_linear import can_pack, pack_linears
from app.model.cpu.sampling import CpuSampler
from app.model.cpu.weights import held_bytes
from app.model.cuda.memory import CudaMemory, MemoryBudget
from app.model.device import (
    choose_device,
    choose_dtype,
    describe,
    forbid_rounded_sums,
    spare_tokens,
)
from app.model.failures import naming_failures
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.kv_storage import (
    CacheUse,
    KvStorage,
    LayerShape,
    allocate,
    allocate_groups,
    groups_within,
)
from app.model.latent import keep_latents
from app.model.loading import load_model, read_config
from app.model.parallel.crew import Crew, Job
from app.model.parallel.group import Group
from app.model.parallel.joining import check_sharing, join
from app.model.parallel.steps import Follower, Leader
from app.model.quantized import (
    ROUNDING,
    check_rounding,
    kinds_of,
    quantize_linears,
    require_quantizable,
)
from app.model.rehearsal import REHEARSAL_BLOCKS, StepLimits, largest_steps, rehearse
from app.model.runner import RunnerDescription, TorchRunner
from app.model.sampling import Sampler
from app.model.self_check import (
    check_invariance,
    check_ragged_step,
    make_case,
    rounding_noise,
    whole_logits,
)
from app.model.stored_quantization import require_no_growth, weight_bytes

if TYPE_CHECKING:
    from app.model.cuda.attention import TritonAttention
    from app.model.cuda.compilations import KernelCompilations
    from app.model.cuda.graphs import CudaSteps

_CPU_CACHE_BYTES = 1 << 30
_CHECK_BLOCK_SIZE = 16


def load_runner(config: ModelConfig) -> TorchRunner:
    """Load a model, check that it runs exactly as a ragged step, and give it a cache.

    Raises ``UnsupportedModel``, saying what is wrong, where it cannot be loaded or served.
    """
    with _refusing(config):
        if config.tensor_parallel == 1:
            return _load(config)
        check_sharing(config, read_config(config.model))
        crew = Crew(config)
        with crew.loading():
            group = join(config, 0, crew.store)
            runner = _load(config, group, Leader(crew, group))
            group.least(0)  # returns when all ranks have loaded
        return runner


def load_follower(job: Job) -> Follower:
    """The share of a model that a rank has, beside ``load_runner`` in rank 0."""
    with _refusing(job.config):
        group = join(job.config, job.rank, job.store)
        runner = _load(job.config, group)
        group.least(0)
        return Follower(runner.compute, group)


@contextlib.contextmanager
def _refusing(config: ModelConfig) -> Iterator[None]:
    try:
        with naming_failures():
            yield
    except DeviceFailed as error:
        raise UnsupportedModel(f"{config.model} cannot be served here: {error}") from error


def _load(
    config: ModelConfig, group: Group | None = None, leader: Leader | None = None
) -> TorchRunner:
    """All ranks of a group go through the same calls in the same order."""
    ranks = 1 if group is None else group.size
    cores = max(1, granted_cores() // ranks)
    torch.set_num_threads(config.threads or min(torch.get_num_threads(), cores))
    device = choose_device(config.device)
    describe(device, ranks)
    forbid_rounded_sums(device)
    require_quantizable(config, device)
    dtype = choose_dtype("bfloat16" if config.quantize else config.dtype, device)
    budget = _memory_budget(config, device)
    model = load_model(config, device, dtype, group)
    compilations = _count_compilations(device)
    route = AttentionRoute()
    shapes = keep_latents(model, route, probe_layers(model, route))
    parameters = model.num_parameters()
    adapters = make_slots(model, route, config.adapters)
    loaded_bytes = weight_bytes(model)
    prepared = _prepare(model, route, shapes, config, adapters)
    require_no_growth(model, sum(loaded_bytes.values()))

    vocab_size = _vocab_size(model, config.vocab_size)
    sampler = _sampler(vocab_size, device, dtype)
    if budget is None:
        cache_bytes = config.kv_cache_bytes or _CPU_CACHE_BYTES
    else:
        cache_bytes = _rehearsed(budget, config, model, route, shapes, sampler, vocab_size, group)
        budget.settle()
    use = CacheUse(
        config.max_model_len,
        position_limit(model.config),
        config.max_running,
        config.max_batch_tokens,
    )
    groups = groups_within(cache_bytes, shapes, config.block_size, use)
    cache_tokens = groups[0].num_blocks * config.block_size
    max_model_len = _max_model_len(use, cache_tokens)
    storage = allocate_groups(shapes, groups, block_size=config.block_size, device=device)
    attention = step_attention(storage, shapes, max_model_len, config)
    forward = RaggedForward(model, route, attention)
    graphs = _graphs(forward, attention, config, max_model_len)
    if compilations is not None:
        compilations.loaded()
    return TorchRunner(
        forward=forward,
        graphs=graphs,
        sampler=sampler,
        storage=storage,
        adapters=adapters,
        compilations=compilations,
        leader=leader,
        description=RunnerDescription(
            architecture=type(model).__name__,
            device=device.type,
            dtype=str(dtype).removeprefix("torch."),
            parameters=parameters,
            packed_linears=prepared.packed_linears,
            fused_layers=prepared.fused_layers,
            batch_invariant=config.batch_invariant,
            weight_bytes=held_bytes(model) if device.type == "cpu" else loaded_bytes,
            quantized=prepared.quantized,
            cuda_graphs=0 if graphs is None else graphs.count,
            cache_tokens=cache_tokens,
            window_tokens=tuple([g.num_blocks * config.block_size for g in groups[1:]]),
            max_model_len=max_model_len,
            spare_tokens=spare_tokens(device),
            tensor_parallel=ranks,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Prepared:
    packed_linears: int
    fused_layers: int
    quantized: str


def _prepare(
    model: PreTrainedModel,
    route: AttentionRoute,
    shapes: dict[int, LayerShape],
    config: ModelConfig,
    adapters: AdapterSlots | None,
) -> _Prepared:
    """Pack or fuse weights where that pays, and run the self-check.

    What is expected comes from the model as loaded, so the check covers the packing too.
    """
    block_size = min(config.block_size, _CHECK_BLOCK_SIZE)
    groups = len({shape.window for shape in shapes.values()})
    case = make_case(model.config.get_text_config().vocab_size, block_size, groups)
    expected = whole_logits(model, case, "eager")
    noise, packed, fused, quantized = None, 0, 0, ""
    if config.quantize is not None:
        noise = ROUNDING * rounding_noise(model, case, expected)
        quantize_linears(model, config.quantize)
        expected = check_rounding(model, case, expected, config.quantize)
    if model.device.type == "cuda":
        # Imported where it is needed: triton is there with CUDA builds of torch only.
        from app.model.cuda.layers import fuse as fuse_on_device

        noise = rounding_noise(model, case, expected)
        fused = fuse_on_device(
            model, route, batch_invariant=config.batch_invariant, adapters=adapters
        )
        torch.cuda.empty_cache()  # what was joined lies beside its parts until they are given back
    elif config.pack_linears and can_fuse(model):
        noise = rounding_noise(model, case, expected) if noise is None else noise
        quantized = kinds_of(model)
        packed = fuse(model, route, layers=adapters is None)
    elif config.pack_linears and can_pack(model.dtype, model.device):
        packed = pack_linears(model)
    if config.batch_invariant and model.device.type == "cpu":
        require_invariance(model)
    model.set_attn_implementation(route.name)
    storage = allocate(shapes, num_blocks=case.blocks, block_size=block_size, device=model.device)
    attention = step_attention(storage, shapes, case.blocks * block_size, config)
    forward = RaggedForward(model, route, attention)
    check_ragged_step(model, forward, case, block_size, expected, noise)
    if adapters is not None and config.adapters is not None:
        adapters.attach(lambda: forward.run(lay_out(case.steps[0], block_size)))
        fill_slots(adapters, config.adapters)
    if config.batch_invariant:
        check_invariance(forward, case, block_size)
    return _Prepared(packed_linears=packed, fused_layers=fused, quantized=quantized)


def _count_compilations(device: torch.device) -> KernelCompilations | None:
    if device.type == "cpu":
        return None
    from app.model.cuda.compilations import KernelCompilations

    compilations = KernelCompilations()
    compilations.watch()
    return compilations


def step_attention(
    storage: KvStorage,
    shapes: Mapping[int, LayerShape],
    max_model_len: int,
    config: ModelConfig,
) -> CpuAttention | TritonAttention:
    """Attention on the storage's device, for layers of these shapes."""
    if next(iter(storage.keys.values())).device.type == "cpu":
        return CpuAttention(storage, batch_invariant=config.batch_invariant)
    # Imported where it is needed: triton is there with CUDA builds of torch only.
    from app.model.cuda.attention import TritonAttention

    return TritonAttention(
        storage,
        shapes,
        max_model_len=max_model_len,
        batch_invariant=config.batch_invariant,
        has_adapters=config.adapters is not None,
    )


def _graphs(
    forward: RaggedForward,
    attention: CpuAttention | TritonAttention,
    config: ModelConfig,
    max_model_len: int,
) -> CudaSteps | None:
    if isinstance(attention, CpuAttention):
        return None
    from app.model.cuda.graphs import CudaSteps

    most = config.max_graph_tokens if config.cuda_graphs else 0
    steps = CudaSteps(
        forward,
        attention,
        max_graph_tokens=most,
        max_model_len=max_model_len,
        must_capture=config.tensor_parallel > 1,
    )
    steps.prepare()
    return steps


def _sampler(vocab_size: int, device: torch.device, dtype: torch.dtype) -> Sampler:
    sampler: Sampler
    if device.type == "cpu":
        sampler = CpuSampler(vocab_size)
    else:  # imported where it is needed, as in ``step_attention``
        from app.model.cuda.sampling import DeviceSampler

        sampler = DeviceSampler(vocab_size, device)
    sampler.warm_up(dtype)
    return sampler


def _memory_budget(config: ModelConfig, device: torch.device) -> MemoryBudget | None:
    """None on the CPU. Made before the model is loaded."""
    if device.type == "cpu":
        return None
    return MemoryBudget(CudaMemory(device), config.cuda_memory_share, config.kv_cache_bytes)


def _rehearsed(
    budget: MemoryBudget,
    config: ModelConfig,
    model: PreTrainedModel,
    route: AttentionRoute,
    shapes: dict[int, LayerShape],
    sampler: Sampler,
    vocab_size: int,
    group: Group | None,
) -> int:
    """Bytes for the cache, found out over a small one that is gone afterwards."""
    size = config.block_size
    storage = allocate(shapes, num_blocks=REHEARSAL_BLOCKS, block_size=size, device=model.device)
    whole = [n for n, options in route.options.items() if options.window is None] or [*shapes]
    most = _agreed(budget.most_tokens(sum(shapes[layer].token_bytes for layer in whole)), group)
    context = min(config.max_model_len or position_limit(model.config) or most, most)
    attention = step_attention(storage, shapes, context, config)
    forward = RaggedForward(model, route, attention)
    limits = StepLimits(config.max_batch_tokens, config.max_running, config.max_rows_each, context)
    steps = largest_steps(
        limits,
        vocab_size=vocab_size,
        block_size=size,
        blocks=[group.num_blocks for group in storage.groups],
    )
    left = budget.cache_bytes(
        rehearsal_bytes=storage.nbytes,
        run_steps=lambda: rehearse(forward, sampler, steps, size),
        capture=lambda: _graphs(forward, attention, config, context),
    )
    return _agreed(left, group)


def _agreed(number: int, group: Group | None) -> int:
    return number if group is None else group.least(number)


def _vocab_size(model: PreTrainedModel, asked: int | None) -> int:
    width = int(model.config.get_text_config().vocab_size)
    if asked is not None and asked > width:
        raise UnsupportedModel(
            f"the tokenizer has {asked} tokens, but the model gives logits for {width}"
        )
    return asked or width


def _max_model_len(use: CacheUse, cache_tokens: int) -> int:
    asked, limit = use.asked, use.limit
    if asked is None:
        return cache_tokens if limit is None else min(limit, cache_tokens)
    if limit is not None and asked > limit:
        raise UnsupportedModel(f"max_model_len is {asked}, but the model was made for {limit}")
    if asked > cache_tokens:
        raise UnsupportedModel(
            f"max_model_len is {asked}, but the cache holds {cache_tokens} tokens; "
            "raise kv_cache_bytes or lower max_model_len"
        )
    return asked
