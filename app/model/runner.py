"""The runner: a transformers model behind the engine's ``Runner`` protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from app.core.constraint import Mask
from app.core.errors import UnsupportedModel
from app.core.step import StepPlan, StepResult
from app.model.architecture import position_limit
from app.model.attention import AttentionRoute, CpuAttention, probe_layers
from app.model.config import ModelConfig
from app.model.forward import RaggedForward, StepAttention
from app.model.inputs import lay_out
from app.model.kv_storage import KvStorage, LayerShape, allocate, blocks_within
from app.model.loading import choose_device, choose_dtype, load_model
from app.model.packed_linear import can_pack, pack_linears
from app.model.sampling import CpuSampler, Sampler
from app.model.self_check import check_ragged_step, make_case, whole_logits

_CPU_CACHE_BYTES = 1 << 30
_CHECK_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class RunnerDescription:
    """What was loaded, for logs."""

    architecture: str
    device: str
    dtype: str
    parameters: int
    packed_linears: int
    """Linear layers repacked for the CPU's matrix units."""
    cache_tokens: int
    """Tokens the cache holds, all sequences together."""
    max_model_len: int


class TorchRunner:
    """Runs steps of one model; see ``app.core.step.Runner``.

    On the CPU ``launch`` does the whole forward pass before it returns. A helper thread would
    let masks be filled meanwhile, but it would take the core from the matrix products it is
    meant to hide behind, and masks are looked up in microseconds once their states are known.
    """

    def __init__(
        self,
        *,
        forward: RaggedForward,
        sampler: Sampler,
        storage: KvStorage,
        description: RunnerDescription,
    ) -> None:
        self._forward = forward
        self._sampler = sampler
        self._storage = storage
        self._description = description
        self._launched: tuple[StepPlan, torch.Tensor] | None = None

    @property
    def block_size(self) -> int:
        return self._storage.block_size

    @property
    def num_blocks(self) -> int:
        return self._storage.num_blocks

    @property
    def max_model_len(self) -> int:
        return self._description.max_model_len

    @property
    def description(self) -> RunnerDescription:
        return self._description

    def launch(self, plan: StepPlan) -> None:
        assert self._launched is None, "launch twice without sample between"
        self._launched = (plan, self._forward.run(lay_out(plan, self.block_size)))

    @torch.inference_mode()
    def sample(self, masks: Sequence[Mask | None]) -> StepResult:
        assert self._launched is not None, "sample without launch"
        plan, logits = self._launched
        self._launched = None
        if not plan.rows:
            return StepResult(tokens=())
        return StepResult(tokens=self._sampler.sample(logits, plan.rows, masks))


def load_runner(config: ModelConfig) -> TorchRunner:
    """Load a model, check that it runs exactly as a ragged step, and give it a cache.

    Raises ``UnsupportedModel``, saying what is wrong, where it cannot be loaded or served.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    model = load_model(config, device, dtype)
    route = AttentionRoute()
    shapes = probe_layers(model, route)
    parameters = model.num_parameters()
    packed = _prepare(model, route, shapes, config, dtype)

    vocab_size = _vocab_size(model, config.vocab_size)
    num_blocks = blocks_within(_cache_bytes(config, device), shapes, config.block_size)
    storage = allocate(shapes, num_blocks=num_blocks, block_size=config.block_size, device=device)
    sampler = CpuSampler(vocab_size)
    sampler.warm_up()
    return TorchRunner(
        forward=RaggedForward(model, route, _attention(storage, device)),
        sampler=sampler,
        storage=storage,
        description=RunnerDescription(
            architecture=type(model).__name__,
            device=device.type,
            dtype=str(dtype).removeprefix("torch."),
            parameters=parameters,
            packed_linears=packed,
            cache_tokens=num_blocks * config.block_size,
            max_model_len=_max_model_len(model, config, num_blocks * config.block_size),
        ),
    )


def _prepare(
    model: PreTrainedModel,
    route: AttentionRoute,
    shapes: dict[int, LayerShape],
    config: ModelConfig,
    dtype: torch.dtype,
) -> int:
    """Pack weights where that pays and run the self-check; returns how many were packed.

    What is expected comes from the model as loaded, so the check covers the packing too.
    """
    block_size = min(config.block_size, _CHECK_BLOCK_SIZE)
    case = make_case(model.config.get_text_config().vocab_size, block_size)
    expected = whole_logits(model, case, "eager")
    packed = pack_linears(model) if config.pack_linears and can_pack(dtype, model.device) else 0
    model.set_attn_implementation(route.name)
    storage = allocate(shapes, num_blocks=case.blocks, block_size=block_size, device=model.device)
    forward = RaggedForward(model, route, _attention(storage, model.device))
    check_ragged_step(model, forward, case, block_size, expected)
    return packed


def _attention(storage: KvStorage, device: torch.device) -> StepAttention:
    return CpuAttention(storage)


def _cache_bytes(config: ModelConfig, device: torch.device) -> int:
    if config.kv_cache_bytes is not None:
        return config.kv_cache_bytes
    if device.type == "cpu":
        return _CPU_CACHE_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * config.cuda_memory_share)


def _vocab_size(model: PreTrainedModel, asked: int | None) -> int:
    width = int(model.config.get_text_config().vocab_size)
    if asked is not None and asked > width:
        raise UnsupportedModel(
            f"the tokenizer has {asked} tokens, but the model gives logits for {width}"
        )
    return asked or width


def _max_model_len(model: PreTrainedModel, config: ModelConfig, cache_tokens: int) -> int:
    limit = position_limit(model.config)
    asked = config.max_model_len
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
