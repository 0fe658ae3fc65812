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
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig

from app.core.errors import LeapjsonError, UnsupportedModel
from app.core.gguf_file import open_gguf
from app.core.model_name import is_gguf
from app.core.progress import SILENCE, Progress
from app.model.checkpoints import gptq_awq
from app.model.checkpoints.assembly import assemble, require_complete, require_used
from app.model.checkpoints.language_part import (
    auto_class,
    keep_language_part,
    language_config,
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
    on a GPU they go to the device one by one. Raises ``UnsupportedModel`` for what cannot be
    loaded, lacks weights or cannot be served exactly.

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
    with _refusing(f"load {config.model}"):
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
            if settings is not whole and settings is whole.get_text_config():  # a part of it
                options["key_mapping"] = {r"^model\.language_model\.": "model."}
            if device.type != "cpu" and group is not None:
                options["distributed_config"] = DistributedConfig(tp_size=group.size)
            elif device.type != "cpu":  # each weight is read to the device, a few at a time
                options["device_map"] = {"": device}
            family = auto_class(settings, images=images)
            model = _with_stored_weights(config.model, family, settings, dtype, options, progress)
            if stored_quantization(settings) is not None and not config.dequantize:
                require_as_stored(model)
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
    with _refusing(f"read the configuration of {model}"):
        config: PretrainedConfig = AutoConfig.from_pretrained(model, trust_remote_code=False)
    return config


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Raise any error of a library as ``UnsupportedModel``: files can be wrong in any way."""
    try:
        yield
    except LeapjsonError:
        raise
    except torch.OutOfMemoryError as error:
        raise UnsupportedModel(
            f"cannot {what}: the weights do not fit in the memory of the GPU: {error}"
        ) from error
    except SafetensorError as error:
        raise UnsupportedModel(
            f"cannot {what}: a safetensors file is truncated or a Git LFS pointer; download it "
            f"again: {error}"
        ) from error
    except Exception as error:
        _log.debug("cannot %s", what, exc_info=error)  # it may be a fault of ours
        raise UnsupportedModel(f"cannot {what}: {type(error).__name__}: {error}") from error


def eos_token_ids(model: str) -> frozenset[int]:
    """Token ids that end an answer, from ``generation_config.json``, else ``config.json``.

    Of a GGUF file from its metadata.
    """
    if is_gguf(model):
        return open_gguf(model).eos_token_ids()
    ids = None
    with _refusing(f"read eos_token_id of {model} in generation_config.json or config.json"):
        with contextlib.suppress(OSError):
            ids = GenerationConfig.from_pretrained(model).eos_token_id
        if ids is None:
            ids = getattr(read_config(model).get_text_config(), "eos_token_id", None)
        ids = frozenset([ids] if isinstance(ids, int) else ids or ())
    return ids


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
            ignore_mismatched_sizes=True,
            tqdm_class=downloads,
            **options,
        )
        loaded, report = with_kernels(load)
    require_complete(report, model)
    require_used(report, model, loaded)
    return loaded


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
