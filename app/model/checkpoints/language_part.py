"""Checkpoints whose language model is one part among others: of images, sounds, video.

If transformers has a class for the language part alone (Qwen 3.5) and no images are wanted, only
that part is loaded, and other weights are never read. Otherwise the whole model is loaded by the
class that wrote the checkpoint, and modules that text does not pass through are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from contextlib import ExitStack
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
from app.model.layers.architecture import check_config
from app.model.layers.model_call import logits_of, text_alone

_log = logging.getLogger(__name__)

_TIMM = frozenset({"gemma3n"})
"""Model types that need timm although no part of their configuration names it."""

_CLASSES: tuple[Any, ...] = (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
)

_WITH_IMAGES: Any = AutoModelForImageTextToText._model_mapping
"""Classes of models that may take images, by configuration class."""


def language_config(config: PretrainedConfig) -> PretrainedConfig:
    """Configuration of the part that is loaded for text.

    Qwen's omni models consist of two models, of which the thinker reads and writes text. If the
    whole model needs the library timm for images and that is not installed, the result is the
    configuration of the language model alone (Gemma 3n).
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


def auto_class(config: PretrainedConfig, *, images: bool) -> Any:
    """transformers' auto class for this configuration; with ``images`` one whose models take them,
    if there is one.

    Raises ``UnsupportedModel`` for models that do not generate text.
    """
    if images and hasattr(_WITH_IMAGES.get(type(config), None), "get_image_features"):
        return AutoModelForImageTextToText
    for family in _CLASSES:
        if type(config) in family._model_mapping:
            return family
    raise UnsupportedModel(f"{config.model_type} is not a causal language model")


@torch.inference_mode()
def keep_language_part(model: PreTrainedModel, apart: Container[nn.Module] = ()) -> PreTrainedModel:
    """The part of ``model`` that reads and writes text: itself, or a language model within it.

    Two tokens are passed through the model, and parts of which no module was called are removed
    and, unless they are in ``apart``, logged. A model whose configuration has no parts is returned
    unchanged. If the whole needs an image or a sound with every text, only the language model
    within it is kept. Raises ``UnsupportedModel`` if there is none.
    """
    if model.config.get_text_config() is model.config:
        return model
    try:
        called = _called(model)
    except UnsupportedModel:
        within = _language_model_within(model)
        if within is None:
            raise
        return within
    left_out = _remove_parts(model, called)
    try:
        _run_text(model)
    except UnsupportedModel:  # it reads an attribute of a removed part
        for parent, name, part in left_out:
            setattr(parent, name, part)
        return model
    for _, name, part in left_out:
        if part in apart:
            continue
        weights = sum(weight.numel() for weight in part.parameters())
        _log.info("served as a text model: %s (%d weights) is not loaded", name, weights)
    return model


def _called(model: PreTrainedModel) -> set[nn.Module]:
    """The modules that text passes through."""
    called: set[nn.Module] = set()
    with ExitStack() as hooks:
        for module in model.modules():
            hook = module.register_forward_pre_hook(lambda module, _: called.add(module))
            hooks.enter_context(hook)
        _run_text(model)
    return called


def _language_model_within(model: PreTrainedModel) -> PreTrainedModel | None:
    """The part that is a causal language model: with an output layer, without cross-attention.

    Raises ``UnsupportedModel`` if its kind is not supported.
    """
    for name, part in model.named_modules():
        if part is model or not isinstance(part, PreTrainedModel) or not part.can_generate():
            continue
        if part.get_output_embeddings() is None or any(
            "cross" in name for name, _ in part.named_modules()
        ):
            continue
        check_config(part.config)
        _run_text(part)
        others = model.num_parameters() - part.num_parameters()
        _log.info("served as a text model: only %s is loaded; %d weights are not", name, others)
        return part
    return None


def _run_text(model: PreTrainedModel) -> None:
    """A pass over two tokens. Raises ``UnsupportedModel`` if the model needs more than text."""
    with text_alone(model):
        ids = torch.arange(1, 3, device=model.device).unsqueeze(0)
        logits_of(model, ids, None, ids[0, :1])


def _remove_parts(
    parent: nn.Module, called: set[nn.Module]
) -> list[tuple[nn.Module, str, nn.Module]]:
    """Remove parts that were not called, never pieces of layers; returns (parent, name, part)."""
    found: list[tuple[nn.Module, str, nn.Module]] = []
    for name, child in list(parent.named_children()):
        if isinstance(child, PreTrainedModel) and child in called:
            found += _remove_parts(child, called)
        elif called.isdisjoint(child.modules()) and any(True for _ in child.parameters()):
            setattr(parent, name, None)
            found.append((parent, name, child))
    return found
