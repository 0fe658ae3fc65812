"""Positions of models that count for themselves.

Most models are told where each token of a step stands. Two sorts count: RoBERTa's kin, by the
tokens that are no padding, from the one behind padding's own position; and embeddings of positions
that nobody hands any on to. A step's row holds parts of many sequences, so both are told here.
A padding token inside a text is a token like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from app.model.layers.model_call import hand_positions, takes_positions

_FROM_PADDING = "create_position_ids_from_input_ids"


def give_positions(model: PreTrainedModel) -> None:
    """Have ``position_ids`` that count from 0 reach what wants to count otherwise, or by itself."""
    first = max((_first_position(module) for module in model.modules()), default=0)
    if not takes_positions(model):
        _tell(model, [module for module in model.modules() if _counts(module)])
    elif first:
        _shift(model, first)


def _shift(model: PreTrainedModel, first: int) -> None:
    def shift(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if kwargs.get("position_ids") is not None:
            kwargs["position_ids"] = kwargs["position_ids"] + first
        return args, kwargs

    model.register_forward_pre_hook(shift, with_kwargs=True)
    text: Any = model.config.get_text_config()
    text.max_position_embeddings -= first  # those before it are padding's


def _tell(model: PreTrainedModel, counters: list[nn.Module]) -> None:
    told: list[Tensor | None] = [None]
    """[T]; None while the model counts for itself."""

    def hear(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        positions = kwargs.pop("position_ids", None)
        told[0] = None if positions is None else positions[0]
        return args, kwargs

    def tell(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if told[0] is not None:
            kwargs["position_ids"] = told[0]
        return args, kwargs

    for module in counters:
        module.register_forward_pre_hook(tell, with_kwargs=True)
    if counters:
        model.register_forward_pre_hook(hear, with_kwargs=True)
        hand_positions(model)


def _first_position(module: Any) -> int:
    padding = getattr(module, "padding_idx", None)
    return padding + 1 if hasattr(module, _FROM_PADDING) and isinstance(padding, int) else 0


def _counts(module: nn.Module) -> bool:
    """Whether it is an embedding that makes up its positions unless it is told them."""
    own: Callable[..., Any] = type(module).forward
    if not isinstance(module, nn.Embedding) or own is nn.Embedding.forward:
        return False
    return {"position_ids", "past_key_values_length"} <= {*inspect.signature(own).parameters}
