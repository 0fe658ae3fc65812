"""Checkpoints whose language model is one part among others: of images, sounds, video.

Where transformers has a class for the language part alone (Qwen 3.5), it is loaded, and the weights
of the rest are never read. Elsewhere the whole model is made by the class that the checkpoint was
written by, and what text does not pass through is taken out of it again.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils.import_utils import is_timm_available

from app.core.errors import UnsupportedModel
from app.model.layers.model_call import text_alone

_log = logging.getLogger(__name__)

_TIMM = frozenset({"gemma3n"})
"""Kinds that want timm, though no part of their configurations is its."""

_CLASSES: tuple[Any, ...] = (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
)


def language_config(config: PretrainedConfig) -> PretrainedConfig:
    """The configuration of what is loaded to read and write text.

    Qwen's omni models are two models under one roof, of which the thinker does. Where the whole
    cannot be made because the library timm, which sees images for it, is not here, it is that of
    the language model alone (Gemma 3n).
    """
    thinker = getattr(config, "thinker_config", None)
    if isinstance(thinker, PretrainedConfig):
        return thinker
    parts = [getattr(config, name, None) for name in type(config).sub_configs]
    needs_timm = any(getattr(part, "model_type", None) == "timm_wrapper" for part in parts)
    if (needs_timm or config.model_type in _TIMM) and not is_timm_available():
        text = config.get_text_config()
        if type(text) in AutoModelForCausalLM._model_mapping:
            return text
    return config


def names_of_language_part(config: PretrainedConfig, whole: PretrainedConfig) -> dict[str, str]:
    """How stored weights are renamed where only the language model of ``whole`` is made."""
    alone = config is not whole and config is whole.get_text_config()
    return {r"^model\.language_model\.": "model."} if alone else {}


def auto_class(config: PretrainedConfig) -> Any:
    """The family of transformers' classes that a model of this configuration is loaded by.

    Raises ``UnsupportedModel`` for models that write no text.
    """
    for family in _CLASSES:
        if type(config) in family._model_mapping:
            return family
    raise UnsupportedModel(f"{config.model_type} is no causal language model")


@torch.inference_mode()
def keep_language_part(model: PreTrainedModel) -> None:
    """Take out of ``model`` what plain text does not pass through, and log what that was.

    Two tokens are passed through it, and parts none of whose modules was called go. A model whose
    configuration has no parts is left as it is.
    """
    if model.config.get_text_config() is model.config:
        return
    called: set[nn.Module] = set()
    hooks = [
        module.register_forward_pre_hook(lambda module, _: called.add(module))
        for module in model.modules()
    ]
    try:
        _try(model)
    finally:
        for hook in hooks:
            hook.remove()
    left_out = _take_out(model, called)
    try:
        _try(model)
    except UnsupportedModel:  # it reads something of what is gone
        for parent, name, part in left_out:
            setattr(parent, name, part)
        return
    for _, name, part in left_out:
        weights = sum(weight.numel() for weight in part.parameters())
        _log.info("served as text: %s (%d weights) is left out", name, weights)


def _try(model: PreTrainedModel) -> None:
    with text_alone(model):
        ids = torch.arange(1, 3, device=model.device).unsqueeze(0)
        model(input_ids=ids, use_cache=False)


def _take_out(parent: nn.Module, called: set[nn.Module]) -> list[tuple[nn.Module, str, nn.Module]]:
    """What was taken out, each with its parent and name: whole parts, never a piece of a layer."""
    found: list[tuple[nn.Module, str, nn.Module]] = []
    for name, child in list(parent.named_children()):
        if isinstance(child, PreTrainedModel) and child in called:
            found += _take_out(child, called)
        elif called.isdisjoint(child.modules()) and any(True for _ in child.parameters()):
            setattr(parent, name, None)
            found.append((parent, name, child))
    return found
