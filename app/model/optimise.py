"""Optimises a loaded model, and checks that its logits stay the same.

The expected logits come from the model as it was loaded, so the self-check covers every change to
its weights and layers here: rounding, packing, fusing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from app.core.kernels import runs_here
from app.core.progress import SILENCE, Progress
from app.model.adapters.slots import AdapterSlots, fill_slots
from app.model.config import ModelConfig
from app.model.cpu.kernels import amx
from app.model.cpu.layers import can_fuse, fuse, require_invariance
from app.model.cpu.packed_linear import can_pack, pack_linears
from app.model.cpu.trial import BLOCKS, compare
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.kv_storage import allocate
from app.model.layers.attention import set_attention
from app.model.layers.quantized import check_rounding, kinds_of, quantize_linears
from app.model.loaded import LoadedModel
from app.model.self_check import (
    CHECKED_SLOTS,
    check_invariance,
    check_ragged_step,
    check_rounded_cache,
    follows_trees,
    make_case,
    whole_logits,
)
from app.model.state_storage import allocate_states
from app.model.vision.embeddings import ImageEmbeddings
from app.model.vision.self_check import connect_vision

_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """Optimisations applied to a model."""

    packed_linears: int = 0
    fused_layers: int = 0
    quantized: str = ""
    products: str = "torch"
    """Implementation of matrix products, with timings if they decided the choice."""
    trees: bool = False
    """Whether spans may be trees."""
    image_embeddings: ImageEmbeddings | None = None
    """None: served as a text model."""


def prepare(
    loaded: LoadedModel,
    config: ModelConfig,
    adapters: AdapterSlots | None,
    progress: Progress = SILENCE,
) -> Prepared:
    """Pack, fuse or round weights where that is faster or configured; load the named adapters.

    Raises ``UnsupportedModel`` where the model then fails the self-check.
    """
    model = loaded.model
    # A longer case takes longer: a CPU multiplies 68 rows by each weight, or 100 for blocks of 16.
    block_size = min(config.block_size, 8 if loaded.device.type == "cpu" else _BLOCK_SIZE)
    text: Any = model.config.get_text_config()
    groups = len({shape.window for shape in loaded.shapes.values()})
    case = make_case(
        text.vocab_size,
        block_size,
        groups,
        states=bool(loaded.recurrent.shapes),
        padding=getattr(text, "pad_token_id", None),
    )
    expected = whole_logits(model, case)
    if config.quantize is not None:
        quantize_linears(model, config.quantize)
        expected = check_rounding(model, case, expected, config.quantize)
    prepared = _fuse_or_pack(loaded, config, adapters)
    if config.batch_invariant and loaded.device.type == "cpu":
        require_invariance(model)
    set_attention(model, loaded.route.name)
    forward = _forward_over_new(loaded, config, block_size, case.blocks)
    check_ragged_step(model, forward, case, block_size, expected)
    if not loaded.recurrent.shapes:
        prepared = replace(prepared, trees=follows_trees(forward, case, block_size, expected))
    if loaded.vision is not None:
        blocks = -(len(loaded.vision.trial.tokens) // -block_size)
        image_embeddings = connect_vision(
            model,
            loaded.vision,
            _forward_over_new(loaded, config, block_size, blocks),
            block_size=block_size,
            groups=groups,
            states=case.states,
            rounded=config.quantize is not None,
        )
        prepared = replace(prepared, image_embeddings=image_embeddings)
    if config.kv_cache_dtype == "fp8":
        forward = _forward_over_new(loaded.in_fp8(), config, block_size, case.blocks)
        check_rounded_cache(forward, case, block_size, expected)
    if adapters is not None and config.adapters is not None:
        adapters.attach(lambda: forward.run(lay_out(case.steps[0], block_size)))
        fill_slots(adapters, config.adapters, progress)
    if config.batch_invariant:
        check_invariance(forward, case, block_size)
    return prepared


def _forward_over_new(
    loaded: LoadedModel, config: ModelConfig, block_size: int, blocks: int
) -> RaggedForward:
    """A forward pass over a new cache of ``blocks`` blocks."""
    storage = allocate(
        loaded.shapes, num_blocks=blocks, block_size=block_size, device=loaded.device
    )
    states = allocate_states(loaded.recurrent.shapes, CHECKED_SLOTS, loaded.device)
    return loaded.forward_over(storage, states, blocks * block_size, config)


def _fuse_or_pack(
    loaded: LoadedModel, config: ModelConfig, adapters: AdapterSlots | None
) -> Prepared:
    model, route = loaded.model, loaded.route
    if loaded.device.type == "cuda":
        # Imported where it is needed: triton is there with CUDA builds of torch only.
        from app.model.cuda.layers import fuse as fuse_on_device

        fused = fuse_on_device(
            model, route, batch_invariant=config.batch_invariant, adapters=adapters
        )
        torch.cuda.empty_cache()  # frees the parts of joined weights
        return Prepared(fused_layers=fused, products="own kernels")
    products, quantized, amx_from = "torch", kinds_of(model), (0, 0)
    own = can_fuse(model)
    if own:
        products = "own loops"
        forward = partial(_forward_over_new, loaded, config, _BLOCK_SIZE, BLOCKS)
        # Only our loops multiply quantised weights, and torch's results depend on the other rows.
        with_torch = not quantized and not config.batch_invariant
        if trial := compare(loaded, forward, layers=adapters is None, with_torch=with_torch):
            own, amx_from = trial.loops_win, trial.amx_from(bool(quantized))
            products = "torch" if not own else products + " with AMX" * amx_from[0]
            if amx_from[1]:
                products += f"; AMX from {amx_from[1]} rows"
            products += f"; {trial}"
        if runs_here("amx") and (reason := amx.missing()):
            products += f"; no AMX: {reason}"
    if own:
        layers = adapters is None
        packed = fuse(model, route, loaded.recurrent, layers=layers, amx_from=amx_from)
        return Prepared(packed_linears=packed, quantized=quantized, products=products)
    packed = pack_linears(model) if can_pack(model.dtype, model.device) else 0
    return Prepared(packed_linears=packed, products=products)
