"""Loading a causal language model: from a folder, from the Hub, or with random weights."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Container, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils.import_utils import is_accelerate_available

from app.core.errors import UnsupportedModel
from app.core.gguf_file import open_gguf
from app.core.model_name import is_gguf
from app.core.progress import SILENCE, Progress
from app.model.checkpoints import gptq_awq
from app.model.checkpoints.assembly import assemble
from app.model.checkpoints.language_part import (
    auto_class,
    keep_language_part,
    language_config,
    names_of_language_part,
)
from app.model.checkpoints.progress_hooks import reporting_downloads, reporting_weights
from app.model.checkpoints.stored_quantization import (
    loading_options,
    require_as_stored,
    stored_quantization,
)
from app.model.config import ModelConfig
from app.model.layers.architecture import check_config, remove_batch_effects
from app.model.lean_imports import with_kernels
from app.model.parallel.group import Group

_log = logging.getLogger(__name__)

_RANDOM_SEED = 0
_LOAD_ERRORS = (OSError, ValueError, ImportError, KeyError, RuntimeError)


def language_part(
    model: PreTrainedModel,
    device: torch.device,
    group: Group | None = None,
    apart: Container[nn.Module] = (),
) -> PreTrainedModel:
    """The part of a whole model for text; with a ``group``, this rank's share of it.

    Parts in ``apart`` are removed, too, but not logged as not loaded.
    """
    model = keep_language_part(model, apart)
    if group is not None:
        from app.model.parallel.shares import share  # imports DTensor

        share(model, group)
    if model.device != device:  # some quantised models refuse to be moved, even to where they are
        model.to(device)  # type: ignore[arg-type]
    return model


def load_whole(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    group: Group | None = None,
    progress: Progress = SILENCE,
) -> PreTrainedModel:
    """Load a model with all its parts, or create random weights for it, ready for inference.

    Reads safetensors and GGUF and never runs code that comes with a model. Host memory: on the CPU
    the weights are pages of their files where they are stored in ``dtype``, else one copy of them;
    on a GPU they go to the device one by one (see ``_placement``). Raises ``UnsupportedModel`` for
    what cannot be loaded, lacks weights or cannot be served exactly.

    With a ``group`` it is this rank's share of the model. On a GPU only this share of stored
    weights is read; random weights are created whole first.
    """
    file = open_gguf(config.model) if is_gguf(config.model) else None
    whole = read_config(config.model)
    settings = language_config(whole)
    check_config(settings)
    stored = stored_quantization(settings)
    images = config.images and group is None
    if dtype == torch.float16 and settings.get_text_config().dtype == torch.bfloat16:
        _log.warning(
            "the model was made in bfloat16 and runs in float16, whose largest number is 65504: "
            "some models overflow in it; dtype float32 is safe, and slower"
        )
    try:
        if config.random_weights:
            model = _with_random_weights(
                auto_class(settings, images=images), settings, dtype, device
            )
        elif file is not None:
            from app.model.checkpoints.gguf.loading import load_gguf

            with _reporting(progress):
                model = load_gguf(
                    file, settings, dtype, as_stored=not config.dequantize, progress=progress
                )
        elif (
            device.type == "cpu"
            and not config.dequantize
            and stored is not None
            and stored["quant_method"] in gptq_awq.METHODS
        ):  # our loops support these formats, and transformers does not
            weights = gptq_awq.read_weights(config.model, gptq_awq.layout_of(stored), progress)
            plain = copy.deepcopy(settings)
            del plain.quantization_config  # transformers would look for the library that wrote it
            with _reporting(progress):
                model = assemble(plain, weights, dtype, folder=config.model)
        else:
            options = loading_options(settings, device, dequantize=config.dequantize)
            if renamed := names_of_language_part(settings, whole):
                options = {**options, "key_mapping": renamed}
            options = {**_placement(device, group), **options}
            family = auto_class(settings, images=images)
            model = _with_stored_weights(config.model, family, settings, dtype, options, progress)
            if stored_quantization(settings) is not None and not config.dequantize:
                require_as_stored(model)
    except torch.OutOfMemoryError as error:
        raise UnsupportedModel(
            f"the weights of {config.model} do not fit in the memory of the GPU: {error}"
        ) from error
    except _LOAD_ERRORS as error:
        raise UnsupportedModel(f"cannot load {config.model}: {error}") from error
    model.requires_grad_(False).eval()
    remove_batch_effects(model, config.max_model_len)
    return model


def read_config(model: str) -> PretrainedConfig:
    """The configuration in ``config.json``, or in the metadata of a GGUF file.

    Raises ``UnsupportedModel`` if it cannot be read.
    """
    if is_gguf(model):
        from app.model.checkpoints.gguf.configuration import configuration

        return configuration(open_gguf(model))
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(model, trust_remote_code=False)
    except _LOAD_ERRORS as error:
        raise UnsupportedModel(f"cannot read the configuration of {model}: {error}") from error
    return config


def eos_token_ids(model: str) -> frozenset[int]:
    """Token ids that end an answer, from ``generation_config.json``, else ``config.json``.

    Of a GGUF file from its metadata.
    """
    if is_gguf(model):
        return open_gguf(model).eos_token_ids()
    try:
        ids = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        ids = None
    if ids is None:
        ids = getattr(read_config(model).get_text_config(), "eos_token_id", None)
    return frozenset([ids] if isinstance(ids, int) else ids or ())


def _with_stored_weights(
    model: str,
    family: Any,
    settings: PretrainedConfig,
    dtype: torch.dtype,
    options: Mapping[str, Any],
    progress: Progress,
) -> PreTrainedModel:
    loaded: PreTrainedModel
    with _reporting(progress), reporting_downloads(progress) as downloads:
        load = partial(
            family.from_pretrained,
            model,
            config=settings,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="eager",
            output_loading_info=True,
            tqdm_class=downloads,
            **options,
        )
        loaded, report = with_kernels(load)
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills such weights with noise and only logs it.
        raise UnsupportedModel(
            f"{model} lacks {len(missing)} weights of its architecture, {missing[0]} among them"
        )
    return loaded


def _placement(device: torch.device, group: Group | None) -> dict[str, Any]:
    """Options that make transformers read each weight to ``device``, a few at a time.

    They need the package accelerate, though nothing of it is used. Without it the weights are
    loaded to host memory first and moved from there one after the other.
    """
    if device.type == "cpu":
        return {}
    if group is not None:
        return {"distributed_config": DistributedConfig(tp_size=group.size)}
    if is_accelerate_available():
        return {"device_map": {"": device}}
    _log.warning(
        "the package accelerate is not installed, so weights are loaded through host memory"
    )
    return {}


@contextlib.contextmanager
def _reporting(progress: Progress) -> Iterator[None]:
    """Report transformers' progress as stages, and silence its warning that quantisation settings
    are passed beside those of the checkpoint."""
    with reporting_weights(progress), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You passed `quantization_config`", UserWarning)
        yield


def _with_random_weights(
    family: Any, settings: PretrainedConfig, dtype: torch.dtype, device: torch.device
) -> PreTrainedModel:
    if stored_quantization(settings) is not None:
        raise UnsupportedModel(
            "random weights are not quantised: take quantization_config out of config.json"
        )
    # Made where they are used: a CPU takes minutes for the billions of a large model.
    devices = [] if device.type == "cpu" else [torch.cuda.current_device()]
    with torch.random.fork_rng(devices=devices), device:
        torch.manual_seed(_RANDOM_SEED)
        model: PreTrainedModel = family.from_config(
            settings, dtype=dtype, attn_implementation="eager", trust_remote_code=False
        )
    return model
