"""Composes a runner: model, layers, attention, cache, graphs and sampler, in that order.

The model is tested before it is served: by the self-check, and on a GPU by a rehearsal of the
largest steps and by replays of all graphs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from app.core.errors import DeviceFailed, UnsupportedModel
from app.core.gguf_file import open_gguf
from app.core.model_name import is_gguf
from app.core.progress import SILENCE, Progress
from app.model.adapters.slots import make_slots
from app.model.checkpoints.gptq_awq import METHODS
from app.model.checkpoints.loading import read_config
from app.model.checkpoints.stored_quantization import (
    require_no_growth,
    stored_quantization,
    weight_bytes,
)
from app.model.config import ModelConfig
from app.model.cpu.kernels import panels
from app.model.cpu.kernels.quantized_panels import QuantizedWeight
from app.model.cpu.sampling import CpuSampler
from app.model.cpu.weights import held_bytes
from app.model.cuda.memory import CudaMemory, MemoryBudget
from app.model.device import (
    choose_device,
    choose_dtype,
    describe,
    granted_cores,
    granted_memory,
    naming_failures,
    require_fp8,
    spare_tokens,
)
from app.model.forward import RaggedForward
from app.model.kv_storage import CacheUse, allocate, allocate_groups, groups_within
from app.model.layers.architecture import position_limit
from app.model.layers.quantized import (
    QuantizedEmbedding,
    QuantizedLinear,
    require_loops,
)
from app.model.loaded import LoadedModel, load
from app.model.memory_profile import (
    REHEARSAL_BLOCKS,
    StepLimits,
    largest_image,
    largest_steps,
    rehearse,
)
from app.model.optimise import Prepared, prepare
from app.model.parallel.group import Group, join
from app.model.parallel.plan import check_sharing
from app.model.parallel.rank_processes import Job, RankProcesses
from app.model.runner import RunnerDescription, TorchRunner
from app.model.sampling import Sampler
from app.model.self_check import CHECKED_SLOTS
from app.model.state_storage import StateStorage, allocate_states, slots_within

if TYPE_CHECKING:
    from app.model.cuda.graphs import CudaSteps
    from app.model.parallel.rank import Compute

_CPU_CACHE_BYTES = 1 << 30
_CPU_CACHE_SHARE = 1 / 8
"""Share of the memory limit: a 4 GiB container also has to hold weights, schemas and workers."""
_BOUNDLESS_LEN = 1 << 15
"""Maximum positions of a sequence if no setting, model or cache limits them."""


def load_runner(config: ModelConfig, progress: Progress = SILENCE) -> TorchRunner:
    """Load a model, check its ragged steps against transformers, and allocate its cache.

    Raises ``UnsupportedModel``, with the reason, if it cannot be loaded or served.
    """
    with _refusing(config):
        if config.tensor_parallel == 1:
            return _load(config, progress=progress)
        check_sharing(config, read_config(config.model))
        rank_processes = RankProcesses(config)
        with rank_processes.loading():
            group = rank_processes.group = join(config, 0, rank_processes.store)
            runner = _load(config, group, rank_processes, progress)
            group.least(0)  # returns when all ranks have loaded
        return runner


def load_follower(job: Job) -> tuple[Compute, Group]:
    """Load this rank's share of a model; rank 0 calls ``load_runner`` at the same time."""
    with _refusing(job.config):
        group = join(job.config, job.rank, job.store)
        runner = _load(job.config, group)
        group.least(0)
        return runner.compute, group


@contextlib.contextmanager
def _refusing(config: ModelConfig) -> Iterator[None]:
    try:
        with naming_failures():
            yield
    except DeviceFailed as error:
        raise UnsupportedModel(f"{config.model} cannot be served here: {error}") from error


def _load(
    config: ModelConfig,
    group: Group | None = None,
    rank_processes: RankProcesses | None = None,
    progress: Progress = SILENCE,
) -> TorchRunner:
    """All ranks of a group go through the same calls in the same order."""
    ranks = 1 if group is None else group.size
    cores = max(1, granted_cores() // ranks)
    torch.set_num_threads(config.threads or min(torch.get_num_threads(), cores))
    device = choose_device(config.device)
    describe(device, ranks)
    if device.type == "cuda":  # products that are split along the sum add their parts in float32
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    if config.quantize is not None:
        weights, way_out = f"{config.quantize} weights (quantize)", "leave LEAPJSON_QUANTIZE out"
        require_loops(config, device, weights, f"{way_out} (on a GPU serve a quantised checkpoint)")
    if config.kv_cache_dtype == "fp8":
        require_fp8(device)
    by_loops = config.quantize is not None or run_as_stored(config, device)
    by_loops |= config.dtype == "auto" and _multiplies_by_loops(config, device)
    dtype = choose_dtype("bfloat16" if by_loops else config.dtype, device)
    budget = _memory_budget(config, device)
    with progress.stage("loading the model"):
        loaded = load(config, device, dtype, group, progress)
    model = loaded.model
    longest = 0 if loaded.vision is None else loaded.vision.trial.images.longest_whole
    if longest and (needed := longest + config.max_running) > config.max_batch_tokens:
        raise UnsupportedModel(
            f"a small image has {longest} tokens, which must fit in one step beside one token for "
            f"each of max_running ({config.max_running}) answers: raise max_batch_tokens from "
            f"{config.max_batch_tokens} to {needed} or more, or lower max_running"
        )
    compilations = None
    if device.type == "cuda":
        from app.model.cuda.compilations import KernelCompilations

        compilations = KernelCompilations()
    parameters = model.num_parameters() + stored_parameters(model)
    adapters = make_slots(model, loaded.route, config)
    loaded_bytes = weight_bytes(model)
    with progress.stage("self-check of the model"):
        prepared = prepare(loaded, config, adapters, progress)
    if config.kv_cache_dtype == "fp8":
        loaded = loaded.in_fp8()
    require_no_growth(model, sum(loaded_bytes.values()))

    width = int(model.config.get_text_config().vocab_size)
    vocab_size = config.vocab_size or width
    if vocab_size > width:
        raise UnsupportedModel(
            f"the tokenizer has {vocab_size} tokens, but the model gives logits for {width}: "
            f"remove those with ids of {width} or more from the tokenizer's files"
        )
    with progress.stage("self-check of sampling"):
        sampler = _sampler(vocab_size, device, dtype)
    if budget is None:
        own = min(_CPU_CACHE_BYTES, int(granted_memory() * _CPU_CACHE_SHARE))
        own *= 2 if loaded.recurrent.shapes else 1
        cache_bytes = config.kv_cache_bytes or own
    else:
        cache_bytes = _rehearsed(
            budget, config, loaded, prepared, sampler, vocab_size, group, progress
        )
        budget.settle()
    states = None
    if shapes := loaded.recurrent.shapes:
        size = config.block_size
        slots = slots_within(cache_bytes, shapes, loaded.shapes, size, config.max_running)
        states = allocate_states(shapes, slots, device)
        cache_bytes -= states.nbytes
    use = CacheUse(
        config.max_model_len,
        position_limit(model.config),
        config.max_running,
        config.max_batch_tokens,
    )
    groups = groups_within(cache_bytes, loaded.shapes, config.block_size, use)
    cache_tokens = groups[0].num_blocks * config.block_size if groups else None
    max_model_len = _max_model_len(use, cache_tokens)
    storage = allocate_groups(loaded.shapes, groups, block_size=config.block_size, device=device)
    forward = loaded.forward_over(storage, states, max_model_len, config)
    graphs = _graphs(forward, states, config, max_model_len, progress)
    if compilations is not None:
        compilations.loaded()
    dtype_name = str(dtype).removeprefix("torch.")
    held = dict(held_bytes(model) if device.type == "cpu" else loaded_bytes)
    if loaded.vision is not None:
        held[dtype_name] = held.get(dtype_name, 0) + loaded.vision.tower.nbytes
    return TorchRunner(
        forward=forward,
        graphs=graphs,
        sampler=sampler,
        storage=storage,
        states=states,
        trees=prepared.trees,
        adapters=adapters,
        compilations=compilations,
        rank_processes=rank_processes,
        image_embeddings=prepared.image_embeddings,
        vision=None
        if prepared.image_embeddings is None or loaded.vision is None
        else loaded.vision.prompts,
        description=RunnerDescription(
            architecture=type(model).__name__,
            device=device.type,
            dtype=dtype_name,
            parameters=parameters,
            packed_linears=prepared.packed_linears,
            fused_layers=prepared.fused_layers,
            batch_invariant=config.batch_invariant,
            weight_bytes=held,
            quantized=prepared.quantized,
            products=prepared.products,
            cuda_graphs=0 if graphs is None else graphs.count,
            cache_tokens=cache_tokens or 0,
            cache_bytes=storage.nbytes + (0 if states is None else states.nbytes),
            window_tokens=tuple([g.num_blocks * config.block_size for g in groups[1:]]),
            max_model_len=max_model_len,
            spare_tokens=spare_tokens(device),
            tensor_parallel=ranks,
        ),
    )


def _multiplies_by_loops(config: ModelConfig, device: torch.device) -> bool:
    """Whether our own loops compute the products of a model that is not quantised.

    Experts and images are computed by torch, which is several times as fast in float32 on a CPU
    without bfloat16 instructions.
    """
    if device.type != "cpu" or not panels.runs_here():
        return False
    settings = read_config(config.model)
    experts = any("expert" in name for name in settings.get_text_config().to_dict())
    return not experts and not hasattr(settings, "vision_config")


def _graphs(
    forward: RaggedForward,
    states: StateStorage | None,
    config: ModelConfig,
    max_model_len: int,
    progress: Progress,
) -> CudaSteps | None:
    """None on the CPU."""
    if forward.device.type == "cpu":
        return None
    # Imported where it is needed: triton is there with CUDA builds of torch only.
    from app.model.cuda.attention import TritonAttention
    from app.model.cuda.graphs import CudaSteps

    assert isinstance(forward.attention, TritonAttention)
    steps = CudaSteps(
        forward,
        forward.attention,
        max_graph_tokens=config.max_graph_tokens if config.cuda_graphs else 0,
        max_model_len=max_model_len,
        states=states,
        must_capture=config.tensor_parallel > 1,
    )
    steps.prepare(progress)
    return steps


def _sampler(vocab_size: int, device: torch.device, dtype: torch.dtype) -> Sampler:
    sampler: Sampler
    if device.type == "cpu":
        sampler = CpuSampler(vocab_size)
    else:  # imported where it is needed, as in ``_graphs``
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
    loaded: LoadedModel,
    prepared: Prepared,
    sampler: Sampler,
    vocab_size: int,
    group: Group | None,
    progress: Progress,
) -> int:
    """Bytes for the cache, measured in a rehearsal with a small temporary one."""
    size, shapes = config.block_size, loaded.shapes
    storage = allocate(shapes, num_blocks=REHEARSAL_BLOCKS, block_size=size, device=loaded.device)
    states = allocate_states(loaded.recurrent.shapes, CHECKED_SLOTS, loaded.device)
    whole = [n for n, each in loaded.route.options.items() if each.window is None] or [*shapes]
    token_bytes = sum(shapes[layer].token_bytes for layer in whole)
    most = _agreed(budget.most_tokens(token_bytes), group) if token_bytes else _BOUNDLESS_LEN
    context = min(config.max_model_len or position_limit(loaded.model.config) or most, most)
    forward = loaded.forward_over(storage, states, context, config)
    limits = StepLimits(
        config.max_batch_tokens,
        config.max_running,
        config.max_rows_each,
        context,
        config.max_scored_rows,
        prepared.trees,
    )
    steps = largest_steps(
        limits,
        vocab_size=vocab_size,
        block_size=size,
        blocks=[each.num_blocks for each in storage.groups],
    )
    vision, embeddings = loaded.vision, prepared.image_embeddings

    def run_steps() -> None:
        if vision is not None and embeddings is not None:
            with progress.stage("measuring memory with the largest image"):
                image = largest_image(vision, min(config.image_tokens, context))
                embeddings.vision_encoder.encode(image).result()
        rehearse(forward, sampler, steps, size, progress)

    left = budget.cache_bytes(
        rehearsal_bytes=storage.nbytes + states.nbytes,
        run_steps=run_steps,
        capture=lambda: _graphs(forward, states, config, context, progress),
    )
    if vision is not None and embeddings is not None and config.kv_cache_bytes is None:
        # Image features of a step, once as parts and once concatenated.
        left -= 2 * config.max_batch_tokens * vision.token_bytes
    return _agreed(left, group)


def _agreed(number: int, group: Group | None) -> int:
    return number if group is None else group.least(number)


def _max_model_len(use: CacheUse, cache_tokens: int | None) -> int:
    """``cache_tokens`` None: the model has no attention, so no cache limits its length."""
    required, limit = use.required, use.limit
    if cache_tokens is None:
        cache_tokens = max(required or 0, limit or _BOUNDLESS_LEN)
    if required is None:
        return cache_tokens if limit is None else min(limit, cache_tokens)
    if limit is not None and required > limit:
        raise UnsupportedModel(f"max_model_len is {required}, but the model's limit is {limit}")
    if required > cache_tokens:
        raise UnsupportedModel(
            f"max_model_len is {required}, but the cache holds {cache_tokens} tokens; "
            "raise kv_cache_bytes or lower max_model_len"
        )
    return required


def run_as_stored(config: ModelConfig, device: torch.device) -> bool:
    """Whether the model has such weights and they are not to be dequantised.

    Raises ``UnsupportedModel``, with the remedy, if they cannot run here.
    """
    if config.random_weights or config.dequantize:
        return False
    if is_gguf(config.model):
        kind = "GGUF" if open_gguf(config.model).is_quantized else None
    else:
        stored = stored_quantization(read_config(config.model))
        kind = stored["quant_method"] if device.type == "cpu" and stored is not None else None
        kind = kind if kind in METHODS else None
    if kind is None:
        return False
    way_out = "serve another model" + ", or set LEAPJSON_DEQUANTIZE" * (kind == "GGUF")
    require_loops(config, device, f"{config.model}: quantised weights of {kind}", way_out)
    return True


def stored_parameters(model: nn.Module) -> int:
    """Number of quantised weights; those that two modules share count once."""
    held: dict[int, QuantizedWeight] = {}
    for module in model.modules():
        if isinstance(module, QuantizedLinear | QuantizedEmbedding):
            held[id(module.stored.codes)] = module.stored
    return sum(weight.outputs * weight.inputs for weight in held.values())
