"""Sparse attention over selected keys, run as full attention while it selects all of them.

In DeepSeek's sparse attention (DSA; DeepSeek-AI, DeepSeek-V3.2-Exp, 2025) an indexer scores the
keys of a query, and the ``index_topk`` best are read. As long as a sequence has no more tokens than
that, every key is among them: the result is plain causal attention, and the indexer has no effect.
So such models run exactly, with sequences of at most that length, and without their indexers, which
would need keys of their own in the cache. GLM 5 Next and Qwen 4 select blocks of as many keys
together, Doge selects keys by a bias that is added to their scores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.layers.architecture import picked_keys
from app.model.layers.attention import AttentionRoute
from app.model.layers.model_call import put_in_steps

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
        if hasattr(self.indexer, "token_budget"):  # returns a mask of the keys to read
            return torch.ones((1, 1, 1, 1), dtype=torch.bool, device=hidden_states.device)
        return hidden_states.new_empty((*hidden_states.shape[:2], 0), dtype=torch.int32)


def run_densely(model: PreTrainedModel, route: AttentionRoute) -> None:
    """Make layers with sparse attention attend to all keys while a step runs by ``route``."""
    layers: list[Any] = [
        module
        for module in model.modules()
        if hasattr(module, "indexer") or hasattr(module, "prepare_dynamic_mask")
    ]
    if not layers:
        return
    picked = picked_keys(model.config)
    if picked is None:
        raise UnsupportedModel(f"{type(model).__name__} has sparse attention of unknown width")
    no_mask = torch.empty(1, 1, 0, 0, device=model.device)

    def without_mask(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        # These layers slice their mask, so it must not be None.
        if route.target is not None and kwargs.get("attention_mask") is None:
            kwargs["attention_mask"] = no_mask
        return args, kwargs

    for layer in layers:
        if hasattr(layer, "indexer"):
            layer.register_forward_pre_hook(without_mask, with_kwargs=True)
            if layer.indexer is not None:
                layer.indexer = _IdleIndexer(layer.indexer, route)
        for name in _MASKS.keys() & {*dir(layer)}:
            put_in_steps(layer, name, route)(_MASKS[name])
    _log.warning(
        "%s has sparse attention, which equals full attention up to %d tokens: longer sequences "
        "are not supported",
        type(model).__name__,
        picked,
    )


_MASKS: Mapping[str, Callable[..., Tensor | None]] = {
    "build_attention_mask_from_topk": lambda **_: None,
    # Doge adds a number to all scores of a key: [1, H, T] -> [1, H, 1, T].
    "prepare_dynamic_mask": lambda *, dt_states, **_: dt_states[:, :, None],
}
"""Replacements for the methods that mask keys that are not selected, by name."""
