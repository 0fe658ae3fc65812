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
from app.model.architecture import position_limit
from app.model.attention import AttentionRoute, probe_layers
from app.model.config import ModelConfig
from app.model.cpu.attention import CpuAttention
from app.model.cpu.cores import granted_cores
from app.model.cpu.layers import can_fuse, fuse, require_invariance
from app.model.cpu.packed_linear import can_pack, pack_linears
from app.model.cpu.sampling import CpuSampler
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
from app.model.kv_storage import (
    CacheUse,
    KvStorage,
    LayerShape,
    allocate,
    allocate_groups,
    groups_within,
)
from app.model.loading import load_model, read_config
from app.model.parallel.crew import Crew, Job
from app.model.parallel.group import Group
from app.model.parallel.joining import check_sharing, join
from app.model.parallel.steps import Follower, Leader
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
            return _runner(_load(config, None), None)
        check_sharing(config, read_config(config.model))
        crew = Crew(config)
        with crew.loading():
            group = join(config, 0, crew.store)
            loaded = _load(config, group)
            group.least(0)  # returns when all ranks have loaded
        return _runner(loaded, Leader(crew, group))


def load_follower(job: Job) -> Follower:
    """The share of a model that a rank has, beside ``load_runner`` in rank 0."""
    with _refusing(job.config):
        group = join(job.config, job.rank, job.store)
        loaded = _load(job.config, group)
        group.least(0)
        return Follower(loaded.forward, loaded.graphs, group)


@contextlib.contextmanager
def _refusing(config: ModelConfig) -> Iterator[None]:
    try:
        with naming_failures():
            yield
    except DeviceFailed as error:
        raise UnsupportedModel(f"{config.model} cannot be served here: {error}") from error


@dataclass(frozen=True, slots=True)
class _Loaded:
    forward: RaggedForward
    graphs: CudaSteps | None
    sampler: Sampler | None
    """None in ranks that draw nothing."""
    storage: KvStorage
    compilations: KernelCompilations | None
    description: RunnerDescription


def _runner(loaded: _Loaded, leader: Leader | None) -> TorchRunner:
    assert loaded.sampler is not None
    return TorchRunner(
        forward=loaded.forward,
        graphs=loaded.graphs,
        sampler=loaded.sampler,
        storage=loaded.storage,
        compilations=loaded.compilations,
        description=loaded.description,
        leader=leader,
    )


def _load(config: ModelConfig, group: Group | None) -> _Loaded:
    """All ranks of a group go through the same calls in the same order."""
    ranks = 1 if group is None else group.size
    cores = max(1, granted_cores() // ranks)
    torch.set_num_threads(config.threads or min(torch.get_num_threads(), cores))
    device = choose_device(config.device)
    describe(device, ranks)
    forbid_rounded_sums(device)
    dtype = choose_dtype(config.dtype, device)
    budget = _memory_budget(config, device)
    model = load_model(config, device, dtype, group)
    compilations = _count_compilations(device)
    route = AttentionRoute()
    shapes = probe_layers(model, route)
    parameters = model.num_parameters()
    prepared = _prepare(model, route, shapes, config)

    vocab_size = _vocab_size(model, config.vocab_size)
    draws = group is None or group.rank == 0
    sampler = _sampler(vocab_size, device, dtype) if draws else None
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
    attention = step_attention(
        storage, shapes, max_model_len, batch_invariant=config.batch_invariant
    )
    forward = RaggedForward(model, route, attention)
    graphs = _graphs(forward, attention, config, max_model_len)
    if compilations is not None:
        compilations.loaded()
    return _Loaded(
        forward=forward,
        graphs=graphs,
        sampler=sampler,
        storage=storage,
        compilations=compilations,
        description=RunnerDescription(
            architecture=type(model).__name__,
            device=device.type,
            dtype=str(dtype).removeprefix("torch."),
            parameters=parameters,
            packed_linears=prepared.packed_linears,
            fused_layers=prepared.fused_layers,
            batch_invariant=config.batch_invariant,
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


def _prepare(
    model: PreTrainedModel,
    route: AttentionRoute,
    shapes: dict[int, LayerShape],
    config: ModelConfig,
) -> _Prepared:
    """Pack or fuse weights where that pays, and run the self-check.

    What is expected comes from the model as loaded, so the check covers the packing too.
    """
    block_size = min(config.block_size, _CHECK_BLOCK_SIZE)
    groups = len({shape.window for shape in shapes.values()})
    case = make_case(model.config.get_text_config().vocab_size, block_size, groups)
    expected = whole_logits(model, case, "eager")
    noise, packed, fused = None, 0, 0
    if model.device.type == "cuda":
        # Imported where it is needed: triton is there with CUDA builds of torch only.
        from app.model.cuda.layers import fuse as fuse_on_device

        noise = rounding_noise(model, case, expected)
        fused = fuse_on_device(model, route, batch_invariant=config.batch_invariant)
        torch.cuda.empty_cache()  # what was joined lies beside its parts until they are given back
    elif config.pack_linears and can_fuse(model):
        noise = rounding_noise(model, case, expected)
        packed = fuse(model, route)
    elif config.pack_linears and can_pack(model.dtype, model.device):
        packed = pack_linears(model)
    if config.batch_invariant and model.device.type == "cpu":
        require_invariance(model)
    model.set_attn_implementation(route.name)
    storage = allocate(shapes, num_blocks=case.blocks, block_size=block_size, device=model.device)
    attention = step_attention(
        storage, shapes, case.blocks * block_size, batch_invariant=config.batch_invariant
    )
    forward = RaggedForward(model, route, attention)
    check_ragged_step(model, forward, case, block_size, expected, noise)
    if config.batch_invariant:
        check_invariance(forward, case, block_size)
    return _Prepared(packed_linears=packed, fused_layers=fused)


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
    *,
    batch_invariant: bool = False,
) -> CpuAttention | TritonAttention:
    """Attention on the storage's device, for layers of these shapes."""
    if next(iter(storage.keys.values())).device.type == "cpu":
        return CpuAttention(storage, batch_invariant=batch_invariant)
    # Imported where it is needed: triton is there with CUDA builds of torch only.
    from app.model.cuda.attention import TritonAttention

    return TritonAttention(
        storage, shapes, max_model_len=max_model_len, batch_invariant=batch_invariant
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
    sampler: Sampler | None,
    vocab_size: int,
    group: Group | None,
) -> int:
    """Bytes for the cache, found out over a small one that is gone afterwards."""
    size = config.block_size
    storage = allocate(shapes, num_blocks=REHEARSAL_BLOCKS, block_size=size, device=model.device)
    whole = [n for n, options in route.options.items() if options.window is None] or [*shapes]
    most = _agreed(budget.most_tokens(sum(shapes[layer].token_bytes for layer in whole)), group)
    context = min(config.max_model_len or position_limit(model.config) or most, most)
    attention = step_attention(storage, shapes, context, batch_invariant=config.batch_invariant)
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
