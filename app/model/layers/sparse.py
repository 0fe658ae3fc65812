"""Sparse attention that picks the keys it reads, where it picks all of them.

In DeepSeek's sparse attention (DSA; DeepSeek-AI, DeepSeek-V3.2-Exp, 2025) an indexer scores the
keys of a query, and the ``index_topk`` best are read. As long as a sequence has no more tokens than
that, every key is among them: what is computed is plain causal attention, and the indexer says
nothing. So such models run exactly, with sequences of that length at the most, and without their
indexers: those would need keys of their own in the cache.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.layers.architecture import picked_keys
from app.model.layers.attention import AttentionRoute

_log = logging.getLogger(__name__)


class _IdleIndexer(nn.Module):
    """Picks nothing while a step runs through ``route``, and is ``indexer`` otherwise."""

    def __init__(self, indexer: nn.Module, route: AttentionRoute) -> None:
        super().__init__()
        self.indexer = indexer
        self._route = route

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._route.target is None:
            return self.indexer(hidden_states, *args, **kwargs)
        return hidden_states.new_empty((*hidden_states.shape[:2], 0), dtype=torch.int32)


def run_densely(model: PreTrainedModel, route: AttentionRoute) -> None:
    """Have layers with an indexer attend to all keys where they go by ``route``."""
    layers: list[Any] = [each for each in model.modules() if hasattr(each, "indexer")]
    if not layers:
        return
    picked = picked_keys(model.config)
    if picked is None:
        raise UnsupportedModel(f"{type(model).__name__} has sparse attention of an unknown extent")
    no_mask = torch.empty(1, 1, 0, 0, device=model.device)

    def without_mask(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        # These layers cut a part out of their mask, so they have to have one.
        if route.target is not None and kwargs.get("attention_mask") is None:
            kwargs["attention_mask"] = no_mask
        return args, kwargs

    for layer in layers:
        layer.register_forward_pre_hook(without_mask, with_kwargs=True)
        if layer.indexer is not None:
            layer.indexer = _IdleIndexer(layer.indexer, route)
    _log.warning(
        "%s has sparse attention, which reads all of a sequence of up to %d tokens: longer ones "
        "are not served",
        type(model).__name__,
        picked,
    )
