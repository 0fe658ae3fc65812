"""Loading a causal language model: from a folder, from the Hub, or made up from a configuration."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils import logging as transformers_logging
from transformers.utils.import_utils import is_accelerate_available

from app.core.errors import UnsupportedModel
from app.model.architecture import check_config, check_forward, remove_batch_effects
from app.model.config import ModelConfig
from app.model.device import warn_of_overflow
from app.model.parallel.group import Group
from app.model.parallel.shares import share

_log = logging.getLogger(__name__)

_RANDOM_SEED = 0
_LOAD_ERRORS = (OSError, ValueError, ImportError, KeyError, RuntimeError)


def load_model(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, group: Group | None = None
) -> PreTrainedModel:
    """Read or make up the weights and put the model on ``device``, ready for inference.

    Reads safetensors only and never runs code that comes with a model. Host memory: on the CPU
    the weights are pages of their files where they are stored in ``dtype``, else one copy of them;
    on a GPU they go to the device one by one (see ``_placement``). Raises ``UnsupportedModel`` for
    what cannot be loaded, lacks weights or cannot be served exactly.

    With a ``group`` it is this rank's share of the model. On a GPU stored weights are read for it
    alone; weights that are made up are made whole first.
    """
    settings = read_config(config.model)
    check_config(settings)
    warn_of_overflow(dtype, made_in=settings.get_text_config().dtype)
    try:
        if config.random_weights:
            model = _with_random_weights(settings, dtype, device)
        else:
            model = _with_stored_weights(config.model, dtype, device, group)
    except torch.OutOfMemoryError as error:
        raise UnsupportedModel(
            f"the weights of {config.model} do not fit in the memory of the GPU: {error}"
        ) from error
    except _LOAD_ERRORS as error:
        raise UnsupportedModel(f"cannot load {config.model}: {error}") from error
    check_forward(model)
    remove_batch_effects(model, config.max_model_len)
    if group is not None:
        share(model, group)
    ready: PreTrainedModel = model.requires_grad_(False).eval().to(device)
    return ready


def read_config(model: str) -> PretrainedConfig:
    """The model's ``config.json``. Raises ``UnsupportedModel`` where there is none to use."""
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(model, trust_remote_code=False)
    except _LOAD_ERRORS as error:
        raise UnsupportedModel(f"cannot read the configuration of {model}: {error}") from error
    return config


def eos_token_ids(model: str) -> frozenset[int]:
    """Token ids that end an answer, from ``generation_config.json``, else ``config.json``."""
    try:
        ids = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        ids = None
    if ids is None:
        ids = getattr(read_config(model).get_text_config(), "eos_token_id", None)
    if ids is None:
        return frozenset()
    return frozenset([ids] if isinstance(ids, int) else ids)


def _with_stored_weights(
    model: str, dtype: torch.dtype, device: torch.device, group: Group | None
) -> PreTrainedModel:
    auto: Any = AutoModelForCausalLM
    loaded: PreTrainedModel
    with _no_progress_bars():
        loaded, report = auto.from_pretrained(
            model,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="eager",
            output_loading_info=True,
            **_placement(device, group),
        )
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills such weights with noise and only logs it.
        raise UnsupportedModel(
            f"{model} lacks {len(missing)} weights of its architecture, {missing[0]} among them"
        )
    return loaded


def _placement(device: torch.device, group: Group | None) -> dict[str, Any]:
    """What tells transformers to read each weight to ``device``, a few at a time.

    It takes the package accelerate, though nothing of it is used. Without it the weights are on
    the host first, as on the CPU, and are moved from there one after the other.
    """
    if device.type == "cpu":
        return {}
    if group is not None:
        return {"distributed_config": DistributedConfig(tp_size=group.size)}
    if is_accelerate_available():
        return {"device_map": {"": device}}
    _log.warning(
        "weights pass through this machine's memory on their way to the GPU; with the package "
        "accelerate installed they do not"
    )
    return {}


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing bars between the lines of the log."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _with_random_weights(
    settings: PretrainedConfig, dtype: torch.dtype, device: torch.device
) -> PreTrainedModel:
    # Made where they are used: a CPU takes minutes for the billions of a large model.
    devices = [] if device.type == "cpu" else [torch.cuda.current_device()]
    with torch.random.fork_rng(devices=devices), device:
        torch.manual_seed(_RANDOM_SEED)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            settings, dtype=dtype, attn_implementation="eager", trust_remote_code=False
        )
    return model
