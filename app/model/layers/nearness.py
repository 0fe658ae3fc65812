"""Attention scores with a bias by the distance of the key, computed from the query's token.

Inkling's tokens mix a few profiles over distances into one for each head (Thinking Machines 2026).
transformers expands them to a number for each query and key; while a step runs the profiles are
passed to the ``AttentionRoute`` instead, and distances come from the step's positions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.model.layers.attention import AttentionRoute
from app.model.layers.model_call import put_in_steps


def route_nearness(model: PreTrainedModel, route: AttentionRoute) -> None:
    """Make attentions with a bias by distance pass it to ``route``."""
    for module in model.modules():
        bias = getattr(module, "relative_position_bias", None)  # from transformers 5.24 on
        if hasattr(bias, "proj"):
            route.near = True
            _route_bias(bias, route)
    attentions: list[Any] = [each for each in model.modules() if hasattr(each, "rel_logits_proj")]
    if not attentions:
        return
    route.near = True
    scaling = _LogScaling(model.config.get_text_config())
    model.register_forward_pre_hook(scaling.note_positions, with_kwargs=True)
    for module in attentions:
        scales = scaling.floor is not None and not module.is_sliding and hasattr(module, "q_norm")
        _route_profiles(module.rel_logits_proj, route, scaling if scales else None)
        if scales:
            _scale_queries(module, route, scaling)


def _route_bias(module: Any, route: AttentionRoute) -> None:
    @put_in_steps(module, "forward", route)
    def forward(hidden: Tensor, _: Tensor, position_ids: Tensor) -> Tensor:
        """Hidden states [1, T, width] -> profiles [1, H, T, E]."""
        states = module.linear(hidden).view(*hidden.shape[:-1], module.num_heads, -1)
        profiles: Tensor = module.norm(states, position_ids) @ module.proj
        return profiles.transpose(1, 2)


class _LogScaling:
    """Scaling of scores by position, for models that use a token's row as its position."""

    def __init__(self, text: Any) -> None:
        self.floor: int | None = getattr(text, "log_scaling_n_floor", None)
        self._alpha: float = getattr(text, "log_scaling_alpha", 0.0)
        self._positions = torch.zeros(1, 0)

    def note_positions(self, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if kwargs.get("position_ids") is not None:
            self._positions = kwargs["position_ids"]

    def of(self, rows: Tensor) -> Tensor:
        """``rows`` [1, T, H, D], scaled by their positions."""
        assert self.floor is not None
        times = ((self._positions + 1).float() / self.floor).clamp(min=1.0)
        return (rows.float() * (1.0 + self._alpha * times.log())[..., None, None]).to(rows.dtype)


def _route_profiles(module: Any, route: AttentionRoute, scaling: _LogScaling | None) -> None:
    @put_in_steps(module, "forward", route)
    def forward(states: Tensor, *_: Tensor) -> Tensor:
        """States [1, T, H, R] -> profiles [1, H, T, E]."""
        profiles = states @ module.proj
        return (profiles if scaling is None else scaling.of(profiles)).transpose(1, 2)


def _scale_queries(module: Any, route: AttentionRoute, scaling: _LogScaling) -> None:
    own = module.forward

    @put_in_steps(module, "forward", route)
    def forward(*args: Any, **kwargs: Any) -> Any:
        module.is_sliding = True  # turns the scaling off, and has no other effect
        try:
            return own(*args, **kwargs)
        finally:
            module.is_sliding = False

    def scale(_: nn.Module, args: Any, queries: Tensor) -> Tensor:
        return queries if route.target is None else scaling.of(queries)

    module.q_norm.register_forward_hook(scale)
