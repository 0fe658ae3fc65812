"""The checks before processes share a model, and the way each of them joins the others."""

from __future__ import annotations

import os

import torch
from transformers import PretrainedConfig

from app.core.errors import UnsupportedModel
from app.core.model_name import is_gguf
from app.model.config import ModelConfig
from app.model.device import choose_device
from app.model.parallel.group import TorchGroup
from app.model.parallel.plan import check_plan


def check_sharing(config: ModelConfig, settings: PretrainedConfig) -> None:
    """Raises ``UnsupportedModel`` where ``config.tensor_parallel`` processes cannot share a model.

    ``settings`` is the model's own configuration.
    """
    ranks = config.tensor_parallel
    for asked, what in (
        (is_gguf(config.model), "GGUF files are"),
        (config.quantize is not None, "quantised weights (quantize) are"),
        (config.adapters is not None, "adapters are"),
    ):
        if asked:
            raise UnsupportedModel(f"{what} not supported with tensor_parallel; set it to 1")
    if config.batch_invariant:
        raise UnsupportedModel(
            "batch_invariant is not supported with tensor_parallel: sums over devices depend on "
            "the size of a step"
        )
    if choose_device(config.device).type == "cuda":
        count = torch.cuda.device_count()
        if ranks > count:
            raise UnsupportedModel(f"tensor_parallel is {ranks}, but only {count} GPUs are visible")
    check_plan(settings, ranks)


def join(config: ModelConfig, rank: int, store: str) -> TorchGroup:
    """Take this rank's device, and meet the others over the file ``store``."""
    device = choose_device(config.device)
    if device.type == "cuda":
        torch.cuda.set_device(rank)
        device = torch.device("cuda", rank)
        os.environ["LOCAL_RANK"] = str(rank)  # transformers reads weights to the GPU it names
    return TorchGroup(rank, config.tensor_parallel, device, store)
